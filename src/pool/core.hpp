#pragma once
// One pool: three floors (magazines, arena or shelf, memory), the limits, the accounts.
//
// Everything here but the fast path (cistern/detail/front.hpp) runs under `lock_`. Invariants, true
// whenever it is free:
//   held_                = bytes out + arena idle + shelf idle
//   blocks_out_          = blocks lent + in magazines + in the depot
//   central_idle()       = arena idle + shelf idle + depot, the idle bytes in nobody's magazine
//   central_idle() + allowances_ <= max_idle_bytes, where a magazine never exceeds its allowance
//   held_ <= max_bytes
// So every snapshot satisfies every limit, whatever the owners of magazines do meanwhile.
// Calls to user code (callbacks, deleters of adopted bytes) are made with no lock held.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/list.hpp"
#include "base/short_lock.hpp"
#include "cistern/detail/front.hpp"
#include "cistern/pool.hpp"
#include "pool/arena.hpp"
#include "pool/block.hpp"
#include "pool/shelf.hpp"

namespace cistern {

/// A thread's magazine as its pool sees it.
struct ThreadMagazine : detail::Magazine {
    explicit ThreadMagazine(detail::ThreadFront& front) noexcept;

    detail::ThreadFront* owner;
    Links<ThreadMagazine> in_pool;
    std::uint64_t allowance = 0;  // idle bytes it may hold, a multiple of 64
    std::uint64_t hits_then = 0;  // when it last ran over
    std::uint64_t blocks_then = 0;

    [[nodiscard]] std::uint64_t idle_bytes() const noexcept { return detail::bytes_of(inside()); }
    [[nodiscard]] std::uint64_t blocks() const noexcept { return detail::blocks_of(inside()); }
};

/// What all magazines and the pool's own accounts add up to.
struct Totals {
    std::uint64_t hits = 0, misses = 0;
    std::uint64_t idle_bytes = 0, idle_buffers = 0, lent_bytes = 0, lent_buffers = 0, waste = 0;
    std::uint64_t magazine_bytes = 0;
};

/// The slot of pools that have none; no thread ever fills it.
inline constexpr std::uint16_t no_slot = detail::slot_count - 1;

class Core : public detail::CoreFront {
public:
    Core(Memory memory, PoolOptions options);
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;
    ~Core();

    /// Makes a pool; the last copy of the handle retires it.
    static std::shared_ptr<detail::CoreFront> make(Memory memory, PoolOptions options);

    Block* take(std::size_t bytes, std::size_t type, bool may_fail);
    void give(Block& block, std::uint32_t generation) noexcept;
    /// Makes a lent block larger, its first bytes kept. Returns it, or the one whose loan goes on in
    /// its place; null if it is a whole block that cannot grow. Throws OutOfMemory.
    Block* grow(Block& block, std::size_t bytes);
    void count_grow() noexcept;
    void note_peak() noexcept;
    /// Throws InvalidArgument unless this block is on loan from this pool in this generation.
    void check_lent(const Block& block, std::uint32_t generation) const;
    /// Zeroes a block just lent, unless its bytes are fresh.
    void zero(Block& block, std::size_t bytes) noexcept;

    void adopt(void* data, std::size_t bytes, std::function<void(void*)> deleter);
    std::size_t trim(std::size_t keep_idle_bytes);
    void set_limits(const Limits& limits);
    void on_out_of_memory(std::function<void(std::size_t)> callback);

    [[nodiscard]] PoolStats stats();
    [[nodiscard]] Explanation explain();
    [[nodiscard]] PoolOptions options() const;
    [[nodiscard]] const Memory& memory() const noexcept { return memory_; }
    [[nodiscard]] const std::string& name() const noexcept { return options_.name; }
    /// Returns "pool 'x' holds ...".
    [[nodiscard]] std::string describe();
    /// Checks the invariants of the arena; for tests. Returns what is wrong, or nothing.
    [[nodiscard]] const char* check();

    Links<Core> in_registry;

private:
    friend class Registry;
    friend class Seizure;
    enum class Shortage { none, limit, memory };
    struct Attempt {
        Block* block = nullptr;
        Shortage shortage = Shortage::none;
    };
    using Lock = std::unique_lock<ShortLock>;
    using Wholes = List<Block, &Block::in_bin>;
    using Batches = List<Block, &Block::in_age>;  // by the first of their blocks
    using Magazines = List<ThreadMagazine, &ThreadMagazine::in_pool>;

    // core.cpp: acquire and release
    template <class Try>
    Block* climb(std::size_t bytes, bool may_fail, Try&& attempt_once);
    Attempt try_grow(Block& block, std::size_t size);
    Attempt try_take(std::size_t size, std::size_t bytes, std::size_t type);
    Block* take_kept(std::size_t size, std::size_t type, bool thorough) noexcept;
    Attempt take_new(std::size_t size, std::size_t type);
    Arena::Moving moving(std::size_t size) noexcept;
    void pay_for_moves(std::size_t size) noexcept;
    void* allocate_whole(std::size_t size);
    Arena::Taken take_whole(std::size_t size, std::size_t room);
    void lend(Block& block, std::size_t bytes) noexcept;
    [[noreturn]] void throw_out_of_memory(std::size_t bytes, Shortage shortage);
    [[nodiscard]] std::size_t block_bytes(std::size_t bytes) const;
    [[nodiscard]] std::size_t class_for(std::size_t bytes) const noexcept {
        return detail::class_of_last((bytes - 1) | grain_mask);
    }
    void to_central(Block& block, std::uint64_t when) noexcept;
    void to_memory(Block& block) noexcept;
    void now_out(Block& block) noexcept;
    void drop_from_shelf(Block& block) noexcept;
    void finish(Lock& lock) noexcept;
    static void retire(detail::CoreFront* front) noexcept;

    // limits.cpp: what may stay
    std::size_t evict(std::size_t bytes, std::uint64_t Evictions::*reason) noexcept;
    std::size_t evict_one(std::size_t bytes, std::uint64_t Evictions::*reason) noexcept;
    void enforce() noexcept;
    void age_out(bool reading) noexcept;
    [[nodiscard]] std::uint64_t central_idle() const noexcept;
    [[nodiscard]] std::uint64_t central_idle_buffers() const noexcept;
    [[nodiscard]] bool use_magazines() const noexcept;

    // magazines.cpp: threads
    ThreadMagazine* mine() noexcept;
    Block* take_from(ThreadMagazine& magazine, std::size_t bytes) noexcept;
    bool put_in(ThreadMagazine& magazine, Block& block) noexcept;
    bool allow(ThreadMagazine& magazine, std::size_t block_bytes) noexcept;
    detail::Load flush_rack(detail::BlockFront*& list, std::uint64_t now) noexcept;
    bool fetch_batch(ThreadMagazine& magazine, std::size_t bytes) noexcept;
    void rack_to_depot(ThreadMagazine& magazine, std::size_t index) noexcept;
    void flush(ThreadMagazine& magazine, std::size_t from_class = 0) noexcept;
    void flush_depot() noexcept;
    void flush_all() noexcept;
    void flush_before_growing(ThreadMagazine* own, std::size_t bytes) noexcept;
    void drop_magazine(ThreadMagazine& magazine) noexcept;
    [[nodiscard]] bool fast() const noexcept;
    [[nodiscard]] bool has_slot() const noexcept { return slot != no_slot; }

    // stats.cpp: accounts
    [[nodiscard]] Totals totals() const noexcept;
    Totals note_peaks(ThreadMagazine* magazine) noexcept;

    const std::uint64_t serial_;
    const Memory memory_;
    PoolOptions options_;
    const bool splits_;  // Elastic on a memory with ranges
    const bool marks_;   // a tool watches this memory
    mutable ShortLock lock_;
    BlockStore store_;
    std::optional<Arena> arena_;
    Shelf shelf_;
    Magazines magazines_;
    std::uint64_t threads_ = 0;
    std::array<Batches, detail::class_count> depot_;  // blocks between threads, by class
    std::size_t classes_used_ = 0;                    // racks from here on are empty everywhere
    std::uint64_t depot_bytes_ = 0, depot_blocks_ = 0;
    std::vector<std::function<void(std::size_t)>> callbacks_;
    Wholes outside_;                         // whole blocks that are not part of the arena
    List<Block, &Block::in_bin> farewells_;  // adopted, to be deleted once the lock is free
    bool retired_ = false;
    bool forking_ = false;  // every owner stays outside its magazine

    std::uint64_t held_ = 0, held_peak_ = 0;
    std::uint64_t allowances_ = 0;
    std::uint64_t blocks_out_ = 0;  // lent, in magazines and in the depot
    std::uint64_t hits_ = 0, misses_ = 0, grows_ = 0, failures_ = 0;
    std::uint64_t missed_bytes_ = 0;  // beyond the magazines'
    std::uint64_t releases_seen_ = 0;
    std::uint64_t asked_ = 0;  // bytes asked for by loans, beyond the magazines'; modulo 2^64
    Evictions evictions_;
    std::uint64_t lent_peak_ = 0, lent_buffers_peak_ = 0, idle_peak_ = 0, idle_buffers_peak_ = 0,
                  waste_peak_ = 0;
    std::uint64_t move_credit_ = no_limit / 2, acquires_then_ = 0, moves_then_ = 0;
    std::uint64_t order_ = 0, last_pass_ = 0, next_flush_held_ = 0;
};

inline Core& core_of(detail::CoreFront& front) noexcept { return static_cast<Core&>(front); }

/// All pools of the process: who shares a memory, which slots are free; survives fork and exit.
class Registry {
public:
    static Registry& instance() noexcept;

    void add(Core& core);
    void remove(Core& core) noexcept;
    /// Gives back the idle bytes of the other pools on this core's memory. Returns how many.
    std::size_t trim_others(const Core& core) noexcept;
    /// Returns ", pool 'x' holds ..." for each other pool on the memory.
    std::string describe_others(const Core& core) const;
    /// Empties the magazines of a thread that ends.
    void forget_thread(detail::ThreadFront& front) noexcept;

private:
    using Cores = List<Core, &Core::in_registry>;
    Registry() noexcept;
    static void before_fork() noexcept;
    static void after_fork_in_parent() noexcept;
    static void after_fork_in_child() noexcept;

    mutable std::recursive_mutex lock_;  // taken before any pool's
    Cores cores_;
    std::uint32_t slots_used_ = 0;
};

/// Keeps all owners out of their magazines of one pool while it lives. The pool's lock is held.
class Seizure {
public:
    explicit Seizure(Core& core) noexcept;
    Seizure(const Seizure&) = delete;
    Seizure& operator=(const Seizure&) = delete;
    ~Seizure();

private:
    Core& core_;
};

}  // namespace cistern
