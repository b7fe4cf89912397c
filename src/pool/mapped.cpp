// To and from a driver, for memories whose calls are made with the lock free: mapping more, and giving back
// what was let go once no stream uses it any more.

#include <algorithm>
#include <functional>
#include <memory>
#include <new>
#include <utility>

#include "memory/clock.hpp"
#include "pool/core.hpp"

namespace cistern {

namespace {

constexpr std::uint64_t acquires_per_recycling = 256;

}  // namespace

/// How much of a growth may stay idle: little of what the limits allow, which is for what users release.
std::uint64_t Core::room_for_leftovers() const noexcept {
    const std::uint64_t kept = central_idle() + allowances_;
    if (options_.max_idle_buffers != no_limit || kept >= options_.max_idle_bytes) return 0;
    return (options_.max_idle_bytes - kept) / 8;
}

/// A block of `size` bytes of which some have to be mapped; `slack` of them are not held.
Arena::Taken Core::map_more(Lane& lane, std::size_t size, std::size_t room, std::size_t slack,
                            Lock& lock) {
    using Outcome = Arena::Outcome;
    MappedSource& source = *arena_->mapped();
    Holes& rest = leftovers_of(lane);
    Arena::Growth growth;
    for (;;) {
        store_.reserve(4);
        growth = arena_->begin_growth(rest, size, room, room_for_leftovers(), held_);
        if (growth.outcome != Outcome::no_place) break;
        const std::size_t bytes = source.range_bytes(size);
        void* const data = unlocked(lock, [&] { return source.reserve(bytes); });
        if (data == nullptr) return {Outcome::memory_refused, nullptr, size};
        try {
            arena_->add_range(data, bytes);
        } catch (const std::bad_alloc&) {
            unlocked(lock, [&] { source.unreserve(data, bytes); });
            throw;
        }
    }
    if (growth.outcome != Outcome::done) return {growth.outcome, nullptr, growth.new_bytes};
    const std::size_t counted = growth.new_bytes - slack;
    held_ += counted;
    held_peak_ = std::max(held_peak_, held_);
    if (!growth.backed) {
        const std::size_t spare = growth.spare != nullptr ? growth.spare->bytes : 0;
        void* const data = growth.fresh->data;
        const std::size_t bytes = growth.fresh->bytes + spare;
        bool mapped = false;
        try {
            mapped = unlocked(lock, [&] { return source.map(data, bytes); });
        } catch (...) {
            held_ -= counted;
            arena_->cancel_growth(growth);
            throw;
        }
        if (!mapped) {
            held_ -= counted;
            arena_->cancel_growth(growth);
            return {Outcome::memory_refused, nullptr, growth.new_bytes};
        }
    }
    Block& block = arena_->end_growth(growth, rest, size, coarse_now(), ++order_);
    block.holes = &lane;
    if (central_idle() + allowances_ > options_.max_idle_bytes) enforce();  // others were quicker
    return {Outcome::done, &block, counted};
}

/// Before the pool grows beyond its peak: gives back segments that lie idle elsewhere, as many bytes as it will
/// map. That is what moving pages is on the host; here the host has to wait for their streams, so it is rare.
void Core::recycle(Lane& lane, std::size_t size, Lock& lock) {
    if (held_ + size <= held_peak_ || lane.captured()) return;  // waiting would end a capture
    if (!may_fit(size)) return;
    earn_moves();
    if (!moves_.covers(acquires_per_recycling)) return;
    if (!unlocked(lock, [&] { return streams_->may_mark_all(); })) return;
    const std::size_t gone = arena_->drop_segments_for(leftovers_of(lane), size, held_, held_peak_);
    if (gone == 0) return;
    held_ -= gone;
    moves_.pay(acquires_per_recycling);
    arena_->count_move(std::min(gone, size));
    see_off(lock);
    store_.reserve(4);
}

/// Gives what was let go back to the driver, once no stream uses it any more. What a capture keeps from being waited
/// for stays for the next time.
void Core::see_off(Lock& lock) noexcept {
    if (!has_leavers()) return;
    while (Block* const block = held_back_.first()) {
        held_back_.remove(*block);
        (block->in_arena ? arena_->leaving() : farewells_).push_back(*block);
    }
    Wholes stay;  // each is tried once, whatever others do meanwhile
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
        const bool waited = wait_on_host(lane, lock);
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
            if (!unused) {
                stay.push_back(*block);
                if (!std::exchange(block->held_back, true)) held_back_bytes_ += block->bytes;
                continue;
            }
            if (std::exchange(block->held_back, false)) held_back_bytes_ -= block->bytes;
            --lane_of(*block).leavers;
            if (!block->in_arena) {
                const std::unique_ptr<std::function<void(void*)>> deleter(block->deleter);
                void* const data = block->data;
                const std::size_t bytes = block->bytes;
                store_.give(*block);
                unlocked(lock, [&] {
                    if (deleter != nullptr) {
                        (*deleter)(data);
                    } else {
                        memory_.source()->deallocate(data, bytes, options_.alignment);
                    }
                });
                continue;
            }
            try {
                store_.reserve(2);
            } catch (const std::bad_alloc&) {  // then it keeps its bytes for now
            }
            if (Block* const part = arena_->part_with(*block)) {
                MappedSource& source = *arena_->mapped();
                unlocked(lock, [&] { source.unmap(part->data, part->bytes); });
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
