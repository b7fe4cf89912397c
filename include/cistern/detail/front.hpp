#pragma once
// The fast path: what an acquire that hits the calling thread's magazine, and its release, execute.
// It is inline because two calls into a shared library alone cost twice the floor (docs/design.md).
// Nothing here is for users.
//
// A magazine belongs to one thread and one pool. The owner touches it only between `busy = 1` and
// `busy = 0`, and only while its slot is not null. Another thread that wants it (to trim, to enforce
// a limit, before the range grows) holds the pool's lock, sets the slot to null, issues a process-wide
// memory barrier, and waits for `busy == 0`: then the owner is outside and stays outside until the
// slot is set again. So the owner pays two plain stores, no locked instruction.
//
// Invariants of a magazine:
//   idle bytes            = given_bytes - taken_bytes, at most `ceiling` after a fast release
//   blocks in it          = given - taken
//   a block in rack c     is at least as large as the request that filed it there

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace [[gnu::visibility("default")]] cistern {
namespace detail {

/// The part of a block's descriptor that the fast path touches. Descriptors live outside the memory
/// they describe, and are never freed, only reused: a stale handle meets another generation.
struct BlockFront {
    void* data = nullptr;
    std::size_t bytes = 0;
    std::uint64_t generation = 0;  // rises with every release
    BlockFront* below = nullptr;   // next in a rack
};

/// The part of a pool that the fast path reads. Constant while the pool lives.
struct CoreFront {
    std::uint32_t slot = 0;        // which slot of ThreadFront; the last one is never filled
    std::size_t grain_mask = 63;   // sizes are multiples of grain_mask + 1
};

inline constexpr std::size_t class_count = 512;
inline constexpr std::size_t slot_count = 32;

/// Returns the class of a request whose last byte is `last` = bytes - 1: the exponent and the top
/// three bits of the fraction of `last` as a double, so 8 classes per doubling. Numbers of 2^63 and
/// more alias lower classes; no block is large enough to be taken for them.
inline std::size_t class_of_last(std::size_t last) noexcept {
    const double value = static_cast<double>(static_cast<std::int64_t>(last));
    return (std::bit_cast<std::uint64_t>(value) >> 49) & (class_count - 1);
}

struct Rack {
    BlockFront* top;   // the last block released, or &no_block: one slot, so that a pair of acquire
                       // and release does not wait for `below` to come back from memory
    BlockFront* rest;  // the others, last in first out, ended by &no_block
};

/// A counter with one writer, which other threads may read at any time. Relaxed: a reader needs no
/// more than a recent value; the orders that matter are stated where counters are summed.
class Count {
public:
    void add(std::uint64_t n) noexcept { set(now() + n); }
    void subtract(std::uint64_t n) noexcept { set(now() - n); }
    /// Adds, and whoever sees it sees all that came before.
    void publish(std::uint64_t n) noexcept { value_.store(now() + n, std::memory_order_release); }
    void set(std::uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t now() const noexcept {
        return value_.load(std::memory_order_relaxed);
    }

private:
    std::atomic<std::uint64_t> value_{0};
};

struct alignas(128) Magazine {
    Count taken, taken_bytes, taken_waste;
    Count given, given_bytes, given_waste;
    // Beyond these the slow path must look: a new peak of lent bytes or buffers (below the floors),
    // of waste, or of idle bytes or buffers, or more idle bytes than the thread is allowed.
    std::int64_t floor = 0, count_floor = 0;
    std::int64_t waste_ceiling = 0, ceiling = 0, count_ceiling = 0;
    Rack racks[class_count];

    [[nodiscard]] std::int64_t idle_bytes() const noexcept {
        return static_cast<std::int64_t>(given_bytes.now() - taken_bytes.now());
    }
    [[nodiscard]] std::int64_t blocks() const noexcept {
        return static_cast<std::int64_t>(given.now() - taken.now());
    }
    [[nodiscard]] std::int64_t waste() const noexcept {
        return static_cast<std::int64_t>(taken_waste.now() - given_waste.now());
    }
};

/// The magazines of one thread, by the slot of their pool.
struct ThreadFront {
    std::atomic<std::uint32_t> busy{0};
    std::atomic<Magazine*> slots[slot_count] = {};
};

// The initial-exec model: one load from the thread pointer, in a shared library too.
extern constinit thread_local ThreadFront thread_front [[gnu::tls_model("initial-exec")]];
extern constinit BlockFront no_block;  // zero bytes: fits nothing, ends every rack

/// Enters the calling thread's magazine; null if it has none that it may touch. The order of store
/// and load is what the barrier of the other side enforces; here it binds the compiler only.
[[gnu::always_inline]] inline Magazine* enter(const CoreFront& core) noexcept {
    thread_front.busy.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    // Acquire: sees what the thread that last held this magazine did to it.
    return thread_front.slots[core.slot].load(std::memory_order_acquire);
}

/// Leaves. Release: whoever takes the magazine next sees what was done to it.
[[gnu::always_inline]] inline void leave() noexcept {
    thread_front.busy.store(0, std::memory_order_release);
}

/// What every acquire beyond the first floor runs: throws, or returns null if `may_fail`.
/// Enters with the thread possibly busy, always returns with it not busy.
BlockFront* take_slow(CoreFront& core, std::size_t bytes, std::size_t type, bool may_fail);
/// What every release beyond the first floor runs. Never throws: a stale handle is ignored.
void give_slow(CoreFront& core, BlockFront& block, std::uint64_t generation,
               std::size_t bytes) noexcept;
/// Records a new peak of lent or wasted bytes.
void note_peak(CoreFront& core) noexcept;

/// Lends a block of at least `bytes` bytes; null for none.
[[gnu::always_inline]] inline BlockFront* take(CoreFront& core, std::size_t bytes,
                                               std::size_t type = 0, bool may_fail = false) {
    Magazine* const magazine = enter(core);
    if (magazine == nullptr) [[unlikely]] return take_slow(core, bytes, type, may_fail);
    const std::size_t last = (bytes - 1) | core.grain_mask;
    Rack& rack = magazine->racks[class_of_last(last)];
    BlockFront* const block = rack.top;
    const std::size_t block_bytes = block->bytes;
    if (block_bytes <= last) [[unlikely]] return take_slow(core, bytes, type, may_fail);
    rack.top = &no_block;
    magazine->taken.add(1);
    const std::uint64_t taken_bytes = magazine->taken_bytes.now() + block_bytes;
    magazine->taken_bytes.set(taken_bytes);
    bool peak =
        static_cast<std::int64_t>(magazine->given_bytes.now() - taken_bytes) < magazine->floor;
    peak |= magazine->blocks() < magazine->count_floor;
    if (block_bytes != bytes) {
        magazine->taken_waste.add(block_bytes - bytes);
        peak |= magazine->waste() > magazine->waste_ceiling;
    }
    leave();
    if (peak) [[unlikely]] note_peak(core);
    return block;
}

/// Takes a block back. `bytes` is what was asked for when it was lent.
[[gnu::always_inline]] inline void give(CoreFront& core, BlockFront& block, std::uint64_t generation,
                                        std::size_t bytes) noexcept {
    Magazine* const magazine = enter(core);
    if (magazine == nullptr) [[unlikely]] return give_slow(core, block, generation, bytes);
    const std::size_t block_bytes = block.bytes;
    const std::uint64_t given_bytes = magazine->given_bytes.now() + block_bytes;
    const auto idle = static_cast<std::int64_t>(given_bytes - magazine->taken_bytes.now());
    if (block.generation != generation || idle > magazine->ceiling ||
        magazine->blocks() >= magazine->count_ceiling) [[unlikely]] {
        return give_slow(core, block, generation, bytes);
    }
    block.generation = generation + 1;
    // The class of the request, not of the block: its address does not wait for the block's.
    Rack& rack = magazine->racks[class_of_last((bytes - 1) | core.grain_mask)];
    BlockFront* const under = rack.top;
    rack.top = &block;
    if (under != &no_block) {
        under->below = rack.rest;
        rack.rest = under;
    }
    magazine->given.publish(1);
    magazine->given_bytes.set(given_bytes);
    if (block_bytes != bytes) magazine->given_waste.add(block_bytes - bytes);
    leave();
}

}  // namespace detail
}  // namespace cistern
