#pragma once
// One pool: three floors (magazines, arena or shelf, memory), the limits, the accounts.
//
// Everything here but the fast path (cistern/detail/front.hpp) runs under `lock_`. Invariants, true
// whenever it is free:
//   held_                = bytes out + arena idle + shelf idle
//   blocks_out_          = blocks lent + in magazines + in the depot
//   central_idle()       = arena idle + shelf idle + depot, the idle bytes in nobody's magazine
//   central_idle() + allowances_ <= max_idle_bytes, where a magazine, with the block of its hand, lent or
//                          not, never exceeds its allowance
//   held_ <= max_bytes
// So every snapshot satisfies every limit, whatever the owners of magazines do meanwhile.
// Calls to user code (callbacks, deleters of adopted bytes) and to the CUDA driver are made with no lock
// held; a block is nobody else's meanwhile.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/list.hpp"
#include "base/short_lock.hpp"
#include "cistern/detail/front.hpp"
#include "cistern/pool.hpp"
#include "memory/stream_order.hpp"
#include "pool/arena.hpp"
#include "pool/block.hpp"
#include "pool/credit.hpp"
#include "pool/shelf.hpp"
#include "pool/thread_magazine.hpp"

namespace cistern {

class Core;
using Batches = List<Block, &Block::in_age>;  // by the first of their blocks

inline constexpr std::size_t largest_request = PTRDIFF_MAX / 2;

/// Far enough for no core to fetch one with the other: processors like lines in pairs.
inline constexpr std::size_t lines_apart = 128;

/// So many are all counted now and then, and before a pool grows.
inline constexpr std::uint64_t few_magazines = 8;

/// The slot of lanes that have none; it stays empty in every thread.
inline constexpr std::uint16_t no_slot = detail::slot_count - 1;

/// An order in which bytes are used: the host's, or a stream's. A block belongs to one lane at a time;
/// each lane has its own magazines, depot and holes, because what one gives back another may only use
/// after waiting. Pools on host memory have one.
struct Lane : detail::CoreFront, Holes {
    explicit Lane(Core& of) noexcept : core(of) { slot = no_slot; }

    Core& core;
    std::array<Batches, detail::class_count> depot;  // blocks between threads, by class
    Links<Lane> in_pool;
    std::uint32_t threads = 0;     // that have a magazine of it
    std::uint64_t bytes_out = 0;   // lent, in magazines and in the depot
    std::uint64_t most_out = 0;    // the most of that when a large block was lent
    std::uint32_t large_lent = 0;  // beyond magazines, so often
    Batches set_aside;             // released whole blocks that a graph keeps

    // Of a stream's:
    StreamInfo stream;
    void* event = nullptr;  // null: bytes of this lane are in nobody's use
    bool open = false;      // somebody may still give the stream work, and vouches that it exists
    std::uint32_t closing = 0;  // threads whose event does not say yet what the stream was given
    bool unmarked = false;      // closed, and the event does not say all that used its bytes
    bool parks = false;         // the host is next: its blocks wait until the stream is done
    std::uint32_t handles = 0;
    std::uint32_t busy = 0;     // threads that use event or stream with the lock free
    std::uint32_t closers = 0;  // threads that close it; the last one may let it go
    std::uint32_t leavers = 0;  // its blocks on their way to the driver or to another place
    std::uint64_t marked = 0;   // old places up to this order are free once the event is done

    [[nodiscard]] bool ordered() const noexcept { return event != nullptr; }
    [[nodiscard]] bool captured() const noexcept { return stream.capture != 0; }
    /// Whether only a mark of all that the device was given says who uses its bytes.
    [[nodiscard]] bool needs_all() const noexcept {
        return closing != 0 || unmarked || (open && stream.fleeting);
    }
};

/// Whether a block of the list is this lane's.
template <class Blocks>
bool named_by(const Blocks& list, const Lane& lane) noexcept {
    for (const Block* block = list.first(); block != nullptr; block = list.after(*block)) {
        if (block->holes == &lane) return true;
    }
    return false;
}

/// Keeps a lane and its stream while the lock is free.
class Busy {
public:
    explicit Busy(Lane& lane) noexcept : lane_(lane) { ++lane_.busy; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    ~Busy() { --lane_.busy; }

private:
    Lane& lane_;
};

inline Lane& lane_of(detail::CoreFront& front) noexcept { return static_cast<Lane&>(front); }
inline Lane& lane_of(const Block& block) noexcept { return static_cast<Lane&>(*block.holes); }

/// Why a stream's work cannot be had now.
inline constexpr const char* captured_beside =
    "a stream that nobody vouches for cannot be waited for while another is captured";

/// Streams that work with a lent block besides its own, and once it is released, the events to wait for.
struct Uses {
    std::vector<StreamInfo> streams;
    std::vector<void*> events;
    bool unmarked = false;  // the events do not say all: a capture goes on that saying it would end
    bool unwiped = false;   // and its bytes are to be zeroed after that
};

/// What all magazines and the pool's own accounts add up to.
struct Totals {
    std::uint64_t hits = 0, misses = 0;
    std::uint64_t idle_bytes = 0, idle_buffers = 0, lent_bytes = 0, lent_buffers = 0, waste = 0;
    std::uint64_t magazine_bytes = 0;
};

// What different threads write lies on different lines, so it is padded.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
class Core {
public:
    Core(Memory memory, PoolOptions options);
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;
    ~Core();

    /// Makes a pool; the last copy of the handle retires it.
    static std::shared_ptr<detail::CoreFront> make(Memory memory, PoolOptions options);

    Block* take(Lane& lane, std::size_t bytes, std::size_t type, bool may_fail);
    void give(Block& block, std::uint32_t generation) noexcept;
    /// Makes a lent block larger, its first bytes kept. Returns it, or the one whose loan goes on in
    /// its place; null if it is a whole block that cannot grow. Throws OutOfMemory.
    Block* grow(Block& block, std::size_t bytes);
    void count_grow() noexcept;
    void note_peak(Lane& lane) noexcept;
    /// Throws InvalidArgument unless this block is on loan from this pool in this generation.
    void check_lent(const Block& block, std::uint32_t generation) const;
    /// Zeroes a block just lent, unless its bytes are fresh. In its lane's order.
    void zero(Block& block, std::size_t bytes);
    /// Keeps the order in which a lent block is used, for one that is to take its place: the lane of the
    /// block, or the pool's own, made to wait for it, if nobody vouches for its stream any more. Throws
    /// DeviceError. End it with let_go().
    Lane& keep_order(const Block& block);
    void let_go(const Block& block) noexcept;
    /// Copies between two blocks just lent, in the order of the first's lane.
    void copy(Block& to, const Block& from, std::size_t bytes);

    /// Returns the lane of a stream; the last copy closes it. Throws Unavailable if the memory knows no
    /// streams, InvalidArgument, DeviceError.
    /// `fleeting`: the stream may be destroyed before the lane is closed.
    std::shared_ptr<detail::CoreFront> on(void* stream,
                                          const std::shared_ptr<detail::CoreFront>& handle,
                                          bool fleeting = false);
    /// Throws InvalidArgument if the memory knows no streams, or this one is another device's.
    [[nodiscard]] static StreamInfo look_at(const Buffer& buffer, void* stream);
    /// Says that work on a stream uses a buffer too.
    static void mark_used(Buffer& buffer, const StreamInfo& stream);
    /// Has a stream wait for the one in whose order a buffer was lent. Throws DeviceError.
    static void follow(const Buffer& buffer, const StreamInfo& stream);
    /// Returns whether a buffer was lent in the order of this stream.
    [[nodiscard]] static bool lent_on(const Buffer& buffer, const void* stream) noexcept;
    [[nodiscard]] bool retired() noexcept {
        const Lock lock(lock_);
        return retired_;
    }

    void adopt(void* data, std::size_t bytes, std::function<void(void*)> deleter);
    std::size_t trim(std::size_t keep_idle_bytes);
    /// Gives idle bytes back until `bytes` are gone or nothing is left. Returns how many went.
    std::size_t give_up(std::size_t bytes);
    void set_limits(const Limits& given);
    void on_out_of_memory(std::function<void(std::size_t)> callback);

    [[nodiscard]] PoolStats stats();
    [[nodiscard]] Explanation explain();
    [[nodiscard]] PoolOptions options() const;
    [[nodiscard]] const Memory& memory() const noexcept { return memory_; }
    [[nodiscard]] const std::string& name() const noexcept { return options_.name; }
    /// Returns about how many bytes are idle.
    [[nodiscard]] std::uint64_t idle_bytes() noexcept;
    /// Returns "pool 'x' holds ...".
    [[nodiscard]] std::string describe();
    /// Checks the invariants of the arena; for tests. Returns what is wrong, or nothing.
    [[nodiscard]] const char* check();

    Links<Core> in_registry, in_waiting;

private:
    friend class Registry;
    friend class Seizure;
    enum class Shortage { none, limit, pressure, memory };
    struct Attempt {
        Block* block = nullptr;
        Shortage shortage = Shortage::none;
        std::size_t missing = 0;  // of new bytes
        /// Whether so many idle bytes would not relieve a memory.
        [[nodiscard]] bool is_beyond(std::uint64_t idle) const noexcept {
            return shortage == Shortage::pressure && idle < missing;
        }
    };
    /// How many new bytes may be asked for.
    struct Room {
        std::size_t of_limit;
        std::ptrdiff_t of_memory;
        [[nodiscard]] std::size_t bytes() const noexcept {
            return of_memory < 0 ? 0 : std::min(of_limit, static_cast<std::size_t>(of_memory));
        }
        [[nodiscard]] Attempt lacks(const Arena::Taken& taken) const noexcept;
    };
    using Lock = std::unique_lock<ShortLock>;
    using Wholes = List<Block, &Block::in_bin>;
    using Lanes = List<Lane, &Lane::in_pool>;
    using Search = Arena::Search;
    using Magazines = List<ThreadMagazine, &ThreadMagazine::in_pool>;
    using Bucket = List<ThreadMagazine, &ThreadMagazine::in_bucket>;

    class Arrival;
    /// Segments on their way to where a lane grows. They are idle again unless they arrive.
    class Apart {
    public:
        Apart(Core& core, Lane& lane) noexcept : core_(core), lane_(lane) {}
        Apart(const Apart&) = delete;
        Apart& operator=(const Apart&) = delete;
        ~Apart();

        [[nodiscard]] Arena::Leaving& blocks() noexcept { return blocks_; }
        [[nodiscard]] bool empty() const noexcept { return blocks_.empty(); }
        [[nodiscard]] std::size_t bytes() const noexcept;
        [[nodiscard]] std::vector<MappedSource::Part> parts() const;
        [[nodiscard]] std::size_t segments() const noexcept;
        void follow(Lock& lock);
        std::size_t arrived() noexcept;

    private:
        void put_back(Block& block) noexcept;

        Core& core_;
        Lane& lane_;
        Arena::Leaving blocks_;
        bool counted_ = false;  // among those that may bring idle bytes
    };

    // ladder.cpp: what to do when bytes are short
    template <class Try>
    Block* climb(std::size_t bytes, bool may_fail, Try&& attempt_once);
    [[nodiscard]] Room room() const noexcept;
    [[nodiscard]] bool may_press(std::size_t bytes) const noexcept;
    bool relieve(std::size_t missing);
    bool call_back(std::size_t bytes);
    [[noreturn]] void throw_out_of_memory(std::size_t bytes, Shortage shortage);

    // core.cpp, release.cpp: acquire and release
    Attempt try_grow(Block& block, std::size_t size);
    Attempt try_take(Lane& lane, std::size_t size, std::size_t bytes, std::size_t type, Lock& lock);
    Attempt take_beyond(Lane& lane, ThreadMagazine* magazine, std::size_t size, std::size_t type,
                        Lock& lock);
    Block* take_kept(Lane& lane, std::size_t size, std::size_t type, Search search) noexcept;
    Attempt take_new(Lane& lane, std::size_t size, std::size_t type, Lock& lock);
    Arena::Taken fetch(Lane& lane, std::size_t size, std::size_t room, Lock& lock);
    void earn_moves() noexcept;
    Arena::Moving moving(std::size_t size) noexcept;
    void pay_for_moves(std::size_t size) noexcept;
    Block* take_outside(std::size_t size);
    Arena::Taken take_whole(Lane& lane, std::size_t size, std::size_t room, Lock& lock);
    void note_held() noexcept { held_peak_ = std::max(held_peak_, held_ - arriving_); }
    void lend(Block& block, std::size_t bytes) noexcept;
    [[nodiscard]] std::size_t block_bytes(std::size_t bytes) const;
    [[nodiscard]] std::size_t carved(std::size_t size) const noexcept;
    [[nodiscard]] std::size_t class_for(std::size_t bytes) const noexcept {
        return detail::class_of_last((bytes - 1) | main_.grain_mask);
    }
    void to_central(Block& block, std::uint64_t when) noexcept;
    void to_memory(Block& block) noexcept;
    void now_out(Lane& lane, Block& block) noexcept;
    void drop_from_shelf(Block& block) noexcept;
    void finish(Lock& lock) noexcept;
    static void retire(detail::CoreFront* front) noexcept;
    /// Ends what kept the pool while no lock did.
    void come_back() noexcept;
    void remove() noexcept;
    /// Returns call(), made while the lock is free.
    template <class Call>
    auto unlocked(Lock& lock, Call&& call) {
        struct Away {
            Core& core;
            Lock& lock;
            Away(Core& of, Lock& held) : core(of), lock(held) {
                ++core.away_;
                lock.unlock();
            }
            Away(const Away&) = delete;
            Away& operator=(const Away&) = delete;
            ~Away() {
                lock.lock();
                --core.away_;
            }
        };
        const Away away(*this, lock);
        return call();
    }

    // streams.cpp: lanes
    [[nodiscard]] const StreamOrder& order_of_streams() const;
    [[nodiscard]] Lane& settled() noexcept { return settled_ ? *settled_ : main_; }
    void close(Lane& lane) noexcept;
    void shut(Lane& lane, bool lost, Lock& lock) noexcept;
    void keep_for_graph(Lane& lane, const std::shared_ptr<detail::CoreFront>& handle);
    void graph_gone(Lane& lane) noexcept;
    Block* take_set_aside(Lane& lane, std::size_t size, std::size_t type) noexcept;
    void reap(Lock& lock) noexcept;
    bool record_all(void* event) const noexcept;
    bool mark(Lane& lane, Lock& lock) noexcept;
    bool record(void* event, const StreamInfo& stream, bool callable) const noexcept;
    [[nodiscard]] bool can_go(const Lane& lane) const noexcept;
    void remove_lane(Lane& lane, Lock& lock) noexcept;
    Lane* find_lane(const StreamInfo& stream) const noexcept;
    bool is_unused() noexcept;
    static void let_waiting_go() noexcept;
    static std::mutex& lock_of_waiting() noexcept;
    static void renew_waiting() noexcept;

    // crossings.cpp: from one lane to another
    bool join(Lane& from, Lane& to, Lock& lock);
    bool bring(Lane& to, Block& block, Lock& lock);
    static void pass(Block& block, Lane& to) noexcept;
    void put_back(Block& block) noexcept;
    static void note_wanted(Lane& lane) noexcept;
    static void forget_wants(Lane& lane) noexcept;
    [[nodiscard]] bool may_cross(std::size_t size) noexcept;
    Block* take_from_others(Lane& lane, std::size_t size, Lock& lock);
    Block* take_side_by_side(Lane& lane, std::size_t size, Lock& lock);
    bool gather(Lane& lane, Lock& lock);
    bool wait_on_host(Lane& lane, Lock& lock) noexcept;

    // mapped.cpp: to and from a driver
    Arena::Taken move_and_map(Lane& lane, std::size_t size, Lock& lock);
    void mark_old_places(Lane& lane, Lock& lock) noexcept;
    void clear_old_places(std::uint64_t bytes, Lock& lock) noexcept;
    void leave_old_places() noexcept;
    void leave_old_place(Block& block) noexcept;
    void settle_old_places(const Lane& lane, std::uint64_t order) noexcept;
    Arena::Taken map_more(Lane& lane, std::size_t size, std::size_t room, std::size_t slack,
                          Apart& apart, Lock& lock);
    Arena::Taken add_segment(Lane& lane, std::size_t size, std::size_t room, std::size_t slack,
                             Lock& lock);
    Arena::Taken map_more(Lane& lane, std::size_t size, std::size_t room, std::size_t slack,
                          Lock& lock) {
        Apart none(*this, lane);
        return map_more(lane, size, room, slack, none, lock);
    }
    [[nodiscard]] std::uint64_t room_for_leftovers() const noexcept;
    /// Whose holes a lane's growth extends, and whose its leftovers are.
    [[nodiscard]] Lane& leftovers_of(Lane& lane) noexcept { return lane.parks ? settled() : lane; }
    void see_off(Lock& lock) noexcept;
    /// What was let go and is still there: a capture keeps it from the driver.
    [[nodiscard]] std::uint64_t held_back() const noexcept {
        const std::int64_t lingering = held_back_places_ != 0 ? lingering_ : 0;
        return held_back_bytes_ + static_cast<std::uint64_t>(std::max<std::int64_t>(0, lingering));
    }
    [[nodiscard]] bool has_leavers() const noexcept {
        return !farewells_.empty() || !held_back_.empty() || (arena_ && !arena_->leaving().empty());
    }

    // uses.cpp: blocks that other streams use too
    void release_in_order(Block& block, Lock& lock) noexcept;
    bool wait_for_uses(Block& block) const noexcept;
    bool mark_late(Uses& uses) const noexcept;
    bool wipe_late(Block& block) const noexcept;
    void park(Block& block) noexcept;
    bool unpark(bool wait, Lock& lock) noexcept;
    bool unpark_for(Lane& lane, std::uint64_t bytes, Lock& lock);
    void unpark_before_growing(Lane& lane, std::uint64_t bytes, Lock& lock);

    // limits.cpp: what may stay
    template <class Excess>
    std::size_t give_back(Excess excess_of);
    std::size_t evict(std::size_t bytes, std::uint64_t Evictions::*reason) noexcept;
    std::size_t evict_one(std::size_t bytes, std::uint64_t Evictions::*reason) noexcept;
    template <class Best, class Better>
    Block* extreme_hole(Best best_of, Better better) const noexcept;
    void enforce() noexcept;
    void age_out(bool reading) noexcept;
    [[nodiscard]] std::uint64_t central_idle() const noexcept;
    /// Whether a new block of `size` bytes keeps the limit if all that is idle goes.
    [[nodiscard]] bool may_fit(std::size_t size) const noexcept {
        return held_ - central_idle() + held_back() + size <= options_.max_bytes;
    }
    [[nodiscard]] std::uint64_t central_idle_buffers() const noexcept;
    [[nodiscard]] bool use_magazines() const noexcept;

    // magazines.cpp: threads
    ThreadMagazine* mine(Lane& lane) noexcept;
    Bucket& bucket_of(const detail::ThreadFront& owner, const Lane& lane) noexcept;
    Block* take_from(ThreadMagazine& magazine, std::size_t bytes) noexcept;
    bool put_in(ThreadMagazine& magazine, Block& block) noexcept;
    bool allow(ThreadMagazine& magazine, std::size_t block_bytes) noexcept;
    void allow_again(ThreadMagazine* magazine, std::uint64_t bytes) noexcept;
    [[nodiscard]] std::uint64_t room_for_magazines() const noexcept;
    detail::Load flush_rack(detail::Rack& rack, std::uint64_t now) noexcept;
    bool fetch_batch(ThreadMagazine& magazine, std::size_t bytes) noexcept;
    void pass_on(ThreadMagazine& magazine, std::size_t index, std::size_t block_bytes) noexcept;
    void rob(ThreadMagazine& magazine) noexcept;
    void rack_to_depot(ThreadMagazine& magazine, std::size_t index) noexcept;
    void flush(ThreadMagazine& magazine, std::size_t from_class = 0) noexcept;
    void flush_depot() noexcept;
    void flush_all() noexcept;
    void flush_before_large(ThreadMagazine& own) noexcept;
    bool join_near(ThreadMagazine* own, std::size_t bytes) noexcept;
    bool join_far(ThreadMagazine* own, std::size_t bytes) noexcept;
    bool grows_apart(std::size_t bytes) noexcept;
    [[nodiscard]] std::uint64_t room_apart(std::uint64_t takers) const noexcept;
    /// Whether the memory had no more: then what is idle is joined, whatever that costs.
    [[nodiscard]] bool joins_all() const noexcept { return grown_apart_ >= no_limit / 2; }
    void drop_magazine(ThreadMagazine& magazine) noexcept;
    void into_hand(ThreadMagazine& magazine, Block& block) noexcept;
    void empty_hand(ThreadMagazine& magazine) noexcept;
    void out_of_any_hand(const Block& block) noexcept;
    [[nodiscard]] bool fast() const noexcept;

    // stats.cpp: accounts
    void count(ThreadMagazine& magazine) noexcept;
    [[nodiscard]] Totals totals() noexcept;
    Totals count_all() noexcept;
    Totals count_some(ThreadMagazine* own) noexcept;
    [[nodiscard]] std::uint64_t acquires_so_far() noexcept;
    [[nodiscard]] bool is_beyond_peaks(const Totals& now) const noexcept;
    void raise_peaks(const Totals& now) noexcept;
    Totals note_all_peaks() noexcept;
    void note_peaks(ThreadMagazine* magazine) noexcept;

    const std::uint64_t serial_;
    const Memory memory_;
    alignas(lines_apart) mutable ShortLock lock_;
    // What every visit changes lies side by side: it has to come from the core that was here last.
    alignas(lines_apart) Share counted_;  // of all magazines
    std::uint64_t visits_ = 0;            // since all were counted at once
    std::uint64_t held_ = 0, allowances_ = 0, order_ = 0;
    std::uint64_t blocks_out_ = 0;  // lent, in magazines and in the depot
    std::uint64_t asked_ = 0;       // bytes asked for by loans, beyond the magazines'; modulo 2^64
    std::uint64_t hits_ = 0, hits_seen_ = 0;
    bool pressed_ = false;  // the memory's own bytes come after idle ones
    BlockStore store_;

    alignas(lines_apart) bool retired_ = false;
    bool deleted_ = false;
    PoolOptions options_;
    const bool splits_;                 // Elastic on a memory with ranges
    const bool marks_;                  // a tool watches this memory
    StreamOrder* const streams_;        // null where streams mean nothing
    const std::size_t usual_max_idle_;  // of a pool whose user has not said; 0: the environment has
    Lane main_{*this};                  // what the pool itself lends by
    std::unique_ptr<Lane>
        settled_;  // bytes that no stream uses any more, where main_ is a stream's
    Lanes lanes_;  // all of them
    std::optional<Arena> arena_;
    Shelf shelf_;
    Magazines magazines_;               // if they are many, the next to be counted first
    std::array<Bucket, 64> buckets_{};  // the same by owner and lane
    std::uint64_t threads_ = 0;
    std::size_t classes_used_ = 0;  // racks from here on are empty everywhere
    std::uint64_t depot_bytes_ = 0, depot_blocks_ = 0;
    Batches parked_;  // released, and some stream may still use them; oldest first
    std::uint64_t parked_bytes_ = 0, parked_blocks_ = 0;
    std::vector<std::function<void(std::size_t)>> callbacks_;
    Wholes outside_;                         // whole blocks that are not part of the arena
    List<Block, &Block::in_bin> farewells_;  // to be deleted or deallocated once the lock is free
    Wholes held_back_;                       // the same, once a capture is over
    std::uint64_t held_back_bytes_ = 0, held_back_places_ = 0;  // old places have no bytes
    // Bytes that have old places only. Below zero where another thread has yet to count those that it unmapped.
    std::int64_t lingering_ = 0;
    Wholes old_places_;  // of segments that have moved, until nobody uses them there
    std::uint64_t old_place_bytes_ = 0;
    bool waits_ = false;              // retired, and for that capture to end
    std::uint32_t lane_handles_ = 0;  // users of lanes that will close them
    std::uint32_t away_ = 0;          // threads that will come back to take the lock
    std::uint32_t returning_ = 0;     // of which some bring idle bytes, without calling users
    bool forking_ = false;            // every owner stays outside its magazine

    std::uint64_t held_peak_ = 0;
    std::uint64_t arriving_ = 0;  // of what is held, asked of the memory and not there yet
    std::uint64_t misses_ = 0, grows_ = 0, failures_ = 0;
    std::uint64_t missed_bytes_ = 0;  // beyond the magazines'
    std::uint64_t releases_seen_ = 0;
    Evictions evictions_;
    std::uint64_t lent_peak_ = 0, lent_buffers_peak_ = 0, idle_peak_ = 0, idle_buffers_peak_ = 0,
                  waste_peak_ = 0;
    std::uint64_t pressed_at_ = no_limit / 2;  // held when there were not enough
    Credit moves_, joins_, joins_of_others_, crossings_;
    std::uint64_t moves_then_ = 0, grown_apart_ = 0, grown_in_turn_ = 0;
    std::uint64_t last_pass_ = 0, next_flush_held_ = 0, last_flush_acquires_ = 0;
};

inline Core& core_of(detail::CoreFront& front) noexcept { return lane_of(front).core; }

/// All pools of the process: who shares a memory, how many a slot; survives fork and exit.
class Registry {
public:
    static Registry& instance() noexcept;

    void add(Core& core);
    void remove(Core& core) noexcept;
    /// Gives a lane one of the slots that the fewest have; and takes it back.
    void add_slot(Lane& lane) noexcept;
    void remove_slot(Lane& lane) noexcept;
    /// Gives back idle bytes of the other pools on this core's memory until `bytes` are gone. Returns how many.
    std::size_t trim_others(const Core& core, std::size_t bytes) noexcept;
    /// Returns about how many idle bytes those have.
    [[nodiscard]] std::uint64_t idle_of_others(const Core& core) const noexcept;
    /// Returns ", pool 'x' holds ..." for each other pool on the memory.
    std::string describe_others(const Core& core) const;
    /// Empties the magazines of a thread that ends.
    void forget_thread(detail::ThreadFront& front) noexcept;

private:
    Core* forget_in_one(detail::ThreadFront& front) noexcept;
    using Cores = List<Core, &Core::in_registry>;
    Registry() noexcept;
    static void before_fork() noexcept;
    static void after_fork_in_parent() noexcept;
    static void after_fork_in_child() noexcept;

    mutable std::recursive_mutex lock_;  // taken before any pool's
    Cores cores_;
    std::array<std::uint32_t, no_slot> lanes_in_slot_{};
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
