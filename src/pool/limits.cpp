// What may stay idle, and what goes first when a limit says that not all of it may.

#include <algorithm>
#include <functional>

#include "memory/clock.hpp"
#include "pool/core.hpp"
#include "pool/options.hpp"

namespace cistern {

namespace {

std::uint64_t nanoseconds(std::chrono::milliseconds age) noexcept {
    constexpr std::uint64_t per_millisecond = 1'000'000;
    const auto count = static_cast<std::uint64_t>(age.count());
    return count > no_limit / per_millisecond ? no_limit : count * per_millisecond;
}

}  // namespace

std::uint64_t Core::central_idle() const noexcept {
    return (arena_ ? arena_->idle_bytes() : 0) + shelf_.bytes() + depot_bytes_ + parked_bytes_;
}

std::uint64_t Core::central_idle_buffers() const noexcept {
    return (arena_ ? arena_->idle_holes() : 0) + shelf_.count() + depot_blocks_ + parked_blocks_;
}

std::uint64_t Core::idle_bytes() noexcept {
    const Lock lock(lock_);
    return count_all().idle_bytes;
}

/// Gives idle bytes of the arena and the shelf back until `bytes` are gone or nothing is left.
/// Returns how many went.
std::size_t Core::evict(std::size_t bytes, std::uint64_t Evictions::*reason) noexcept {
    std::size_t gone = 0;
    if (splits_ && arena_->mapped() != nullptr) {
        // Whole segments first: only they are of use to anybody else.
        gone = arena_->drop_segments(bytes);
        held_ -= gone;
        if (gone != 0 && reason != nullptr) ++(evictions_.*reason);
    }
    while (gone < bytes) {
        const std::size_t part = evict_one(bytes - gone, reason);
        if (part == 0) break;
        gone += part;
    }
    return gone;
}

/// Returns the best of what best_of() finds in each lane.
template <class Best, class Better>
Block* Core::extreme_hole(Best best_of, Better better) const noexcept {
    Block* found = nullptr;
    for (Lane* lane = lanes_.first(); lane != nullptr; lane = Lanes::after(*lane)) {
        Block* const hole = lane->kept ? nullptr : best_of(*lane);
        if (hole == nullptr) continue;
        if (found == nullptr || better(hole->bytes, found->bytes)) found = hole;
    }
    return found;
}

/// Evicts the next victim, or about `bytes` of it if it can be split. Returns how many bytes went.
std::size_t Core::evict_one(std::size_t bytes, std::uint64_t Evictions::*reason) noexcept {
    Block* hole = nullptr;
    Block* whole = nullptr;
    bool hole_first = false;
    switch (options_.evict) {
        case Evict::oldest:
            hole = arena_ ? arena_->oldest() : nullptr;
            whole = shelf_.oldest();
            hole_first = hole != nullptr && (whole == nullptr || hole->order < whole->order);
            break;
        case Evict::smallest:
            hole = extreme_hole([](const Lane& lane) { return lane.smallest(); }, std::less<>());
            whole = shelf_.smallest();
            hole_first = hole != nullptr && (whole == nullptr || hole->bytes < whole->bytes);
            break;
        case Evict::largest:
            hole = extreme_hole([](const Lane& lane) { return lane.largest(); }, std::greater<>());
            whole = shelf_.largest();
            hole_first = hole != nullptr && (whole == nullptr || hole->bytes > whole->bytes);
            break;
    }
    if (hole == nullptr && whole == nullptr) return 0;
    if (reason != nullptr) ++(evictions_.*reason);
    if (hole_first) {
        const std::size_t gone = arena_->drop(*hole, bytes);
        held_ -= gone;
        return gone;
    }
    const std::size_t gone = whole->bytes;
    drop_from_shelf(*whole);
    return gone;
}

/// Brings idle bytes and buffers under their limits after something became idle.
void Core::enforce() noexcept {
    if (central_idle() + allowances_ > options_.max_idle_bytes) {
        flush_all();  // what threads were allowed but do not use
        if (central_idle() > options_.max_idle_bytes) {
            evict(central_idle() - options_.max_idle_bytes, &Evictions::max_idle_bytes);
        }
    }
    while (central_idle_buffers() > options_.max_idle_buffers) {
        if (evict_one(no_limit, &Evictions::max_idle_buffers) == 0) break;
    }
}

/// Evicts what has been idle for max_idle_age. A pass looks into every magazine, so they are rare,
/// unless somebody is about to look at the pool. (No clock is read on the fast path: a pool with this
/// limit has none, its releases take the lock.)
void Core::age_out(bool reading) noexcept {
    if (options_.max_idle_age == forever) return;
    const std::uint64_t now = coarse_now();
    const std::uint64_t most = nanoseconds(options_.max_idle_age);
    if (!reading && now - last_pass_ < most / 8) return;
    const auto expired = [&](std::uint64_t since) { return now - since >= most; };

    // Returns the load of what went.
    const auto sift = [&](detail::Rack& list) {
        detail::Load gone = 0;
        detail::BlockFront* kept = &detail::no_block;
        detail::BlockFront** end = &kept;
        for (detail::BlockFront* front = list; front != &detail::no_block;) {
            Block& block = block_of(*front);
            front = front->below;
            if (expired(block.released_at)) {
                gone += block.load;
                ++evictions_.max_idle_age;
                to_memory(block);
            } else {
                *end = &block;
                end = &block.below;
            }
        }
        *end = &detail::no_block;
        list = kept;
        return gone;
    };
    {
        const Seizure seizure(*this);
        for (ThreadMagazine* m = magazines_.first(); m != nullptr; m = Magazines::after(*m)) {
            for (detail::Rack& rack : m->racks) m->given.subtract(sift(rack));
            m->forget_idle();
            count(*m);
        }
    }
    const auto sweep = [&](auto& kept, auto drop) {
        for (Block* block = kept.oldest(); block != nullptr && expired(block->released_at);
             block = kept.oldest()) {
            ++evictions_.max_idle_age;
            drop(*block);
        }
    };
    if (arena_) sweep(*arena_, [&](Block& hole) { held_ -= arena_->drop(hole, no_limit); });
    sweep(shelf_, [&](Block& block) { drop_from_shelf(block); });
    last_pass_ = now;
}

/// Gives back as much as excess_of(idle bytes) says. Returns how many bytes went.
template <class Excess>
std::size_t Core::give_back(Excess excess_of) {
    Lock lock(lock_);
    flush_all();
    if (excess_of(central_idle()) != 0 && parked_blocks_ != 0) unpark(true, lock);
    const std::size_t gone = evict(excess_of(central_idle()), nullptr);
    grown_apart_ = grown_in_turn_ = 0;
    note_all_peaks();
    finish(lock);
    return gone;
}

std::size_t Core::trim(std::size_t keep_idle_bytes) {
    return give_back(
        [&](std::uint64_t idle) { return idle - std::min<std::uint64_t>(idle, keep_idle_bytes); });
}

std::size_t Core::give_up(std::size_t bytes) {
    return give_back([&](std::uint64_t idle) { return std::min<std::uint64_t>(idle, bytes); });
}

void Core::set_limits(const Limits& given) {
    Limits limits = given;
    const std::size_t usual = streams_ != nullptr ? streams_->usual_max_idle_bytes() : 0;
    if (usual != 0 && limits.max_idle_bytes == usual) {  // which nobody asked for
        limits.max_idle_bytes = std::min(usual, limits.max_bytes);
    }
    Lock lock(lock_);
    if (parked_blocks_ != 0) unpark(true, lock);  // what is parked cannot be evicted
    PoolOptions changed = options_;
    set_limits_of(changed, limits);
    check_options(changed);
    flush_all();
    const std::uint64_t lent = held_ - central_idle();
    check_lent_under(lent, limits);
    set_limits_of(options_, limits);
    if (held_ > options_.max_bytes) evict(held_ - options_.max_bytes, &Evictions::max_bytes);
    while (Block* const block = shelf_.largest()) {
        if (block->bytes <= options_.max_buffer_bytes) break;
        ++evictions_.max_buffer_bytes;
        drop_from_shelf(*block);
    }
    enforce();
    age_out(true);
    note_all_peaks();
    finish(lock);
}

}  // namespace cistern
