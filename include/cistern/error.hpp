#pragma once
// Every exception Cistern throws is a cistern::Error and also the standard exception nearest to it:
//
//     try { auto buffer = pool.acquire(n); }
//     catch (const cistern::OutOfMemory& error) { std::cerr << error.what(); }
//
// `Error` itself does not derive from std::exception, so that `catch (const std::exception&)` is
// never ambiguous.

#include <new>
#include <stdexcept>
#include <string>

namespace [[gnu::visibility("default")]] cistern {

class Error {
public:
    virtual ~Error() = default;
    [[nodiscard]] virtual const char* what() const noexcept = 0;
};

/// The memory, or a limit of the pool, has no room left. The text says who holds what.
class OutOfMemory : public std::bad_alloc, public Error {
public:
    explicit OutOfMemory(const std::string& text) : text_(text) {}
    [[nodiscard]] const char* what() const noexcept override { return text_.what(); }

private:
    std::runtime_error text_;  // a string whose copies cannot throw
};

/// A value that makes no sense; the text names it and the limit. Nothing was changed.
class InvalidArgument : public std::invalid_argument, public Error {
public:
    using std::invalid_argument::invalid_argument;
    [[nodiscard]] const char* what() const noexcept override {
        return std::invalid_argument::what();
    }
};

/// A unified buffer was used before it was allocated, or after it was freed.
class BufferNotAllocated : public InvalidArgument {
public:
    using InvalidArgument::InvalidArgument;
};

/// What was asked for does not exist here (no driver, no device, too old); the text says why.
class Unavailable : public std::runtime_error, public Error {
public:
    using std::runtime_error::runtime_error;
    [[nodiscard]] const char* what() const noexcept override { return std::runtime_error::what(); }
};

/// A device reported a failure.
class DeviceError : public std::runtime_error, public Error {
public:
    using std::runtime_error::runtime_error;
    [[nodiscard]] const char* what() const noexcept override { return std::runtime_error::what(); }
};

}  // namespace cistern
