// The arena on a memory that maps segments, with calls that the pool makes while its lock is free.
//
// Hollow addresses without bytes begin and end at pages, so that no two growths ever need the same page. A
// growth takes whole pages; what it does not need stays idle, or hollow and backed if the limits do not
// allow to hold it.

#include <algorithm>

#include "base/size_class.hpp"
#include "pool/arena.hpp"

namespace cistern {

namespace {

constexpr std::size_t excess = 8;    // of what is held, this part may go beyond what is wanted
constexpr std::size_t victims = 64;  // so many of the largest holes are compared
constexpr std::size_t most_by_age = 4096;  // so many of the oldest ones are looked at

}  // namespace

/// How much to map for a block at a place: what it needs, in whole pages, or more, ahead of the next one.
std::size_t Arena::growth_at(const Place& place, std::size_t held) const noexcept {
    const std::size_t needed = place.hollow_bytes();
    const std::size_t wished = std::max(mapped_->growth(needed, held), needed);
    return std::min(round_up(wished, source_.page()), place.hollow->bytes);
}

Arena::Growth Arena::begin_growth(Holes& holes, std::size_t bytes, std::size_t limit,
                                  std::size_t idle_limit, std::size_t held,
                                  std::size_t moved) noexcept {
    if (Block* const hole = backed_.find(bytes, Bins::all_looks); hole != nullptr) {
        Growth growth{.fresh = hole, .backed = true, .new_bytes = bytes};
        if (bytes > limit) {
            growth.outcome = Outcome::over_limit;
            return growth;
        }
        backed_.remove(*hole);
        if (hole->bytes > bytes) backed_.insert(split(*hole, bytes));
        hole->backed = false;
        hole->state = BlockState::out;
        return growth;
    }
    const std::size_t page = source_.page();
    Place place = best_place(holes, bytes, moved);
    if (place.hollow == nullptr && moved != 0) {  // others were quicker
        Block* const hollow = hollow_.find(std::max(bytes, moved), Bins::all_looks);
        place = {.hollow = hollow,
                 .backed_end = hollow != nullptr ? hollow->begin() + bytes : nullptr};
    }
    // Every hollow hole is whole pages, so one that fits `bytes` fits them rounded up.
    if (place.hollow == nullptr) return {.outcome = Outcome::no_place};
    const std::size_t needed = place.hollow_bytes();
    Growth growth{.before = place.before, .fresh = place.hollow, .new_bytes = needed};
    if (needed > limit) {
        growth.outcome = Outcome::over_limit;
        return growth;
    }
    const std::size_t least = round_up(needed, page);
    const std::size_t wished = growth_at(place, held);
    const std::size_t mapped = std::max(wished <= limit ? wished : least, moved);
    if (mapped - needed <= idle_limit) growth.new_bytes = std::min(mapped, limit);
    if (growth.new_bytes < moved) {  // what is not held is anybody's, without waiting
        growth.outcome = Outcome::over_limit;
        return growth;
    }
    if (place.after != nullptr && mapped == place.hollow->bytes && growth.new_bytes == mapped) {
        growth.after = place.after;
    }

    Block& fresh = *place.hollow;
    hollow_.remove(fresh);
    if (fresh.bytes > mapped) add_hollow(split(fresh, mapped));
    fresh.state = BlockState::out;
    fresh.seam = mapped_->seams();
    if (growth.new_bytes < mapped) {
        growth.spare = &split(fresh, growth.new_bytes);
        growth.spare->state = BlockState::out;
    }
    for (Block* const idle : {growth.before, growth.after}) {
        if (idle == nullptr) continue;
        remove_idle(*idle);
        idle->state = BlockState::out;
    }
    return growth;
}

Block& Arena::end_growth(const Growth& growth, Holes& holes, std::size_t bytes, std::uint64_t now,
                         std::uint64_t order) noexcept {
    Block* block = growth.fresh;
    if (growth.spare != nullptr) {
        growth.spare->backed = true;
        backed_.insert(join_hollow(*growth.spare));
    }
    if (growth.before != nullptr) {
        join(*growth.before, *block);
        block = growth.before;
    }
    if (growth.after != nullptr) join(*block, *growth.after);
    block->zero = false;
    block->holes = &holes;
    block->small = is_small(bytes);
    note_use(*block);
    block->state = BlockState::out;
    if (block->bytes > bytes && store_.spares() > 0) give(split(*block, bytes), now, order);
    return *block;
}

Block& Arena::add_segment(void* data, std::size_t segment_bytes, Holes& holes, std::size_t bytes,
                          std::uint64_t now, std::uint64_t order) {
    add_range(data, segment_bytes);
    Block& fresh = *ranges_.back().first;
    hollow_.remove(fresh);
    fresh.state = BlockState::out;
    return end_growth({.fresh = &fresh}, holes, bytes, now, order);
}

void Arena::cancel_growth(const Growth& growth) noexcept {
    Block* hollow = growth.fresh;
    if (growth.spare != nullptr) join(*hollow, *growth.spare);
    hollow->seam = false;
    hollow->backed = growth.backed;
    Bins& bins = growth.backed ? backed_ : hollow_;
    Block& hole = join_hollow(*hollow);
    hole.zero = false;
    bins.insert(hole);
    for (Block* const idle : {growth.before, growth.after}) {
        if (idle != nullptr) give(*idle, idle->released_at, idle->order);
    }
}

Block* Arena::part_with(Block& block) noexcept {
    block.backed = true;
    Block* hole = &join_hollow(block);
    const auto [begin, end] =
        mapped_->segments_within(hole->begin(), hole->end(), MappedSource::all, MappedSource::all);
    if (begin == end || store_.spares() < 2) {
        backed_.insert(*hole);
        return nullptr;
    }
    if (begin > hole->begin()) {
        Block& part = split(*hole, static_cast<std::size_t>(begin - hole->begin()));
        backed_.insert(*hole);
        hole = &part;
    }
    if (hole->end() > end) backed_.insert(split(*hole, static_cast<std::size_t>(end - begin)));
    hole->backed = false;
    hole->state = BlockState::leaving;
    return hole;
}

void Arena::unmapped(Block& block) noexcept {
    if (!mapped_->keeps_addresses()) return forget_range(block);
    block.seam = false;
    add_hollow(join_hollow(block));
}

void Arena::pass_on(Holes& from, Holes& to, std::uint64_t order) noexcept {
    for (Block* hole = ages_.first(); hole != nullptr;) {
        Block& passed = *hole;
        hole = Ages::after(*hole);
        if (passed.holes != &from || passed.order > order) continue;
        const auto absorb = [&](Block& neighbour) {
            if (hole == &neighbour) hole = Ages::after(neighbour);
            remove_idle(neighbour);
        };
        remove_idle(passed);
        passed.holes = &to;
        Block* joined = &passed;
        if (Block* const before = passed.before; before != nullptr && joins(*before, passed)) {
            absorb(*before);
            join(*before, passed);
            joined = before;
        }
        if (Block* const after = joined->after; after != nullptr && joins(*joined, *after)) {
            absorb(*after);
            join(*joined, *after);
        }
        add_idle(*joined, hole);
    }
}

void Arena::let_free(Holes& from, Holes& to, std::uint64_t now, std::uint64_t order) noexcept {
    while (Block* const hole = from.largest()) {
        remove_idle(*hole);
        hole->holes = &to;
        give(*hole, now, order);
    }
}

std::size_t Arena::take_segments_for(const Holes& holes, const Holes& settled, std::size_t bytes,
                                     bool others, std::size_t idle_limit, std::size_t held,
                                     std::size_t peak, Leaving& into) noexcept {
    if (backed_.find(bytes, Bins::all_looks) != nullptr) return 0;  // that is mapped already
    Choice choice{.too_many = held / excess, .spared = best_place(holes, bytes)};
    Place& place = choice.spared;
    const std::size_t needed = place.hollow != nullptr ? place.hollow_bytes() : bytes;
    std::size_t growth = place.hollow != nullptr ? growth_at(place, held) : bytes;
    if (held + growth <= peak) return 0;
    const std::size_t free = place.hollow != nullptr ? place.hollow->bytes - growth : SIZE_MAX;
    if (free != 0) place.after = nullptr;
    if (place.after != nullptr) {  // the block ends in it
        const std::size_t lead = place.before != nullptr ? place.before->bytes : 0;
        choice.spared_end = place.after->begin() + (bytes - lead - needed);
    }
    // What moves stays, so it must be allowed to, and have a place there.
    const std::size_t left_over = growth - needed;
    if (!mapped_->moves()) {
        others = true;
    } else if (left_over > idle_limit) {
        growth = needed;
        choice.too_many = 0;
    } else {
        choice.too_many = std::min({choice.too_many, free, idle_limit - left_over});
        // A small block would make its segments small ones' for good.
        if (is_small(bytes)) choice.too_many = std::min(choice.too_many, growth);
    }
    std::size_t taken = 0;
    while (taken < growth) {
        Block* const victim = best_victim(holes, settled, growth - taken, choice);
        const std::size_t part =
            victim != nullptr ? take_segments_of(*victim, growth - taken, choice, into) : 0;
        if (part == 0) break;
        taken += part;
    }
    choice.looks = most_by_age;
    if (others && taken < growth) taken += take_segments(growth - taken, choice, into);
    return taken;
}

std::size_t Arena::take_segments(std::size_t bytes, const Choice& choice, Leaving& into) noexcept {
    std::size_t taken = 0, looks = choice.looks;
    for (Block* hole = ages_.first(); hole != nullptr && taken < bytes && looks > 0; --looks) {
        Block& victim = *hole;
        hole = Ages::after(*hole);
        taken += take_segments_of(victim, bytes - taken, choice, into);
    }
    return taken;
}

/// Returns which of the largest holes has the largest segments to give, on average: each has its price, whatever
/// its size. Null if none of them has any.
Block* Arena::best_victim(const Holes& holes, const Holes& settled, std::size_t wanted,
                          const Choice& choice) const noexcept {
    Block* best = nullptr;
    std::size_t best_mean = 0;
    const auto look_at = [&](const Bins& bins) {
        std::size_t looks = victims;
        for (Block* hole = bins.largest();
             hole != nullptr && hole->bytes >= source_.page() && looks > 0;
             hole = bins.after(*hole), --looks) {
            const auto [begin, end] = segments_of(*hole, wanted, choice);
            if (begin == end) continue;
            const auto bytes = static_cast<std::size_t>(end - begin);
            const std::size_t mean = bytes / mapped_->segments_in(begin, bytes);
            if (mean > best_mean) {
                best = hole;
                best_mean = mean;
            }
        }
    };
    for (const Bins& bins : holes.bins) look_at(bins);
    if (&settled != &holes) {
        for (const Bins& bins : settled.bins) look_at(bins);
    }
    return best;
}

/// Returns where whole segments lie in a hole, as many as make up `wanted` bytes if there are.
MappedSource::Part Arena::segments_of(const Block& victim, std::size_t wanted,
                                      const Choice& choice) const noexcept {
    if (victim.bytes < source_.page() || &victim == choice.spared.before) return {};
    std::byte* const first = &victim == choice.spared.after ? choice.spared_end : victim.begin();
    const std::size_t most = wanted + std::min(choice.too_many, MappedSource::all - wanted);
    return mapped_->segments_within(first, victim.end(), wanted, most);
}

/// Takes them out. Returns how many bytes.
std::size_t Arena::take_segments_of(Block& victim, std::size_t wanted, const Choice& choice,
                                    Leaving& into) noexcept {
    const auto [begin, end] = segments_of(victim, wanted, choice);
    const auto part = static_cast<std::size_t>(end - begin);
    if (part == 0 || (part != victim.bytes && store_.spares() < 2)) return 0;
    Block& segments = cut(victim, begin, end);
    segments.state = BlockState::leaving;
    into.push_back(segments);
    return part;
}

}  // namespace cistern
