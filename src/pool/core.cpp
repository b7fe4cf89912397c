// Acquire and release beyond the fast path.

#include "pool/core.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "base/bytes.hpp"
#include "base/size_class.hpp"
#include "memory/clock.hpp"
#include "memory/limits.hpp"
#include "memory/watch.hpp"
#include "pool/options.hpp"

namespace cistern {

namespace {

// Moving pages beats new ones, but not if every request does it: then a little more memory is cheaper.
// A large block is worth a move more often than a small one, whose new pages cost about the same.
constexpr std::uint64_t acquires_per_large_move = 4, acquires_per_small_move = 64;
constexpr std::size_t large_move_from = 2 << 20;
constexpr std::uint64_t most_credit = 64 * acquires_per_small_move;
// Small pages are worth moving under a block that is not much larger, once this share of what is held
// lies idle.
constexpr std::uint64_t idle_share_to_save = 32;
constexpr std::size_t largest_to_save = 4 << 20;

// Arrays that begin at the same place in a page want the same few lines of every cache. So large blocks are
// carved a few lines longer, and the next one begins there; not where a limit counts bytes or users want
// more alignment.
constexpr std::size_t shift_of_next = 5 * smallest_grain;
constexpr std::size_t shifts_from = 1 << 20;

constexpr std::size_t device_grain = 256;

std::uint64_t next_serial() noexcept {
    static std::atomic<std::uint64_t> serial{0};
    return serial.fetch_add(1, std::memory_order_relaxed) + 1;  // only the number is shared
}

bool is_elastic(const Fit& fit) noexcept { return std::holds_alternative<Elastic>(fit); }

}  // namespace

Core::Core(Memory memory, PoolOptions options)
    : serial_(next_serial()),
      memory_(std::move(memory)),
      store_(*this),
      options_(std::move(options)),
      splits_(is_elastic(options_.fit) && !options_.separate_types &&
              dynamic_cast<SparseSource*>(memory_.source().get()) != nullptr),
      marks_(memory_is_watched() && memory_.host_accessible()),
      streams_(dynamic_cast<StreamOrder*>(memory_.source().get())),
      usual_max_idle_(max_idle_bytes_of_environment() ? 0 : default_max_idle_bytes()),
      shelf_(options_.fit) {
    check_options(options_);
    if (streams_ != nullptr && options_.max_idle_bytes == default_max_idle_bytes()) {
        const std::size_t usual = streams_->usual_max_idle_bytes();
        if (usual != 0) options_.max_idle_bytes = std::min(usual, options_.max_bytes);
    }
    if (options_.name.empty()) options_.name = "pool " + std::to_string(serial_);
    // Kernels load fastest, and libraries choose their kernels, by what cudaMalloc promises.
    const bool on_device = streams_ != nullptr && !streams_->host_uses();
    options_.alignment = std::max(options_.alignment, on_device ? device_grain : smallest_grain);
    main_.grain_mask = options_.alignment - 1;
    lanes_.push_back(main_);
    if (streams_ != nullptr && !streams_->host_uses()) {
        settled_ = std::make_unique<Lane>(*this);
        lanes_.push_back(*settled_);
        main_.stream = streams_->look_at(nullptr);
        main_.stream.capture = 0;
        main_.event = streams_->make_event();
        main_.open = true;
    }
    if (auto* const sparse = dynamic_cast<SparseSource*>(memory_.source().get())) {
        arena_.emplace(*sparse, store_, options_.alignment);
    }
    last_pass_ = coarse_now();
}

Core::~Core() {
    Lock lock(lock_);
    while (Block* const block = shelf_.oldest()) drop_from_shelf(*block);
    finish(lock);
    for (Lane* next = lanes_.first(); next != nullptr;) {
        Lane* const lane = next;
        next = Lanes::after(*lane);
        if (lane->ordered()) streams_->drop_event(lane->event);
        if (lane != &main_ && lane != settled_.get()) delete lane;
    }
}

std::shared_ptr<detail::CoreFront> Core::make(Memory memory, PoolOptions options) {
    if (dynamic_cast<StreamOrder*>(memory.source().get()) != nullptr) let_waiting_go();
    auto core = std::make_unique<Core>(std::move(memory), std::move(options));
    Registry::instance().add(*core);
    return {&core.release()->main_, &Core::retire};  // on bad_alloc, the deleter runs
}

/// The last handle is gone: what is idle goes at once, the rest as it is released.
void Core::retire(detail::CoreFront* front) noexcept {
    Core& core = core_of(*front);
    bool unused = false;
    {
        Lock lock(core.lock_);
        {
            const Seizure seizure(core);
            core.retired_ = true;
            while (ThreadMagazine* const magazine = core.magazines_.first()) {
                core.drop_magazine(*magazine);
            }
        }
        core.flush_depot();
        core.unpark(true, lock);
        core.evict(no_limit, nullptr);
        core.finish(lock);
        unused = core.is_unused();
    }
    if (unused) core.remove();
}

// --- Acquire ----------------------------------------------------------------------------------------

/// Returns the size of the block that serves a request; what cannot be counted stays as it is.
std::size_t Core::block_bytes(std::size_t bytes) const {
    if (const auto* const fixed = std::get_if<FixedBlock>(&options_.fit)) {
        if (bytes > fixed->bytes) {
            throw InvalidArgument("request is larger than a block of pool '" + options_.name +
                                  "': " + exact_text_of_bytes(bytes) + ", block " +
                                  exact_text_of_bytes(fixed->bytes));
        }
        return fixed->bytes;
    }
    const bool rounds = is_elastic(options_.fit) && bytes <= largest_request;
    if (!rounds) return bytes;
    // Scarce and mapped in segments: a large block has what it needs and no more.
    const bool exact = splits_ && streams_ != nullptr && bytes >= large_from;
    return exact ? round_up(bytes, options_.alignment) : block_bytes_for(bytes, options_.alignment);
}

/// Returns how many bytes to carve for a block of `size` bytes.
std::size_t Core::carved(std::size_t size) const noexcept {
    const bool counts = options_.max_bytes != no_limit || options_.max_buffer_bytes != no_limit ||
                        options_.max_idle_bytes != usual_max_idle_;
    const bool shifts = splits_ && streams_ == nullptr && memory_.host_accessible() && !counts &&
                        options_.alignment == smallest_grain && size >= shifts_from;
    return shifts ? size + shift_of_next : size;
}

Core::Attempt Core::try_take(Lane& lane, std::size_t size, std::size_t bytes, std::size_t type,
                             Lock& lock) {
    age_out(false);
    ThreadMagazine* const magazine = use_magazines() ? mine(lane) : nullptr;
    if (magazine != nullptr) {
        if (Block* const block = take_from(*magazine, bytes)) return {block};
        if (fetch_batch(*magazine, bytes)) return {take_from(*magazine, bytes)};
    }
    store_.reserve(4);
    const std::uint64_t allowed = magazine != nullptr ? magazine->allowance : 0;
    if (size >= large_from && magazine != nullptr) flush_before_large(*magazine);
    const Attempt attempt = take_beyond(lane, magazine, size, type, lock);
    if (attempt.block == nullptr) return attempt;
    if (size >= large_from) note_wanted(lane);
    if (magazine == nullptr || !use_magazines()) return attempt;
    ThreadMagazine* const still = mine(lane);  // the lock was free: is the magazine still there?
    if (still == nullptr) return attempt;
    still->went += attempt.block->bytes;
    // Else the release would have to ask for what was just flushed.
    if (size >= large_from && allowed >= attempt.block->bytes) allow_again(still, allowed);
    return attempt;
}

/// Takes what is in nobody's magazine: idle bytes, or new ones.
Core::Attempt Core::take_beyond(Lane& lane, ThreadMagazine* magazine, std::size_t size,
                                std::size_t type, Lock& lock) {
    Block* block = take_kept(lane, size, type, Search::quick);
    bool apart = false;
    if (block == nullptr) {
        apart = join_near(magazine, size);
        if (parked_blocks_ != 0) unpark_before_growing(lane, size, lock);
        store_.reserve(4);
        block = take_kept(lane, size, type, Search::thorough);
        // The lock was free: is the magazine still there?
        if (block == nullptr && !apart && join_far(use_magazines() ? mine(lane) : nullptr, size)) {
            store_.reserve(4);
            block = take_kept(lane, size, type, Search::thorough);
        }
    }
    if (block == nullptr && streams_ != nullptr) block = take_from_others(lane, size, lock);
    if (block == nullptr) {
        const std::uint64_t before = missed_bytes_;
        const Attempt attempt = take_new(lane, size, type, lock);
        if (apart) grown_apart_ += missed_bytes_ - before;
        return attempt;
    }
    if (&lane_of(*block) != &lane && !bring(lane, *block, lock)) {
        return take_new(lane, size, type, lock);
    }
    ++hits_;
    return {block};
}

/// Returns idle bytes that are in nobody's magazine, of this lane or of none; a whole block may be of
/// any.
Block* Core::take_kept(Lane& lane, std::size_t size, std::size_t type, Search search) noexcept {
    Block* block = lane.set_aside.empty() || splits_ ? nullptr : take_set_aside(lane, size, type);
    if (block == nullptr && shelf_.count() != 0) block = shelf_.take(size, type);
    if (block == nullptr && splits_) {
        const std::size_t bytes = carved(size);
        block = arena_->take_idle(lane, bytes, search);
        Lane& free = settled();
        if (block == nullptr && &free != &lane) block = arena_->take_idle(free, bytes, search);
        if (block != nullptr) block->holes = &lane;
    }
    if (block != nullptr) now_out(lane_of(*block), *block);
    return block;
}

/// Counts a block that leaves the arena, the shelf or the memory.
void Core::now_out(Lane& lane, Block& block) noexcept {
    block.load = detail::load_of(block.bytes, 1);
    classes_used_ = std::max(classes_used_, detail::class_of_last(block.bytes - 1) + 1);
    ++blocks_out_;
    lane.bytes_out += block.bytes;
}

/// Asks the memory, within the limit; makes room by giving up what is idle.
Core::Attempt Core::take_new(Lane& lane, std::size_t size, std::size_t type, Lock& lock) {
    const bool maps = splits_ && arena_->mapped() != nullptr;
    for (;;) {
        Arena::Taken taken{Arena::Outcome::no_place, nullptr, 0};
        if (maps) taken = move_and_map(lane, size, lock);
        const Room room = this->room();
        if (taken.outcome != Arena::Outcome::done) taken = fetch(lane, size, room.bytes(), lock);
        if (taken.outcome == Arena::Outcome::done) {
            pay_for_moves(size);
            ++(taken.new_bytes == 0 ? hits_ : misses_);
            missed_bytes_ += taken.new_bytes;
            now_out(lane, *taken.block);
            if (taken.block->zero) taken.block->zero_generation = taken.block->generation;
            return {taken.block};
        }
        const Attempt lacking = room.lacks(taken);
        const bool limited = lacking.shortage == Shortage::limit;
        if (lacking.shortage == Shortage::memory) grown_apart_ = no_limit / 2;  // join all first
        // What others keep, what they still use, and what is torn apart between lanes.
        bool more = allowances_ + depot_bytes_ != 0;
        if (more) flush_all();
        if (streams_ != nullptr) {
            const bool waits = !limited || may_fit(size);  // else it is in vain
            more = (waits && unpark_for(lane, size, lock)) || unpark(waits, lock) || more;
            // A captured lane would keep for its graph whatever it gathers; for it, idle bytes are evicted.
            more = (!lane.captured() && gather(lane, lock)) || more;
        }
        if (more) {
            store_.reserve(4);
            Block* const block = take_kept(lane, size, type, Search::everywhere);
            if (block == nullptr) continue;
            if (&lane_of(*block) != &lane && !bring(lane, *block, lock)) continue;
            ++hits_;
            return {block};
        }
        // No eviction could help: keep what is warm.
        const bool vain = limited ? !may_fit(size) : lacking.is_beyond(central_idle());
        if (vain || evict(lacking.missing, limited ? &Evictions::max_bytes : nullptr) == 0) {
            const bool leave = streams_ != nullptr && has_leavers();
            if (leave) see_off(lock);  // what a capture has kept here
            if (returning_ != 0) {
                unlocked(lock, [] { sched_yield(); });  // another thread has what will be idle
            } else if (!leave || has_leavers()) {
                return lacking;
            }
        }
        if (streams_ != nullptr) see_off(lock);
        store_.reserve(4);
    }
}

/// Asks the memory once, for at most `room` bytes. What it gives is held.
Arena::Taken Core::fetch(Lane& lane, std::size_t size, std::size_t room, Lock& lock) {
    const bool maps = arena_ && arena_->mapped() != nullptr;
    const Arena::Taken taken = !splits_ ? take_whole(lane, size, room, lock)
                               : maps   ? map_more(lane, size, room, 0, lock)
                                        : arena_->take_new(lane, carved(size), room, moving(size));
    if (taken.outcome == Arena::Outcome::done && !maps) held_ += taken.new_bytes;
    note_held();
    return taken;
}

/// Makes a lent block larger: by what follows it, else by moving its pages where there is room.
Core::Attempt Core::try_grow(Block& block, std::size_t size) {
    for (;;) {
        const Room room = this->room();
        const bool all_is_central = allowances_ + depot_bytes_ == 0;
        store_.reserve(2);
        const std::size_t before = block.bytes;
        Arena::Taken taken = arena_->extend(block, size, room.bytes());
        if (taken.outcome == Arena::Outcome::no_place && all_is_central) {
            taken = arena_->relocate(block, size, room.bytes(), coarse_now(), order_ + 1);
        }
        if (taken.outcome == Arena::Outcome::done) {
            held_ += taken.new_bytes;
            missed_bytes_ += taken.new_bytes;
            note_held();
            now_out(lane_of(*taken.block), *taken.block);
            --blocks_out_;  // it was out before
            lane_of(*taken.block).bytes_out -= before;
            if (taken.block != &block) ++order_;
            return {taken.block};
        }
        if (!all_is_central) {
            flush_all();
            continue;
        }
        const Attempt lacking = room.lacks(taken);
        const bool limited = lacking.shortage == Shortage::limit;
        if (lacking.is_beyond(central_idle()) ||
            evict(lacking.missing, limited ? &Evictions::max_bytes : nullptr) == 0) {
            return lacking;
        }
    }
}

void Core::count_grow() noexcept {
    const Lock lock(lock_);
    ++grows_;
}

/// Counts the acquires since the last time towards moves.
void Core::earn_moves() noexcept {
    const std::uint64_t acquires = acquires_so_far();
    // Segments are dearer to move; a program that has just begun may still move many.
    const std::uint64_t most = streams_ != nullptr ? 8 * most_credit : most_credit;
    moves_.earn(acquires, most);
}

/// Returns which pages may be moved for a block of `size` bytes.
Arena::Moving Core::moving(std::size_t size) noexcept {
    earn_moves();
    const std::uint64_t price =
        size >= large_move_from ? acquires_per_large_move : acquires_per_small_move;
    if (!moves_.covers(price)) return Arena::Moving::none;
    const bool save = size <= largest_to_save && central_idle() > held_ / idle_share_to_save;
    return save ? Arena::Moving::all : Arena::Moving::cheap;
}

void Core::pay_for_moves(std::size_t size) noexcept {
    if (!splits_) return;
    const std::uint64_t made = arena_->moves().count - moves_then_;
    moves_then_ += made;
    const std::uint64_t price =
        size >= large_move_from ? acquires_per_large_move : acquires_per_small_move;
    moves_.pay(made * price);
}

/// A block of a memory that lends whole ones; null if it has none. A source of the user's may throw.
Block* Core::take_outside(std::size_t size) {
    store_.reserve(1);
    Block& block = store_.take();
    try {
        block.data = memory_.source()->allocate(size, options_.alignment);
    } catch (const std::bad_alloc&) {
        block.data = nullptr;
    } catch (...) {
        store_.give(block);
        throw;
    }
    if (block.data == nullptr) {
        store_.give(block);
        return nullptr;
    }
    outside_.push_back(block);
    return &block;
}

/// A block of exactly `size` bytes that will never be split.
Arena::Taken Core::take_whole(Lane& lane, std::size_t size, std::size_t room, Lock& lock) {
    using Outcome = Arena::Outcome;
    if (size > room) return {Outcome::over_limit, nullptr, size};
    shelf_.add_room();
    Block* block = nullptr;
    const std::size_t span = arena_ ? round_up(size, options_.alignment) : size;
    try {
        block = !arena_ ? take_outside(size)
                : arena_->mapped() != nullptr
                    ? map_more(lane, span, span, span - size, lock).block
                    : arena_->take_new(lane, span, no_limit, Arena::Moving::none).block;
    } catch (...) {
        shelf_.remove_room();
        throw;
    }
    if (block == nullptr) {
        shelf_.remove_room();
        return {Outcome::memory_refused, nullptr, size};
    }
    if (arena_) {
        block->slack = span - size;
    } else {
        block->holes = &lane;
    }
    block->bytes = size;
    block->state = BlockState::out;
    return {Outcome::done, block, size};
}

void Core::lend(Block& block, std::size_t bytes) noexcept {
    block.asked = bytes;
    asked_ += bytes;
    // Bytes that are promised to be zero may be read at once.
    const bool zero = options_.wipe_on_release || block.zero_generation == block.generation;
    if (marks_) {
        // New bytes were nobody's yet; what is waste stays so.
        mark_idle(block.data, block.bytes + block.slack);
        (zero ? mark_defined : mark_lent)(block.data, bytes);
    }
    note_peaks(use_magazines() ? mine(lane_of(block)) : nullptr);
}

void Core::zero(Block& block, std::size_t bytes) {
    const Lane& lane = lane_of(block);
    if (lane.ordered() && !lane.parks) {
        streams_->zero(lane.stream, block.data, bytes);
    } else if (block.zero_generation != block.generation) {
        memory_.source()->zero(block.data, bytes);
    }
    if (marks_) mark_defined(block.data, bytes);
}

void Core::copy(Block& to, const Block& from, std::size_t bytes) {
    const Lane& lane = lane_of(to);
    if (lane.ordered() && !lane.parks) {
        streams_->copy(lane.stream, to.data, from.data, bytes);
    } else {
        memory_.source()->copy(to.data, from.data, bytes);
    }
}

}  // namespace cistern

// --- The slow ends of the fast path -----------------------------------------------------------------

namespace cistern::detail {

constinit Magazine no_magazine{};
constinit thread_local ThreadFront thread_front;
constinit BlockFront no_block{.below = &no_block};

BlockFront* take_slow(CoreFront& core, std::size_t bytes, std::size_t type, bool may_fail) {
    // Still inside the magazine, if there is one: the first block did not fit, one of the next may.
    Magazine* const magazine = thread_front.slots[core.slot].load(std::memory_order_acquire);
    if (magazine->home == &core) {
        const std::size_t last = (bytes - 1) | core.grain_mask;
        if (Block* const block = remove_fitting(magazine->rack_at(rack_of_last(last)), last)) {
            block->asked = bytes;
            magazine->asked.add(bytes);
            magazine->taken.add(block->load);
            magazine->hits.set_after_others(magazine->hits.now() + 1);
            const Load peak = magazine->below - magazine->inside();
            if ((peak & load_signs) != 0) note_peak(core);
            leave();
            return block;
        }
    }
    leave();
    return bytes == 0 ? nullptr : core_of(core).take(lane_of(core), bytes, type, may_fail);
}

void give_slow(BlockFront& block, std::uint32_t generation) noexcept {
    leave();
    // The block of a stale handle may be another pool's now; that pool will see that it is stale.
    block_of(block).core->give(block_of(block), generation);
}

void note_peak(CoreFront& core) noexcept {
    leave();
    core_of(core).note_peak(lane_of(core));
}

}  // namespace cistern::detail
