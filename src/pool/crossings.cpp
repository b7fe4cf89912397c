// From one stream to another: when a lane may have what others have idle, whose it gets, and what it waits for.

#include <algorithm>
#include <exception>

#include "pool/core.hpp"

namespace cistern {

namespace {

constexpr std::uint64_t acquires_per_crossing = 64;
constexpr std::uint64_t most_crossing_credit = 64 * acquires_per_crossing;
// A lane that had fewer large blocks may not come back for more.
constexpr std::uint32_t lent_to_come_back = 64;
constexpr std::uint64_t most_for_lanes = 8;  // times what was lent at most

}  // namespace

/// Has a lane wait for all that another has been given so far. False if that cannot be: the other is being
/// captured, or some stream whose capture that would end. Throws DeviceError.
bool Core::join(Lane& from, Lane& to, Lock& lock) {
    if (!from.ordered() || &from == &to) return true;
    if (from.captured() && from.open) return false;
    const Busy busy_from(from), busy_to(to);
    const bool in_order = to.ordered() && !to.parks && !to.captured() &&
                          unlocked(lock, [&] { return streams_->may_use(to.stream); });
    if (!mark(from, lock)) return false;
    const bool open = from.open, all = from.needs_all();
    const bool joined = unlocked(lock, [&] {
        if (all) {
            if (!record_all(from.event)) return false;
        } else if (open && !streams_->record(from.event, from.stream)) {
            return false;
        }
        if (!in_order || !streams_->may_use(to.stream)) return streams_->wait_on_host(from.event);
        streams_->wait(to.stream, from.event);
        return true;
    });
    if (in_order && !to.open) to.unmarked = true;       // its event may not say that it waits
    if (joined) crossings_.pay(acquires_per_crossing);  // whatever it was for
    return joined;
}

/// Brings a block that is out into another lane's order. False, and the block idle again, if that
/// cannot be. Throws DeviceError, likewise.
bool Core::bring(Lane& to, Block& block, Lock& lock) {
    Lane& from = lane_of(block);
    bool joined = false;
    try {
        joined = join(from, to, lock);
    } catch (...) {
        put_back(block);
        throw;
    }
    if (!joined) {
        put_back(block);
        return false;
    }
    pass(block, to);
    return true;
}

/// Makes a block that was taken idle again. Others may have taken its room meanwhile.
void Core::put_back(Block& block) noexcept {
    to_central(block, block.released_at);
    enforce();
}

/// Makes a block that is out another lane's.
void Core::pass(Block& block, Lane& to) noexcept {
    lane_of(block).bytes_out -= block.bytes;
    to.bytes_out += block.bytes;
    block.holes = &to;
}

Lane& Core::keep_order(const Block& block) {
    Lane& lane = lane_of(block);
    Lock lock(lock_);
    ++lane.busy;
    if (!lane.ordered() || lane.open) return lane;
    try {
        unlocked(lock, [&] {
            if (!record_all(lane.event)) throw DeviceError(captured_beside);
            if (main_.ordered()) streams_->wait(main_.stream, lane.event);
        });
    } catch (...) {
        --lane.busy;
        throw;
    }
    return main_;
}

void Core::let_go(const Block& block) noexcept {
    const Lock lock(lock_);
    --lane_of(block).busy;
}

/// Notes how much a lane has out with a large block, of which this thread keeps no other.
void Core::note_wanted(Lane& lane) noexcept {
    if (lane.large_lent < lent_to_come_back) {
        ++lane.large_lent;
    } else {
        lane.most_out = std::max(lane.most_out, lane.bytes_out);
    }
}

/// The same lane may be another's soon, or nobody's.
void Core::forget_wants(Lane& lane) noexcept {
    lane.most_out = 0;
    lane.large_lent = 0;
}

/// Whether a lane may have what others have idle. Each time costs an event and has one stream wait for another; so if
/// that is too often the pool grows for large blocks, until each lane can have what it wants at most.
bool Core::may_cross(std::size_t size) noexcept {
    if (size < large_from || joins_all()) return true;
    crossings_.earn(acquires_so_far(), most_crossing_credit);
    if (crossings_.covers(acquires_per_crossing)) return true;
    if (central_idle() + size > options_.max_idle_bytes) return true;  // it could not stay
    std::uint64_t wanted = 0, takers = 0;
    for (const Lane* one = lanes_.first(); one != nullptr; one = Lanes::after(*one)) {
        if (one->most_out == 0) continue;
        wanted += one->most_out;
        ++takers;
    }
    // Holes are seldom side by side: with what it wants and no more, a lane would take from others for ever.
    wanted = std::min(2 * wanted, most_for_lanes * lent_peak_);
    return held_ + size > std::min(wanted + room_apart(takers), options_.max_bytes);
}

/// Takes idle bytes of another lane, before the memory is asked for more.
Block* Core::take_from_others(Lane& lane, std::size_t size, Lock& lock) {
    if (!splits_ || !may_cross(size)) return nullptr;
    for (Lane* other = lanes_.first(); other != nullptr; other = Lanes::after(*other)) {
        if (other == &lane || (other->captured() && other->open)) continue;
        if (lane.captured() && other->open) continue;  // the host would have to wait for it
        store_.reserve(1);
        Block* const block = arena_->take_idle(*other, size, Search::thorough);
        if (block == nullptr) continue;
        now_out(*other, *block);
        if (bring(lane, *block, lock)) return block;
    }
    return size >= large_from && !lane.captured() ? take_side_by_side(lane, size, lock) : nullptr;
}

/// Takes idle bytes that lie side by side and are several lanes'. Only those are waited for.
Block* Core::take_side_by_side(Lane& lane, std::size_t size, Lock& lock) {
    store_.reserve(1);
    Arena::Run run;
    for (Lane* one = lanes_.first(); one != nullptr && run.first == nullptr;
         one = Lanes::after(*one)) {
        if (!one->kept) run = arena_->find_run(*one, size);
    }
    if (run.first == run.last) return nullptr;  // none, or one that could not be had before
    arena_->take_run(run, size);
    const auto each = [&run](auto&& f) {
        for (Block *block = run.first, *next = nullptr; block != nullptr; block = next) {
            next = block != run.last ? block->after : nullptr;
            f(*block);
        }
    };
    std::uint64_t parts = 0;
    each([&](Block& block) {
        now_out(lane_of(block), block);
        ++parts;
    });
    blocks_out_ -= parts - 1;  // to be one
    bool joined = true;
    std::exception_ptr failure;
    ++returning_;
    each([&](const Block& block) {
        Lane& from = lane_of(block);
        if (!joined || &from == &lane) return;
        try {
            joined = join(from, lane, lock);
        } catch (...) {
            joined = false;
            failure = std::current_exception();
        }
        if (!joined) return;
        each([&](Block& other) {
            if (&lane_of(other) == &from) pass(other, lane);
        });
    });
    --returning_;
    blocks_out_ += parts - 1;
    each([&](Block& block) { to_central(block, block.released_at); });
    // If that splits there is a descriptor: joining them gave one back.
    if (joined) return take_kept(lane, size, 0, Search::thorough);
    enforce();
    if (failure != nullptr) std::rethrow_exception(failure);
    return nullptr;
}

/// Makes all idle bytes this lane's, so that they can be joined. Returns whether there were any.
bool Core::gather(Lane& lane, Lock& lock) {
    bool any = false;
    bool refused = false;  // a mark of all; it would be again
    if (!splits_) return any;
    for (Lane* other = lanes_.first(); other != nullptr; other = Lanes::after(*other)) {
        if (other == &lane || other->empty() || (other->captured() && other->open)) continue;
        if (refused && other->needs_all()) continue;
        const std::uint64_t order = order_;
        const Busy busy(*other);
        if (!join(*other, lane, lock)) {
            refused = refused || other->needs_all();
            continue;
        }
        arena_->pass_on(*other, lane, order);
        any = true;
    }
    return any;
}

/// Waits until nobody uses the bytes that a lane gave back so far. False if a capture keeps that from being said.
bool Core::wait_on_host(Lane& lane, Lock& lock) noexcept {
    if (!lane.ordered()) return true;
    const Busy busy(lane);
    if (!mark(lane, lock)) return false;
    const bool open = lane.open, stale = lane.closing != 0 || lane.unmarked;
    return unlocked(lock, [&] {
        if (stale && !record_all(lane.event)) return false;
        if (open && !stale && !record(lane.event, lane.stream, !lane.captured())) return false;
        return streams_->wait_on_host(lane.event);
    });
}

}  // namespace cistern
