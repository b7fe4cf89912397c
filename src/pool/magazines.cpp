// Magazines: how blocks get into and out of them beyond the fast path, and how one thread takes another's.

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/size_class.hpp"
#include "memory/barrier.hpp"
#include "memory/clock.hpp"
#include "pool/core.hpp"

namespace cistern {

namespace {

using detail::BlockFront;
using detail::no_block;
using detail::Rack;
using detail::thread_front;

constexpr std::size_t fetched_ahead = 16;  // blocks on their way from another core
constexpr std::uint64_t least_allowance = 256 << 10;
constexpr std::uint64_t least_share_of_streams = 32 << 20;
constexpr std::uint64_t blocks_allowed = 64;         // of the size that ran over
constexpr std::uint64_t passes_to_grow = 64;         // by a block, or by as much as is kept
constexpr std::size_t always_flush_from = 64 << 10;  // growth worth emptying magazines for
constexpr std::uint64_t kept_by_each = 1 << 20;      // more is worth emptying magazines for
constexpr std::size_t largest_in_turn = 4 << 20;
constexpr std::uint64_t least_growth_between_flushes = 1 << 20;
constexpr std::uint64_t acquires_between_flushes = 64;
constexpr std::uint64_t acquires_between_small_flushes = 4096;  // for less than large_from
// What other threads of a stream keep is joined before a large block is lent: blocks of this size and more.
constexpr std::size_t others_join_from = 64 << 10;
constexpr std::uint64_t acquires_per_join_of_others = 64, most_credit_for_others = 4096;
constexpr std::uint64_t looks_per_acquire = 8;
// A thread that asks for a few small sizes in turn, and would join what it keeps each time, gets some bytes
// for each of them instead.
constexpr std::uint64_t acquires_per_join = 64, acquires_per_join_of_streams = 1024;
constexpr std::uint64_t most_join_credit = 16 * acquires_per_join_of_streams;
constexpr std::uint64_t least_apart = 512 << 10, least_apart_of_streams = 8 << 20;
constexpr std::uint64_t apart_of_each = 4 << 20;  // of a stream
constexpr std::uint64_t share_apart = 64;

thread_local bool thread_is_known = false;  // its end will be noticed
thread_local bool thread_has_ended = false;

/// Has the end of the calling thread noticed: its magazines are emptied after its own thread_locals
/// are gone. The main thread's never are; the process ends with it.
bool notice_end_of_thread() noexcept {
    static const pthread_key_t key = [] {
        pthread_key_t made{};
        const auto at_end = [](void* front) {
            thread_has_ended = true;
            Registry::instance().forget_thread(*static_cast<detail::ThreadFront*>(front));
        };
        return pthread_key_create(&made, at_end) == 0 ? made : ~pthread_key_t{0};
    }();
    if (key == ~pthread_key_t{0} || thread_has_ended) return false;
    if (!thread_is_known) thread_is_known = pthread_setspecific(key, &thread_front) == 0;
    return thread_is_known;
}

void push(Rack& rack, Block& block) noexcept {
    block.below = rack;
    block.ahead = &block;
    rack = &block;
}

}  // namespace

Block* remove_fitting(Rack& rack, std::size_t last) noexcept {
    constexpr int looks = 4;
    Rack* link = &rack;
    for (int i = 0; i < looks && *link != &no_block; ++i, link = &(*link)->below) {
        if ((*link)->bytes <= last) continue;
        Block& block = block_of(**link);
        *link = block.below;
        return &block;
    }
    return nullptr;
}

ThreadMagazine::ThreadMagazine(detail::ThreadFront& front, Lane& of) noexcept
    : owner(&front), lane(&of) {
    home = &of;
    holes = &of;
    std::fill(std::begin(racks), std::end(racks), &no_block);
}

bool Core::use_magazines() const noexcept {
    return std::holds_alternative<Elastic>(options_.fit) && !options_.separate_types &&
           options_.max_idle_buffers == no_limit && !retired_;
}

/// Whether owners may use their magazines without the lock: nothing else must happen to a block on
/// its way in or out.
bool Core::fast() const noexcept {
    return use_magazines() && options_.max_idle_age == forever && !forking_ && !marks_ &&
           !options_.wipe_on_release && barrier_available();
}

/// Returns the calling thread's magazine of a lane, made if need be and opened for the fast path, and nothing
/// in the thread's hand; null if it cannot have one.
ThreadMagazine* Core::mine(Lane& lane) noexcept {
    if (lane.parks || lane.captured() || (lane.ordered() && !lane.open)) return nullptr;
    // If it is of another pool, that one might drop it, unless this thread is inside.
    detail::Magazine* const in_slot = detail::enter(lane.slot);
    const bool is_mine = in_slot->home == &lane;
    detail::leave();
    if (is_mine) {
        auto* const magazine = static_cast<ThreadMagazine*>(in_slot);
        empty_hand(*magazine);
        return magazine;
    }
    Bucket& bucket = bucket_of(thread_front, lane);
    ThreadMagazine* magazine = bucket.first();
    while (magazine != nullptr && (magazine->owner != &thread_front || magazine->lane != &lane)) {
        magazine = Bucket::after(*magazine);
    }
    if (magazine != nullptr) {
        empty_hand(*magazine);
    } else {
        if (!notice_end_of_thread()) return nullptr;
        magazine = new (std::nothrow) ThreadMagazine(thread_front, lane);
        if (magazine == nullptr) return nullptr;
        magazines_.push_back(*magazine);
        bucket.push_front(*magazine);
        ++threads_;
        ++lane.threads;
    }
    // Relaxed: the owner itself will read it.
    if (fast() && lane.slot != no_slot) {
        thread_front.slots[lane.slot].store(magazine, std::memory_order_relaxed);
    }
    return magazine;
}

Core::Bucket& Core::bucket_of(const detail::ThreadFront& owner, const Lane& lane) noexcept {
    constexpr std::uint64_t golden = 0x9E37'79B9'7F4A'7C15;
    static_assert(sizeof(std::uintptr_t) <= sizeof golden &&
                  std::tuple_size_v<decltype(buckets_)> == 64);
    const auto key =
        reinterpret_cast<std::uintptr_t>(&owner) + 64 * reinterpret_cast<std::uintptr_t>(&lane);
    return buckets_[key * golden >> 58];
}

// --- In and out -------------------------------------------------------------------------------------

Block* Core::take_from(ThreadMagazine& magazine, std::size_t bytes) noexcept {
    const std::size_t last = (bytes - 1) | main_.grain_mask;
    Block* const block = remove_fitting(magazine.racks[detail::class_of_last(last)], last);
    if (block == nullptr) return nullptr;
    magazine.hits.add(1);
    magazine.taken.add(block->load);
    return block;
}

/// Keeps a block that was just released in the thread's magazine, if its allowance can be made to
/// cover it.
bool Core::put_in(ThreadMagazine& magazine, Block& block) noexcept {
    const std::size_t index = class_for(block.asked);
    const auto over = [&] { return magazine.idle_bytes() + block.bytes > magazine.allowance; };
    if (over()) {
        pass_on(magazine, index, block.bytes);
        if (over() && !allow(magazine, block.bytes)) return false;
    }
    if (options_.max_idle_age != forever) block.released_at = coarse_now();
    push(magazine.racks[index], block);
    magazine.given.add(block.load);
    if (block.bytes > magazine.enough) pass_on(magazine, index, block.bytes);
    return true;
}

/// Leaves a rack to other threads if this one only releases. How much it keeps until then is halved each time another
/// thread has to take it, and grows slowly; blocks that are larger go one by one. Who is lent that much, and no less than
/// stays, keeps what it likes again.
void Core::pass_on(ThreadMagazine& magazine, std::size_t index, std::size_t block_bytes) noexcept {
    const auto [stayed, went] = magazine.flow();
    std::uint64_t& enough = magazine.enough;
    if (went >= stayed && went >= enough) enough = ThreadMagazine::unlimited;
    if (went >= stayed) return;
    const bool wanted = enough != ThreadMagazine::unlimited;
    const std::uint64_t more = std::max<std::uint64_t>(enough, block_bytes) / passes_to_grow;
    enough = std::min(enough + more, ThreadMagazine::unlimited);
    const std::uint64_t kept = magazine.idle_bytes();
    if (options_.max_idle_age == forever) rack_to_depot(magazine, index);
    // Where sizes vary, what is joined serves more requests. What ages has to be found.
    if (wanted && magazine.idle_bytes() > kept / 2) flush(magazine);
}

/// Another thread takes all that a magazine keeps.
void Core::rob(ThreadMagazine& magazine) noexcept {
    empty_hand(magazine);
    const auto [stayed, went] = magazine.flow();
    const std::uint64_t kept = magazine.idle_bytes();
    if (kept != 0) magazine.robbed = true;
    if (stayed > went) magazine.enough = std::max(least_allowance, kept / 2);
    flush(magazine);
}

/// Raises a magazine's allowance so that another `block_bytes` fit: generously if the limit on idle
/// bytes has room, else exactly.
bool Core::allow(ThreadMagazine& magazine, std::size_t block_bytes) noexcept {
    const std::uint64_t needed = magazine.idle_bytes() + block_bytes;
    // Where the memory is scarce and dear to ask, less is out of the others' reach; but what a lane has out again and
    // again may stay with a thread that has the lane to itself.
    const Lane& lane = *magazine.lane;
    const std::uint64_t of_lane = lane.threads == 1 ? lane.most_out : 0;
    const std::uint64_t share = streams_ != nullptr
                                    ? std::max({held_ / 16, least_share_of_streams, of_lane})
                                    : options_.max_idle_bytes / 4;
    const auto cap = std::min<std::uint64_t>(
        {std::max<std::uint64_t>(std::min<std::uint64_t>(share, options_.max_idle_bytes / 4),
                                 block_bytes),
         options_.max_buffer_bytes, detail::load_limit / 2});
    if (needed > cap) {
        flush(magazine);
        return block_bytes <= cap && allow(magazine, block_bytes);
    }
    const std::uint64_t most = magazine.allowance + room_for_magazines();
    if (needed > most) return false;
    const std::uint64_t generous = std::max(
        {2 * magazine.allowance, blocks_allowed * std::uint64_t{block_bytes}, least_allowance});
    const std::uint64_t wished =
        std::max(needed, std::min(generous, magazine.idle_bytes() + magazine.enough));
    const std::uint64_t granted =
        round_down(std::min({wished, std::max(cap, needed), most}), detail::load_grain);
    allowances_ += granted - magazine.allowance;
    magazine.allowance = granted;
    return true;
}

/// Gives a magazine back what it was allowed before it was flushed, if the limit still has room.
void Core::allow_again(ThreadMagazine* magazine, std::uint64_t bytes) noexcept {
    if (magazine == nullptr || bytes <= magazine->allowance) return;
    if (bytes - magazine->allowance > room_for_magazines()) return;
    allowances_ += bytes - magazine->allowance;
    magazine->allowance = bytes;
}

/// What the limit on idle bytes leaves for magazines to keep.
std::uint64_t Core::room_for_magazines() const noexcept {
    const std::uint64_t kept = central_idle() + allowances_;
    return options_.max_idle_bytes - std::min<std::uint64_t>(options_.max_idle_bytes, kept);
}

/// Passes a rack on to other threads, as one batch. Its bytes leave the magazine's allowance.
void Core::rack_to_depot(ThreadMagazine& magazine, std::size_t index) noexcept {
    Rack& rack = magazine.racks[index];
    if (rack == &no_block) return;
    Block& first = block_of(*std::exchange(rack, &no_block));
    detail::Load moved = 0;
    BlockFront* ahead = &first;
    for (std::size_t i = 0; i < fetched_ahead; ++i) ahead = ahead->below;
    for (BlockFront* block = &first; block != &no_block; block = block->below) {
        moved += block->load;
        block->ahead = ahead;
        ahead = ahead->below;
        first.batch_last = block;
    }
    first.batch_load = moved;
    magazine.lane->depot[index].push_front(first);
    depot_blocks_ += detail::blocks_of(moved);
    depot_bytes_ += detail::bytes_of(moved);
    magazine.given.subtract(moved);
    magazine.forget_idle();
    magazine.allowance -= detail::bytes_of(moved);
    allowances_ -= detail::bytes_of(moved);
}

/// Takes a batch that another thread passed on, if the first of its blocks serves a request. The
/// blocks are not touched: they are still in the other thread's cache.
bool Core::fetch_batch(ThreadMagazine& magazine, std::size_t bytes) noexcept {
    const std::size_t index = class_for(bytes);
    Batches& batches = magazine.lane->depot[index];
    Block* const first = batches.first();
    if (first == nullptr || first->bytes <= ((bytes - 1) | main_.grain_mask)) return false;
    batches.remove(*first);
    const detail::Load moved = first->batch_load;
    first->batch_last->below = std::exchange(magazine.racks[index], first);
    depot_blocks_ -= detail::blocks_of(moved);
    depot_bytes_ -= detail::bytes_of(moved);
    magazine.given.add(moved);
    magazine.idle_then += detail::bytes_of(moved);  // nothing that the owner released
    if (const std::uint64_t idle = magazine.idle_bytes(); idle > magazine.allowance) {
        allowances_ += idle - magazine.allowance;
        magazine.allowance = idle;
    }
    return true;
}

// --- The hand ---------------------------------------------------------------------------------------

/// Takes a block that was just put in a magazine into the thread's hand. From here on the accounts say that
/// it is lent, whether it is or not.
void Core::into_hand(ThreadMagazine& magazine, Block& block) noexcept {
    const std::size_t index = class_for(block.asked);
    Rack& rack = magazine.racks[index];
    if (!fast() || magazine.lane->slot == no_slot || rack != &block) return;
    rack = block.below;
    magazine.given.subtract(block.load);
    asked_ += block.asked;
    magazine.hand = &block;
    magazine.hand_rack = index * detail::rack_bytes;
    magazine.hand_since = block.generation;
    magazine.hand_bytes.set(block.asked);
}

/// Makes the block in a thread's hand an ordinary one, idle or lent. The owner is this thread or kept out.
void Core::empty_hand(ThreadMagazine& magazine) noexcept {
    if (magazine.hand == nullptr) return;
    const std::uint64_t hits = magazine.hits_of_hand();
    magazine.hits.add(hits);
    if (hits != 0) magazine.went += magazine.hand->bytes;  // however often: it is one block
    Block& block = block_of(*std::exchange(magazine.hand, nullptr));
    magazine.above = detail::load_signs - 1;  // until note_peaks() says more
    if (!magazine.holds()) return;            // it is lent
    magazine.hand_bytes.set(0);
    push(magazine.rack_at(magazine.hand_rack), block);
    magazine.given.add(block.load);
    asked_ -= block.asked;
    count(magazine);
}

/// The same for a block that was lent from a hand, whichever thread's it is.
void Core::out_of_any_hand(const Block& block) noexcept {
    Bucket& bucket = bucket_of(thread_front, lane_of(block));  // most likely this thread's
    for (ThreadMagazine* m = bucket.first(); m != nullptr; m = Bucket::after(*m)) {
        if (m->hand == &block && m->owner == &thread_front) return empty_hand(*m);
    }
    for (ThreadMagazine* m = magazines_.first(); m != nullptr; m = Magazines::after(*m)) {
        // Under the lock nobody puts a block into a hand, or takes it out.
        if (m->hand != &block) continue;
        const Seizure seizure(*this);
        empty_hand(*m);
        note_peaks(m);  // so that its owner's next release need not come by
        return;
    }
}

// --- Flushing ---------------------------------------------------------------------------------------

/// Makes the blocks of a list idle in the arena or on the shelf. Returns their load.
detail::Load Core::flush_rack(Rack& rack, std::uint64_t now) noexcept {
    // In the order of their releases: the last one is to be the youngest.
    Rack list = &no_block;
    while (rack != &no_block) {
        BlockFront* const block = std::exchange(rack, rack->below);
        block->below = std::exchange(list, block);
    }
    detail::Load flushed = 0;
    while (list != &no_block) {
        Block& block = block_of(*list);
        list = list->below;
        flushed += block.load;
        to_central(block, options_.max_idle_age == forever ? now : block.released_at);
    }
    return flushed;
}

/// Empties a magazine, from a class upwards, whose owner is this thread or kept out.
void Core::flush(ThreadMagazine& magazine, std::size_t from_class) noexcept {
    empty_hand(magazine);
    if (magazine.blocks() != 0) {
        const std::uint64_t now = coarse_now();
        detail::Load flushed = 0;
        for (std::size_t index = from_class; index < classes_used_; ++index) {
            Rack& rack = magazine.racks[index];
            if (rack != &no_block) flushed += flush_rack(rack, now);
        }
        magazine.given.subtract(flushed);
    }
    const std::uint64_t kept = from_class == 0 ? 0 : magazine.idle_bytes();
    allowances_ -= magazine.allowance - kept;
    magazine.allowance = magazine.left = kept;
    magazine.forget_idle();
    magazine.above = detail::load_signs - 1;  // its owner's next release comes by
    count(magazine);
}

void Core::flush_depot() noexcept {
    if (depot_blocks_ == 0) return;
    const std::uint64_t now = coarse_now();
    for (Lane* lane = lanes_.first(); lane != nullptr; lane = Lanes::after(*lane)) {
        for (Batches& batches : lane->depot) {
            while (Block* const first = batches.first()) {
                batches.remove(*first);
                BlockFront* list = first;
                flush_rack(list, now);
            }
        }
    }
    depot_blocks_ = 0;
    depot_bytes_ = 0;
}

void Core::flush_all() noexcept {
    if (threads_ != 0) {
        const Seizure seizure(*this);
        for (ThreadMagazine* m = magazines_.first(); m != nullptr; m = Magazines::after(*m)) {
            m->owner != &thread_front ? rob(*m) : flush(*m);
        }
    }
    flush_depot();
}

/// Before a large block is lent: those that this thread keeps become idle, since joined they may serve better. Where
/// a driver maps what is missing so do, now and then, those that other threads keep of the lane: else what one thread
/// keeps for long is carved out of holes that were better left whole for the other.
void Core::flush_before_large(ThreadMagazine& own) noexcept {
    flush(own, class_for(large_from));
    const Lane& lane = *own.lane;
    if (streams_ == nullptr || lane.threads == 1) return;
    const std::uint64_t looks = threads_ / looks_per_acquire;
    joins_of_others_.earn(acquires_so_far(), most_credit_for_others);
    if (!joins_of_others_.covers(looks + acquires_per_join_of_others)) return;
    joins_of_others_.pay(looks);
    const auto keeps_large = [&](ThreadMagazine& m) {
        if (&m == &own || m.lane != &lane) return false;
        count(m);
        return m.counted.idle_bytes >= m.left + large_from;
    };
    ThreadMagazine* m = magazines_.first();
    while (m != nullptr && !keeps_large(*m)) m = Magazines::after(*m);
    if (m == nullptr) return;
    const Seizure seizure(*this);
    for (; m != nullptr; m = Magazines::after(*m)) {
        if (keeps_large(*m)) flush(*m, class_for(others_join_from));
    }
    joins_of_others_.pay(acquires_per_join_of_others);
}

/// How many bytes a pool may have so that its threads, or streams, need not take them from each other all the time.
std::uint64_t Core::room_apart(std::uint64_t takers) const noexcept {
    const std::uint64_t least = streams_ == nullptr
                                    ? least_apart
                                    : std::max(least_apart_of_streams, takers * apart_of_each);
    return std::max(least, held_ / share_apart);
}

/// Whether the pool is to grow by a few bytes rather than join what its threads keep, and will want again;
/// else a join is paid for. It is where joins were too many of late and the pool may still grow.
bool Core::grows_apart(std::size_t bytes) noexcept {
    if (bytes >= large_from) return false;
    const std::uint64_t price =
        streams_ != nullptr ? acquires_per_join_of_streams : acquires_per_join;
    joins_.earn(acquires_so_far(), most_join_credit);
    if (joins_.covers(price)) {
        joins_.pay(price);
        return false;
    }
    return grown_apart_ + bytes <= room_apart(threads_) && held_ + bytes <= options_.max_bytes;
}

/// Before the memory is asked for more, idle bytes that magazines keep come back where they can be joined. First this
/// thread's and the depot's, since each was paid for by a release. Returns true if none do, because the pool grows
/// apart.
bool Core::join_near(ThreadMagazine* own, std::size_t bytes) noexcept {
    const std::uint64_t near = depot_bytes_ + (own != nullptr ? own->idle_bytes() : 0);
    if (near < bytes && (near == 0 || bytes < always_flush_from)) return false;
    if (grows_apart(bytes)) return true;
    if (own != nullptr) flush(*own);
    flush_depot();
    return false;
}

/// Then other threads', if there are enough of them to be worth it: what they keep stays within a share of the pool.
/// Returns true if it took some.
bool Core::join_far(ThreadMagazine* own, std::size_t bytes) noexcept {
    const Totals now = threads_ <= few_magazines ? count_all() : count_some(own);
    const std::uint64_t kept = own != nullptr ? own->counted.idle_bytes : 0;
    const std::uint64_t far = now.magazine_bytes - std::min(kept, now.magazine_bytes);
    if (streams_ == nullptr) {
        const std::uint64_t for_all =
            std::min(threads_ * kept_by_each, std::max(held_ / 4, 2 * kept_by_each));
        if (far < std::max({std::uint64_t{bytes}, for_all, held_ / 64})) return false;
        // Threads that take what they need from each other in turn are better off if the pool grows: to twice the size,
        // and not for blocks that take so long to use that taking them costs nothing beside.
        const bool in_turn =
            own != nullptr && std::exchange(own->robbed, false) && bytes <= largest_in_turn;
        if (in_turn && 2 * (grown_in_turn_ + bytes) <= held_ + bytes) {
            grown_in_turn_ += bytes;
            return false;
        }
        flush_all();
        return true;
    }
    // A driver takes so long that fewer are worth it, and even if the pool has not grown much: but not
    // every time, or threads would never keep what they need.
    if (far == 0) return false;
    const std::uint64_t acquires = now.hits + now.misses;
    const bool paid =
        acquires - last_flush_acquires_ >=
        (bytes < large_from ? acquires_between_small_flushes : acquires_between_flushes);
    if (held_ + bytes < next_flush_held_ && !paid) return false;
    flush_all();
    last_flush_acquires_ = acquires;
    next_flush_held_ = held_ + std::max(least_growth_between_flushes, held_ / 64);
    return true;
}

void Core::drop_magazine(ThreadMagazine& magazine) noexcept {
    flush(magazine);
    hits_ += magazine.counted.hits;
    asked_ += magazine.counted.asked;
    counted_.subtract(magazine.counted);
    magazines_.remove(magazine);
    bucket_of(*magazine.owner, *magazine.lane).remove(magazine);
    --threads_;
    --magazine.lane->threads;
    delete &magazine;
}

// --- Taking another thread's magazine ---------------------------------------------------------------

Seizure::Seizure(Core& core) noexcept : core_(core) {
    bool others = false;
    for (ThreadMagazine* m = core.magazines_.first(); m != nullptr;
         m = Core::Magazines::after(*m)) {
        // Relaxed: the barrier below orders it against the owner's `busy`. What is another pool's may stay:
        // nobody without this pool's lock puts this one back.
        detail::Magazine* found = m;
        m->owner->slots[m->lane->slot].compare_exchange_strong(found, &detail::no_magazine,
                                                               std::memory_order_relaxed);
        others |= m->owner != &thread_front;
    }
    if (!others || !barrier_available()) return;
    impose_barrier();
    for (ThreadMagazine* m = core.magazines_.first(); m != nullptr;
         m = Core::Magazines::after(*m)) {
        if (m->owner == &thread_front) continue;
        // Acquire: pairs with leave(); what the owner did before is seen from here on.
        while (m->owner->busy.load(std::memory_order_acquire) != 0) sched_yield();
    }
}

Seizure::~Seizure() {
    if (!core_.fast()) return;
    for (ThreadMagazine* m = core_.magazines_.first(); m != nullptr;
         m = Core::Magazines::after(*m)) {
        // Release: pairs with enter(); the owner sees what was done to its magazine. Not where another
        // pool's is by now.
        if (m->lane->slot == no_slot) continue;
        detail::Magazine* found = &detail::no_magazine;
        m->owner->slots[m->lane->slot].compare_exchange_strong(found, m, std::memory_order_release,
                                                               std::memory_order_relaxed);
    }
}

}  // namespace cistern
