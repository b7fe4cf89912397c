#pragma once
// The fast path: what an acquire that hits the calling thread's magazine, and its release, execute.
// It is inline because two calls into a shared library alone cost twice the floor (docs/design.md).
// Nothing here is for users.
//
// A magazine belongs to one thread and one pool. The owner touches it only between `busy = 1` and
// `busy = 0`, and only while it is in its slot. Another thread that wants it (to trim, to enforce
// a limit, before the range grows) holds the pool's lock, empties the slot, issues a process-wide
// memory barrier, and waits for `busy == 0`: then the owner is outside and stays outside until the
// magazine is in the slot again. So the owner pays two plain stores, no locked instruction.
// There are more pools than slots. Those that share one take turns: whose magazine is not there takes the
// slow path, which puts it there. An empty slot has a magazine that is nobody's.
//
// Invariants of a magazine:
//   what is in it         = given - taken, a Load: bytes and blocks in one number
//   never more than       its allowance, which `above` guards
//   a block in rack c     is at least as large as the request that filed it there
//
// One block of a magazine may be in the thread's hand: lent to and taken back from requests of the very
// same size, again and again, by a store each way and its generation. The accounts say that it is lent and
// the allowance that it is idle, so neither changes; whoever adds up looks whether it is, and how far its
// generation rose. It gets into the hand by a release on the slow path, which now and then one has to take,
// and out of it when its owner next takes that path, or somebody empties the magazine or releases the block
// on another thread.

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace [[gnu::visibility("default")]] cistern {

struct Holes;

namespace detail {

/// Bytes and blocks in one number, so that one addition counts both: grains of 64 bytes in the upper
/// half, blocks in the lower. Sums are exact while both stay below 2^31 (128 GiB in one magazine);
/// differences of sums are exact whatever the sums overflowed.
using Load = std::uint64_t;
inline constexpr Load load_signs = 0x8000'0000'8000'0000;
inline constexpr std::size_t load_grain = 64;
inline constexpr std::size_t load_limit = (std::size_t{1} << 31) * load_grain;
constexpr Load load_of(std::size_t bytes, std::size_t blocks) noexcept {
    return (Load{bytes / load_grain} << 32) + blocks;
}
constexpr std::size_t bytes_of(Load load) noexcept {
    return static_cast<std::size_t>(load >> 32) * load_grain;
}
constexpr std::size_t blocks_of(Load load) noexcept {
    return static_cast<std::size_t>(load & 0xFFFF'FFFF);
}

/// The part of a block's descriptor that the fast path touches. Descriptors live outside the memory
/// they describe, and are never freed, only reused: a stale handle meets another generation.
struct BlockFront {
    void* data = nullptr;
    std::size_t bytes = 0;
    std::size_t asked = 0;         // of which the last holder asked for these
    std::uint64_t generation = 0;  // rises with every release
    Load load = 0;                 // of this one block
    BlockFront* below = nullptr;   // next in a rack
    BlockFront* ahead = nullptr;  // if another thread passed it on, some places below it; or itself
    Holes* holes = nullptr;       // in whose order its bytes are used
};

/// The part of a pool that the fast path reads. Constant while the pool lives.
struct CoreFront {
    std::uint16_t slot = 0;       // which slot of ThreadFront; the last one stays empty
    std::size_t grain_mask = 63;  // sizes are multiples of grain_mask + 1
};

inline constexpr std::size_t class_count = 512;
inline constexpr std::size_t slot_count = 32;
inline constexpr std::size_t takes_per_choice = 1024;  // of the block for the hand

using Rack = BlockFront*;  // the blocks of one class, last in first out, ended by &no_block
inline constexpr std::size_t rack_bytes = sizeof(std::uintptr_t);

/// Returns where the rack of a request whose last byte is `last` = bytes - 1 lies among the racks, in
/// bytes. Its class is the exponent and the top three bits of the fraction of `last` as a double, so
/// 8 classes per doubling. Numbers of 2^63 and more alias lower classes; no block is large enough to
/// be taken for them.
inline std::size_t rack_of_last(std::size_t last) noexcept {
    constexpr int shift = 49 - std::countr_zero(rack_bytes);
    const auto value = static_cast<double>(static_cast<std::int64_t>(last));
    return (std::bit_cast<std::uint64_t>(value) >> shift) & ((class_count - 1) * rack_bytes);
}
inline std::size_t class_of_last(std::size_t last) noexcept {
    return rack_of_last(last) / rack_bytes;
}

/// A counter with one writer, which other threads may read at any time. Relaxed: a reader needs no
/// more than a recent value; the orders that matter are stated where counters are summed.
class Count {
public:
    void add(std::uint64_t n) noexcept { set(now() + n); }
    void subtract(std::uint64_t n) noexcept { set(now() - n); }
    void set(std::uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
    /// Sets; who reads this with now_before_others() sees what was set before. Release: it stays later.
    void set_after_others(std::uint64_t n) noexcept { value_.store(n, std::memory_order_release); }
    [[nodiscard]] std::uint64_t now() const noexcept {
        return value_.load(std::memory_order_relaxed);
    }
    /// Reads; what is read after this call was not older. Acquire: later loads stay later.
    [[nodiscard]] std::uint64_t now_before_others() const noexcept {
        return value_.load(std::memory_order_acquire);
    }

private:
    std::atomic<std::uint64_t> value_{0};
};

// The order matters: a processor takes a load for one of bytes just stored if their addresses agree in the
// lower 12 bits. What a pair from the hand touches lies in the second half of a line here, and in the first
// half of one in a block, so that the two never agree.
struct alignas(128) Magazine {
    Count taken, given;               // Loads, of all blocks ever
    Count asked, returned;            // bytes that users asked for, and gave back
    const CoreFront* home = nullptr;  // whose requests it serves
    Count hand_bytes;            // what the block in the hand serves, while it is there; else 0
    BlockFront* hand = nullptr;  // there, or lent from there
    std::size_t hand_rack = 0;   // where it belongs
    Count hits;
    Holes* holes = nullptr;  // whose blocks it keeps
    // Adding what is in the magazine to `above` sets a sign where it exceeds what this thread is
    // allowed or would be a new peak of idle; taking it from `below` does where it would be a new
    // peak of lent. Then the slow path looks.
    Load above = load_signs - 1, below = load_signs - load_of(load_grain, 1);
    std::uint64_t hand_since = 0;  // the generation with which the block came into the hand
    Rack racks[class_count];

    /// Other threads may read less than there is, never more: what was taken is read last.
    [[nodiscard]] Load inside() const noexcept {
        const Load all = given.now_before_others();
        return all - taken.now();
    }
    [[nodiscard]] Rack& rack_at(std::size_t offset) noexcept {
        return *reinterpret_cast<Rack*>(reinterpret_cast<std::byte*>(racks) + offset);
    }
};

extern constinit Magazine no_magazine;  // nobody's, and never written

/// The magazines of one thread, by the slot of their pool.
struct ThreadFront {
    struct Slot : std::atomic<Magazine*> {
        constexpr Slot() noexcept : atomic(&no_magazine) {}
    };
    std::atomic<bool> busy{false};
    Slot slots[slot_count];
};

#ifdef __NVCC__  // does without the attribute
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1835
#endif
// The initial-exec model: one load from the thread pointer, in a shared library too.
extern constinit thread_local ThreadFront thread_front [[gnu::tls_model("initial-exec")]];
#ifdef __NVCC__
#pragma nv_diagnostic pop
#endif
extern constinit BlockFront no_block;  // zero bytes: fits nothing, ends every rack

/// Enters the magazine in a slot of the calling thread, whosever it is. The order of store and load is what
/// the barrier of the other side enforces; here it binds the compiler only.
[[gnu::always_inline]] inline Magazine* enter(std::size_t slot) noexcept {
    thread_front.busy.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    // Acquire: sees what the thread that last held this magazine did to it.
    return thread_front.slots[slot].load(std::memory_order_acquire);
}

/// Leaves. Release: whoever takes the magazine next sees what was done to it.
[[gnu::always_inline]] inline void leave() noexcept {
    thread_front.busy.store(false, std::memory_order_release);
}

/// What every acquire beyond the first floor runs: throws, or returns null if `may_fail` or nothing
/// was asked for. Enters with the thread possibly busy, always returns with it not busy.
BlockFront* take_slow(CoreFront& core, std::size_t bytes, std::size_t type, bool may_fail);
/// What every release beyond the first floor runs. Never throws: a stale handle is ignored.
void give_slow(BlockFront& block, std::uint32_t generation) noexcept;
/// Records a new peak of what is lent; leaves the magazine.
void note_peak(CoreFront& core) noexcept;

/// A block lent and the rack where the next acquire of these bytes will look first.
struct Loan {
    BlockFront* block;
    std::size_t rack;
    std::uint32_t mark = 0;  // of its generation in the handle
};
/// Set where the block was lent from a hand: another thread's release sees that it is not an ordinary one.
inline constexpr std::uint32_t mark_of_hand = 1U << 31;
static_assert(class_count * rack_bytes <= 1 << 16, "a buffer keeps the rack in 16 bits");

/// Lends a block of at least `bytes` bytes.
[[gnu::always_inline]] inline Loan take(CoreFront& core, std::size_t bytes, std::size_t type = 0,
                                        bool may_fail = false) {
    Magazine* const magazine = enter(core.slot);
    if (magazine->home != &core || bytes == 0) [[unlikely]]
        return {take_slow(core, bytes, type, may_fail),
                rack_of_last((bytes - 1) | core.grain_mask)};
    if (magazine->hand_bytes.now() == bytes) [[likely]] {
        const Loan loan{magazine->hand, 0, mark_of_hand};
        if (loan.block == nullptr) __builtin_unreachable();
        magazine->hand_bytes.set(0);
        leave();
        return loan;
    }
    const std::size_t last = (bytes - 1) | core.grain_mask;
    const std::size_t rack = rack_of_last(last);
    Rack& blocks = magazine->rack_at(rack);
    BlockFront* const block = blocks;
    if (block->bytes <= last) [[unlikely]]
        return {take_slow(core, bytes, type, may_fail), rack};
    blocks = block->below;
    // If that is in another thread's cache, it comes from there while the acquires between go on.
    __builtin_prefetch(block->ahead);
    block->asked = bytes;
    magazine->asked.add(bytes);
    const Load taken = magazine->taken.now() + block->load;
    magazine->taken.set(taken);
    magazine->hits.set_after_others(magazine->hits.now() + 1);
    if (blocks_of(taken) % takes_per_choice == 0) [[unlikely]]
        magazine->above = load_signs - 1;
    const Load peak = magazine->below - magazine->given.now() + taken;
    if ((peak & load_signs) != 0) [[unlikely]]
        note_peak(core);
    leave();
    return {block, rack};
}

/// Takes a block back. `generation` is the lower half of the block's when it was lent, with the loan's mark.
[[gnu::always_inline]] inline void give(BlockFront& block, std::uint32_t generation,
                                        std::size_t slot, std::size_t rack_offset) noexcept {
    Magazine* const magazine = enter(slot);
    const std::uint64_t now = block.generation;
    if (magazine->hand == &block) [[likely]] {
        if ((static_cast<std::uint32_t>(now) ^ mark_of_hand) != generation) [[unlikely]]
            return give_slow(block, generation);
        magazine->hand_bytes.set(block.asked);
        // Release: who adds up hits reads this first, and then sees that the block is here.
        __atomic_store_n(&block.generation, now + 1, __ATOMIC_RELEASE);
        leave();
        return;
    }
    if (magazine->holes != block.holes) [[unlikely]]
        return give_slow(block, generation);
    const Load given = magazine->given.now() + block.load;
    const Load over = given - magazine->taken.now() + magazine->above;
    if (static_cast<std::uint32_t>(now) != generation || (over & load_signs) != 0) [[unlikely]]
        return give_slow(block, generation);
    block.generation = now + 1;
    // The rack comes from the handle, not from the block: its address does not wait for the block's.
    Rack& rack = magazine->rack_at(rack_offset);
    block.below = rack;
    block.ahead = &block;
    rack = &block;
    magazine->given.set(given);
    magazine->returned.add(block.asked);
    leave();
}

}  // namespace detail
}  // namespace cistern
