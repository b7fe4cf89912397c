#pragma once
// What every function of the C ABI does: no exception leaves, the last error is kept for its thread,
// and structs are read and written by the size that the caller knows.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "cistern/cistern.h"
#include "cistern/error.hpp"
#include "cistern/pool.hpp"
#include "interop/handles.hpp"

namespace cistern::detail {

using PoolTable = Table<Pool, HandleKind::pool>;
inline PoolTable::Visit visit_pool(cistern_pool pool) { return PoolTable::instance().visit(pool); }

/// Reads what a C caller filled in; the defaults for null.
PoolOptions read_options(const cistern_options* options);
/// Whether a pool is one of the process's.
bool is_default(const Pool& pool);

struct LastError {
    cistern_status code = CISTERN_OK;
    const char* text = "";
};
extern constinit thread_local LastError last_error;

void set_error(cistern_status code, const char* text) noexcept;
/// Keeps the exception that is being handled.
void set_error_from_exception() noexcept;

/// The caller's room for a text is too small.
class NoRoom : public InvalidArgument {
public:
    using InvalidArgument::InvalidArgument;
};

/// Returns body(), or null or 0 if it throws.
template <class Body>
auto call(Body&& body) noexcept -> decltype(body()) {
    try {
        auto result = body();
        last_error.code = CISTERN_OK;
        return result;
    } catch (...) {
        set_error_from_exception();
        return {};
    }
}

template <class Body>
cistern_status status_of(Body&& body) noexcept {
    call([&] {
        body();
        return 0;
    });
    return last_error.code;
}

/// Throws InvalidArgument for a pointer that must not be null.
void check_pointer(const void* pointer, const char* name);
/// Throws InvalidArgument unless `size` can be that of a struct that began with `first` bytes.
void check_size(std::size_t size, std::size_t first, const char* name);
/// Throws InvalidArgument unless the bytes of a newer struct, which mean nothing here, are zero.
void check_unknown(const void* bytes, std::size_t count, const char* name);

/// Reads a struct that a caller with another header may have filled in; `known` holds the defaults.
/// All structs are as version 1 of the ABI has them; one that grows gets its first size here.
template <class Struct>
Struct read_struct(const Struct* from, Struct known, const char* name) {
    const std::size_t size = from->size;
    check_size(size, sizeof(Struct), name);
    if (size > sizeof(Struct)) {
        check_unknown(reinterpret_cast<const std::byte*>(from) + sizeof(Struct),
                      size - sizeof(Struct), name);
    }
    std::memcpy(&known, from, std::min(size, sizeof(Struct)));
    return known;
}

/// Writes a struct for a caller who has room for `size` bytes of it.
template <class Struct>
void write_struct(const Struct& value, Struct* to, std::size_t size, const char* name) {
    check_pointer(to, name);
    check_size(size, sizeof(Struct), name);
    std::memset(static_cast<void*>(to), 0, size);
    std::memcpy(static_cast<void*>(to), &value, std::min(size, sizeof(Struct)));
    to->size = size;
}

}  // namespace cistern::detail
