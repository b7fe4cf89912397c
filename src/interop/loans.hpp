#pragma once
// Loans that their holders know by a bare address: behind standard allocators and the C ABI.

#include <cstddef>

#include "cistern/buffer.hpp"
#include "cistern/pool.hpp"

namespace cistern::detail {

/// What this folder does with a pool beyond its public verbs.
struct Interop {
    /// Lends bytes for elements of a type that is named by a number.
    static Buffer acquire(Pool& pool, std::size_t bytes, std::size_t type) {
        return pool.of_type(bytes, type);
    }
    static bool lent_by(const Pool& pool, const Buffer& buffer) noexcept {
        return pool.lent(buffer);
    }
};

/// Lends bytes at a multiple of `alignment` and remembers the loan by its address. Throws
/// OutOfMemory, or InvalidArgument for an alignment that is no power of two.
void* lend(Pool& pool, std::size_t bytes, std::size_t alignment, bool zeroed);

/// Each throws InvalidArgument, changing nothing, if nothing is lent at `data` by this pool.
void take_back(const Pool& pool, void* data);
std::size_t usable_bytes(const Pool& pool, const void* data);
/// Returns where the bytes, at least `bytes` of them, now are; what was there stays.
void* resize(Pool& pool, void* data, std::size_t bytes);

}  // namespace cistern::detail
