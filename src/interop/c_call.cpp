#include "interop/c_call.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>

namespace cistern::detail {

constinit thread_local LastError last_error;

namespace {

[[maybe_unused]] const int registered_at_load = survive_fork<PoolTable>();

constexpr std::size_t largest_struct = 4096;

/// The text of a thread's last error; apart from last_error, which thus needs no destructor.
struct Text {
    char* data = nullptr;
    Text() = default;
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;
    ~Text() {
        last_error = {};
        std::free(data);
    }
};
thread_local Text kept_text;

}  // namespace

void set_error(cistern_status code, const char* text) noexcept {
    char* const copy = strdup(text);
    last_error = {code, copy == nullptr ? "out of memory" : copy};
    std::free(kept_text.data);
    kept_text.data = copy;
}

void set_error_from_exception() noexcept {
    try {
        throw;
    } catch (const OutOfMemory& error) {
        set_error(CISTERN_OUT_OF_MEMORY, error.what());
    } catch (const InvalidHandle& error) {
        set_error(CISTERN_INVALID_HANDLE, error.what());
    } catch (const NoRoom& error) {
        set_error(CISTERN_NO_ROOM, error.what());
    } catch (const InvalidArgument& error) {
        set_error(CISTERN_INVALID_ARGUMENT, error.what());
    } catch (const Unavailable& error) {
        set_error(CISTERN_UNAVAILABLE, error.what());
    } catch (const DeviceError& error) {
        set_error(CISTERN_DEVICE_ERROR, error.what());
    } catch (const std::bad_alloc&) {
        set_error(CISTERN_OUT_OF_MEMORY, "no memory for the bookkeeping of a loan");
    } catch (const std::exception& error) {
        set_error(CISTERN_INTERNAL_ERROR, error.what());
    } catch (...) {
        set_error(CISTERN_INTERNAL_ERROR, "an exception of unknown type");
    }
}

void check_pointer(const void* pointer, const char* name) {
    if (pointer == nullptr) throw InvalidArgument(std::string(name) + " is null");
}

void check_size(std::size_t size, std::size_t first, const char* name) {
    if (size >= first && size <= largest_struct) return;
    throw InvalidArgument(std::string("size is not that of a ") + name + ": " +
                          std::to_string(size) + " B, from " + std::to_string(first) + " B to " +
                          std::to_string(largest_struct) + " B");
}

void check_unknown(const void* bytes, std::size_t count, const char* name) {
    const auto* const begin = static_cast<const std::byte*>(bytes);
    if (std::all_of(begin, begin + count, [](std::byte byte) { return byte == std::byte{0}; })) {
        return;
    }
    throw InvalidArgument(std::string(name) + " has fields that this library does not know: " +
                          std::to_string(count) + " B more");
}

}  // namespace cistern::detail

int cistern_abi_version() { return CISTERN_ABI_VERSION; }

cistern_status cistern_last_error_code() { return cistern::detail::last_error.code; }

const char* cistern_last_error() {
    const cistern::detail::LastError& last = cistern::detail::last_error;
    return last.code == CISTERN_OK ? "" : last.text;
}
