// To and from a driver, for memories whose calls are made with the lock free: mapping more, and giving back
// what was let go once no stream uses it any more.
//
// Before a pool grows beyond its peak, segments that lie idle elsewhere move to where it grows. They are mapped there
// as well; what is done there comes, in the stream's order, after all that was done at the old place, so the host does
// not wait. The old place stays mapped, which costs addresses only, until its bytes are to go back to the driver; or, if
// there are many such places, until a later growth finds that its stream is done.

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "memory/clock.hpp"
#include "pool/core.hpp"

namespace cistern {

namespace {

// A program of few and large requests could move as much with each, for ever. So a move is paid for by acquires, and
// where they have not paid the pool grows instead, until it holds this part more than was lent at most; more where
// the host has to wait for what it gives back.
constexpr std::uint64_t acquires_per_move = 256, acquires_per_segment = 32;
constexpr std::uint64_t unpaid_beyond = 4, unpaid_beyond_with_wait = 2;
constexpr std::size_t spares_for_moving = 16;  // descriptors
// Unmapping takes half as long as the move did. So old places stay until they have more bytes than the first two allow;
// then those go that no stream uses. Beyond the third all go, and the host waits.
constexpr std::uint64_t few_over_held = 4;  // times what is held
constexpr std::uint64_t few_of_range = 8;   // this part of a range
constexpr std::uint64_t most_of_range = 4;  // the same

}  // namespace

/// Bytes that are asked of the memory with the lock free. They are held from the start, so that limits count them, and
/// part of the peak once they are there; no longer held if they never come.
class Core::Arrival {
public:
    Arrival(Core& core, std::uint64_t bytes) noexcept : core_(core), bytes_(bytes) {
        core_.held_ += bytes;
        core_.arriving_ += bytes;
    }
    Arrival(const Arrival&) = delete;
    Arrival& operator=(const Arrival&) = delete;
    ~Arrival() {
        core_.held_ -= bytes_;
        core_.arriving_ -= bytes_;
    }
    void complete() noexcept {
        core_.arriving_ -= std::exchange(bytes_, 0);
        core_.note_held();
    }

private:
    Core& core_;
    std::uint64_t bytes_;
};

/// How much of a growth may stay idle: little of what the limits allow, which is for what users release.
std::uint64_t Core::room_for_leftovers() const noexcept {
    const std::uint64_t kept = central_idle() + allowances_;
    if (options_.max_idle_buffers != no_limit || kept >= options_.max_idle_bytes) return 0;
    return (options_.max_idle_bytes - kept) / 8;
}

/// A block of `size` bytes of which some have to be mapped, those of `apart` among them; `slack` of them are not
/// held.
Arena::Taken Core::map_more(Lane& lane, std::size_t size, std::size_t room, std::size_t slack,
                            Apart& apart, Lock& lock) {
    using Outcome = Arena::Outcome;
    MappedSource& source = *arena_->mapped();
    Holes& rest = leftovers_of(lane);
    Arena::Growth growth;
    for (;;) {
        store_.reserve(4);
        growth = arena_->begin_growth(rest, size, room, room_for_leftovers(), held_, apart.bytes());
        if (growth.outcome != Outcome::no_place) break;
        if (!source.keeps_addresses()) return add_segment(lane, size, room, slack, lock);
        const std::size_t bytes = source.range_bytes(std::max(size, apart.bytes()));
        void* const data = unlocked(lock, [&] { return source.reserve(bytes); });
        if (data == nullptr) return {Outcome::memory_refused, nullptr, size};
        try {
            arena_->add_range(data, bytes);
        } catch (const std::bad_alloc&) {
            unlocked(lock, [&] { source.unreserve(data, bytes); });
            throw;
        }
        room = std::min(room - slack, this->room().bytes()) + slack;  // others may have grown
    }
    if (growth.outcome != Outcome::done) return {growth.outcome, nullptr, growth.new_bytes};
    const std::size_t counted = growth.new_bytes - slack;
    std::size_t moved = 0;
    Arrival arrival(*this, counted);
    if (!growth.backed) {
        const std::size_t spare = growth.spare != nullptr ? growth.spare->bytes : 0;
        void* const data = growth.fresh->data;
        const std::size_t bytes = growth.fresh->bytes + spare;
        bool mapped = false;
        try {
            const std::vector<MappedSource::Part> parts = apart.parts();
            mapped = unlocked(lock, [&] { return source.map(data, bytes, parts); });
        } catch (...) {
            arena_->cancel_growth(growth);
            throw;
        }
        if (!mapped) {
            arena_->cancel_growth(growth);
            return {Outcome::memory_refused, nullptr, growth.new_bytes};
        }
        moved = apart.arrived();
    }
    arrival.complete();
    Block& block = arena_->end_growth(growth, rest, size, coarse_now(), ++order_);
    block.holes = &lane;
    if (central_idle() + allowances_ > options_.max_idle_bytes) enforce();  // others were quicker
    return {Outcome::done, &block, counted - moved};
}

/// The same where each segment comes with addresses of its own.
Arena::Taken Core::add_segment(Lane& lane, std::size_t size, std::size_t room, std::size_t slack,
                               Lock& lock) {
    using Outcome = Arena::Outcome;
    MappedSource& source = *arena_->mapped();
    if (size > room) return {Outcome::over_limit, nullptr, size};
    const std::size_t wished = round_up(source.growth(size, held_), source.page());
    std::size_t bytes = size;
    if (wished <= room && wished - size <= room_for_leftovers()) bytes = wished;
    for (;; bytes = size) {
        Arrival arrival(*this, bytes - slack);
        void* const data =
            unlocked(lock, [&] { return source.allocate(bytes, options_.alignment); });
        if (data == nullptr && bytes > size) continue;
        if (data == nullptr) return {Outcome::memory_refused, nullptr, size};
        Block* block = nullptr;
        try {
            block =
                &arena_->add_segment(data, bytes, leftovers_of(lane), size, coarse_now(), ++order_);
        } catch (const std::bad_alloc&) {
            unlocked(lock, [&] { source.deallocate(data, bytes, options_.alignment); });
            throw;
        }
        block->holes = &lane;
        arrival.complete();
        if (central_idle() + allowances_ > options_.max_idle_bytes) enforce();
        return {Outcome::done, block, bytes - slack};
    }
}

/// Before the pool grows beyond its peak: takes segments that lie idle elsewhere, as many bytes as it will map, to
/// where it grows. Where they cannot move they are given back, for which the host has to wait for their streams.
/// Not done if there are none, or too few and the memory has no more.
Arena::Taken Core::move_and_map(Lane& lane, std::size_t size, Lock& lock) {
    constexpr Arena::Taken nothing{Arena::Outcome::no_place, nullptr, 0};
    if (held_ + size <= held_peak_ || lane.captured()) return nothing;  // a graph would keep them
    if (!may_fit(size)) return nothing;
    earn_moves();
    const bool moves = arena_->mapped()->moves();
    if (!moves_.covers(acquires_per_move)) {
        const std::uint64_t part = moves ? unpaid_beyond : unpaid_beyond_with_wait;
        const std::uint64_t enough = lent_peak_ + lent_peak_ / part;
        if (held_ + size <= std::min<std::uint64_t>(enough, options_.max_bytes)) return nothing;
    }
    // To wait would end a capture.
    if (!moves && !unlocked(lock, [&] { return streams_->may_mark_all(); })) return nothing;
    store_.reserve(spares_for_moving);
    Apart apart(*this, lane);
    const std::size_t taken = arena_->take_segments_for(
        leftovers_of(lane), settled(), size, may_cross(size), room_for_leftovers(), held_,
        held_peak_, moves ? apart.blocks() : arena_->leaving());
    if (taken == 0) return nothing;
    held_ -= taken;
    if (!moves) {
        moves_.pay(acquires_per_move);
        arena_->count_move(std::min(taken, size));
        see_off(lock);
        return nothing;
    }
    apart.follow(lock);
    const std::uint64_t price =
        std::max(acquires_per_move, acquires_per_segment * apart.segments());
    Arena::Taken grown = nothing;
    if (!apart.empty()) grown = map_more(lane, size, room().bytes(), 0, apart, lock);
    if (grown.outcome != Arena::Outcome::done) {
        moves_.pay(acquires_per_move);  // not to try each time
        return grown;
    }
    if (!apart.empty()) return grown;  // others had left enough mapped
    moves_.pay_in_full(price);
    const std::uint64_t range = arena_->mapped()->range_bytes(1);
    const bool many = old_place_bytes_ > std::min(few_over_held * held_, range / few_of_range);
    if (many) clear_old_places(2 * taken, lock);  // which asks for the last mark
    mark_old_places(lane, lock);
    return grown;
}

std::size_t Core::Apart::bytes() const noexcept {
    std::size_t sum = 0;
    for (const Block* block = blocks_.first(); block != nullptr;
         block = Arena::Leaving::after(*block)) {
        sum += block->bytes;
    }
    return sum;
}

std::vector<MappedSource::Part> Core::Apart::parts() const {
    std::vector<MappedSource::Part> parts;
    for (const Block* block = blocks_.first(); block != nullptr;
         block = Arena::Leaving::after(*block)) {
        parts.push_back({block->begin(), block->end()});
    }
    return parts;
}

std::size_t Core::Apart::segments() const noexcept {
    std::size_t count = 0;
    for (const Block* block = blocks_.first(); block != nullptr;
         block = Arena::Leaving::after(*block)) {
        count += core_.arena_->mapped()->segments_in(block->begin(), block->bytes);
    }
    return count;
}

/// Has the lane wait for whoever used them. Those that it cannot wait for become idle again.
void Core::Apart::follow(Lock& lock) {
    ++core_.returning_;
    counted_ = true;
    core_.held_back_bytes_ += bytes();  // they may come back
    Arena::Leaving all;
    std::swap(all, blocks_);
    for (Block* block = all.first(); block != nullptr; block = Arena::Leaving::after(*block)) {
        ++lane_of(*block).leavers;
    }
    std::exception_ptr failure;
    const Lane* joined = nullptr;
    while (Block* const block = all.first()) {
        all.remove(*block);
        Lane& from = lane_of(*block);
        try {
            const bool joins = failure == nullptr && &from != joined;
            if (joins && core_.join(from, lane_, lock)) joined = &from;
        } catch (...) {
            failure = std::current_exception();
        }
        --from.leavers;
        if (failure != nullptr || &from != joined) {
            core_.held_back_bytes_ -= block->bytes;
            put_back(*block);
            continue;
        }
        if (from.ordered()) block->holes = &lane_;
        ++lane_of(*block).leavers;
        blocks_.push_back(*block);
    }
    core_.held_back_bytes_ -= bytes();
    if (failure != nullptr) std::rethrow_exception(failure);
}

/// Makes a block idle again where it was, in a new order: its lane may wait for more than it did. Others may have
/// taken its room meanwhile.
void Core::Apart::put_back(Block& block) noexcept {
    core_.held_ += block.bytes;
    core_.arena_->give(block, block.released_at, ++core_.order_);
    const std::uint64_t held = core_.held_ + core_.held_back();
    if (held > core_.options_.max_bytes) {
        core_.evict(held - core_.options_.max_bytes, &Evictions::max_bytes);
    }
    core_.note_held();
    core_.enforce();
}

/// Their bytes have their new place; once the lane's work is done the old one can go. Returns how many.
std::size_t Core::Apart::arrived() noexcept {
    if (empty()) return 0;
    const std::size_t moved = bytes();
    core_.arena_->count_move(moved);
    while (Block* const block = blocks_.first()) {
        blocks_.remove(*block);
        --lane_of(*block).leavers;
        block->state = BlockState::moved;
        block->order = ++core_.order_;
        core_.old_places_.push_back(*block);
        core_.old_place_bytes_ += block->bytes;
    }
    if (core_.old_place_bytes_ > core_.arena_->mapped()->range_bytes(1) / most_of_range) {
        core_.leave_old_places();
    }
    return moved;
}

Core::Apart::~Apart() {
    while (Block* const block = blocks_.first()) {
        blocks_.remove(*block);
        --lane_of(*block).leavers;
        put_back(*block);
    }
    if (counted_) --core_.returning_;
}

/// Has the lane's event say what may still use its old places, if that can be had. Later marks say more.
void Core::mark_old_places(Lane& lane, Lock& lock) noexcept {
    if (!lane.open || lane.stream.fleeting) return;
    const Busy busy(lane);
    const std::uint64_t order = order_;
    const bool marked = unlocked(lock, [&] {
        try {
            return streams_->record(lane.event, lane.stream);
        } catch (const std::exception&) {
            return false;
        }
    });
    if (marked) lane.marked = std::max(lane.marked, order);
}

/// Unmaps the oldest old places that no stream uses any more, up to so many bytes.
void Core::clear_old_places(std::uint64_t bytes, Lock& lock) noexcept {
    for (Lane* next = lanes_.first(); next != nullptr; next = Lanes::after(*next)) {
        Lane& lane = *next;
        if (!lane.ordered() || !lane.open || !named_by(old_places_, lane)) continue;
        const std::uint64_t marked = lane.marked;
        const Busy busy(lane);
        if (unlocked(lock, [&] { return streams_->is_done(lane.event); })) {
            settle_old_places(lane, marked);
        }
    }
    std::uint64_t left = 0;
    for (Block* next = old_places_.first(); next != nullptr && left < bytes;) {
        Block& block = *next;
        next = Wholes::after(*next);
        if (block.holes != &settled()) continue;
        left += block.bytes;
        leave_old_place(block);
    }
    see_off(lock);
}

/// A lane's work is done: nobody uses what it left at old places until then.
void Core::settle_old_places(const Lane& lane, std::uint64_t order) noexcept {
    for (Block* block = old_places_.first(); block != nullptr; block = Wholes::after(*block)) {
        if (block->holes == &lane && block->order <= order) block->holes = &settled();
    }
}

/// Lets the old places of segments go that have moved.
void Core::leave_old_places() noexcept {
    while (Block* const block = old_places_.first()) leave_old_place(*block);
}

void Core::leave_old_place(Block& block) noexcept {
    old_places_.remove(block);
    old_place_bytes_ -= block.bytes;
    arena_->leaving().push_back(block);
}

/// Gives what was let go back to the driver, once no stream uses it any more. What a capture keeps from being waited
/// for stays for the next time.
void Core::see_off(Lock& lock) noexcept {
    if (!has_leavers()) return;
    while (Block* const block = held_back_.first()) {
        held_back_.remove(*block);
        (block->in_arena ? arena_->leaving() : farewells_).push_back(*block);
    }
    Wholes stay;           // each is tried once, whatever others do meanwhile
    bool refused = false;  // a mark of all; it would be again
    for (;;) {
        Block* const first = !farewells_.empty() ? farewells_.first()
                             : arena_            ? arena_->leaving().first()
                                                 : nullptr;
        if (first == nullptr) break;
        Lane& lane = lane_of(*first);
        Wholes going;
        const auto pick = [&](auto& list) {
            for (Block* next = list.first(); next != nullptr;) {
                Block& block = *next;
                next = list.after(*next);
                if (&lane_of(block) != &lane) continue;
                list.remove(block);
                going.push_back(block);
                ++lane.leavers;
            }
        };
        pick(farewells_);
        if (arena_) pick(arena_->leaving());
        const bool waited = !(refused && lane.needs_all()) && wait_on_host(lane, lock);
        refused = refused || (!waited && lane.needs_all());
        for (Block* block = going.first(); block != nullptr; block = Wholes::after(*block)) {
            --lane.leavers;
            if (waited) block->holes = &settled();
            ++lane_of(*block).leavers;
        }
        while (Block* const block = going.first()) {
            going.remove(*block);
            bool unused = waited;
            if (waited && block->uses != nullptr) {
                unused = unlocked(lock, [&] { return wait_for_uses(*block); });
            }
            const bool moved = block->state == BlockState::moved;
            if (!unused) {
                stay.push_back(*block);
                if (std::exchange(block->held_back, true)) continue;
                (moved ? held_back_places_ : held_back_bytes_) += moved ? 1 : block->bytes;
                continue;
            }
            if (std::exchange(block->held_back, false)) {
                (moved ? held_back_places_ : held_back_bytes_) -= moved ? 1 : block->bytes;
            }
            --lane_of(*block).leavers;
            if (!block->in_arena) {
                const std::unique_ptr<std::function<void(void*)>> deleter(block->deleter);
                void* const data = block->data;
                store_.give(*block);
                unlocked(lock, [&] { (*deleter)(data); });
                continue;
            }
            try {
                store_.reserve(2);
            } catch (const std::bad_alloc&) {  // then it keeps its bytes for now
            }
            if (Block* const part = moved ? block : arena_->part_with(*block)) {
                MappedSource& source = *arena_->mapped();
                const std::size_t gone =
                    unlocked(lock, [&] { return source.unmap(part->data, part->bytes); });
                const auto rest = static_cast<std::int64_t>(moved ? 0 : part->bytes) -
                                  static_cast<std::int64_t>(gone);
                lingering_ += rest;
                if (rest > 0) leave_old_places();  // where they still are
                arena_->unmapped(*part);
            }
        }
    }
    while (Block* const block = stay.first()) {
        stay.remove(*block);
        --lane_of(*block).leavers;
        held_back_.push_back(*block);
    }
}

}  // namespace cistern
