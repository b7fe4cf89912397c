#pragma once
// Loans that their holders know by a bare address: behind standard allocators and the C ABI.

#include <cstddef>
#include <functional>

#include "cistern/buffer.hpp"
#include "cistern/pool.hpp"
#include "cistern/stream.hpp"

namespace cistern {
struct Block;
}

namespace cistern::detail {

/// What this folder does with a pool beyond its public verbs.
struct Interop {
    /// Lends bytes for elements of a type that is named by a number.
    static Buffer acquire(Pool& pool, std::size_t bytes, std::size_t type) {
        return pool.of_type(bytes, type);
    }
    static Core& core(const Pool& pool) noexcept;
    /// Lends by a lane that the caller keeps open.
    static Buffer lend(CoreFront& lane, std::size_t bytes);
    /// Opens the lane of a stream that nobody vouches for: it may be destroyed at any time. The lane does not
    /// keep the pool's idle bytes, only the little that it needs itself.
    static std::shared_ptr<CoreFront> open_any(const Pool& pool, void* stream);
    /// Returns what a pool lends by in the order of the default stream without being asked; else null.
    static CoreFront* by_default(const Pool& pool) noexcept;
    /// Returns whether a block is this pool's.
    static bool lent_by(const Pool& pool, const Block& block) noexcept;
    /// Keeps what a buffer that is not empty knows in its block; and makes a buffer of that again, once.
    static Block& keep(Buffer&& buffer) noexcept;
    static Buffer restore(Block& block) noexcept;
};

/// Lends bytes at a multiple of `alignment` and remembers the loan by its address. Throws
/// OutOfMemory, or InvalidArgument for an alignment that is no power of two.
void* lend(Pool& pool, std::size_t bytes, std::size_t alignment, bool zeroed);

/// Remembers a loan by its address, which is returned; gives it up again, an empty buffer if there is
/// none; and calls use(buffer) if there is one.
void* remember(Buffer&& buffer) noexcept;
Buffer recall(const void* data) noexcept;
void visit_loan(const void* data, const std::function<void(Buffer&)>& use);

/// Each throws InvalidArgument, changing nothing, if nothing is lent at `data` by this pool.
void take_back(const Pool& pool, void* data);
std::size_t usable_bytes(const Pool& pool, const void* data);
/// Returns where the bytes, at least `bytes` of them, now are; what was there stays.
void* resize(Pool& pool, void* data, std::size_t bytes);

}  // namespace cistern::detail
