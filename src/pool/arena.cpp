#include "pool/arena.hpp"

#include <algorithm>
#include <cstdint>

#include "memory/watch.hpp"

namespace cistern {

namespace {

constexpr std::size_t few_looks = 8;  // at holes of the request's own class, or the largest ones
constexpr std::size_t no_bound = ~std::size_t{0};

}  // namespace

// --- The chain of blocks ----------------------------------------------------------------------------

Arena::~Arena() {
    for (const Range& range : ranges_) {
        for (Block* block = range.first; block != nullptr;) {
            Block& gone = *block;
            block = block->after;
            if (gone.state != BlockState::hollow && mapped_ == nullptr) {
                source_.decommit(gone.data, gone.bytes + gone.slack, nullptr, 0);
            }
            store_.give(gone);
        }
        if (source_.host_accessible()) {
            mark_defined(range.data, static_cast<std::size_t>(range.used_end - range.data));
        }
        if (mapped_ != nullptr) {
            const auto [begin, end] = mapped_->segments_within(
                range.data, range.data + range.bytes, MappedSource::all, MappedSource::all);
            if (begin != end) mapped_->unmap(begin, static_cast<std::size_t>(end - begin));
        }
        source_.unreserve(range.data, range.bytes);
    }
}

/// Files a hole; in the order of ages it comes just before `younger`, or last.
void Arena::add_idle(Block& hole, Block* younger) noexcept {
    hole.state = BlockState::idle;
    hole.holes->of(hole).insert(hole);
    if (hole.holes->kept) return;
    ages_.insert_before(younger, hole);
    idle_bytes_ += hole.bytes;
    ++idle_holes_;
}

void Arena::remove_idle(Block& hole) noexcept {
    hole.holes->of(hole).remove(hole);
    if (hole.holes->kept) return;
    ages_.remove(hole);
    idle_bytes_ -= hole.bytes;
    --idle_holes_;
}

void Arena::add_hollow(Block& hole) noexcept {
    hole.state = BlockState::hollow;
    hole.zero = mapped_ == nullptr;
    hollow_.insert(hole);
}

/// Cuts a block that is in no bin after `bytes`; returns the rest, in no bin and of the same state.
Block& Arena::split(Block& block, std::size_t bytes) noexcept {
    Block& rest = store_.take();
    rest.data = block.begin() + bytes;
    rest.bytes = block.bytes - bytes;
    rest.state = block.state;
    rest.in_arena = true;
    rest.zero = block.zero;
    rest.backed = block.backed;
    rest.small = block.small;
    rest.holes = block.holes;
    rest.released_at = block.released_at;
    rest.order = block.order;
    rest.before = &block;
    rest.after = block.after;
    if (rest.after != nullptr) rest.after->before = &rest;
    block.after = &rest;
    block.bytes = bytes;
    return rest;
}

/// Joins a block with the one after it; neither is in a bin.
void Arena::join(Block& block, Block& with_after) noexcept {
    block.bytes += with_after.bytes;
    block.zero = block.zero && with_after.zero;
    block.order = std::max(block.order, with_after.order);
    block.after = with_after.after;
    if (block.after != nullptr) block.after->before = &block;
    store_.give(with_after);
}

/// Whether a hole and the one after it become one.
bool Arena::joins(const Block& block, const Block& with_after) const noexcept {
    return block.state == with_after.state && block.holes == with_after.holes &&
           block.backed == with_after.backed && block.small == with_after.small && !with_after.seam;
}

Block* Arena::take_idle(Holes& holes, std::size_t bytes, Search search) noexcept {
    const std::size_t own = is_small(bytes) ? 1 : 0;
    const std::size_t looks = search == Search::quick ? few_looks : Bins::all_looks;
    Block* hole = holes.bins[own].find(bytes, looks);
    if (hole == nullptr && search == Search::everywhere)
        hole = holes.bins[1 - own].find(bytes, looks);
    if (hole == nullptr) return nullptr;
    Block* const younger = Ages::after(*hole);
    remove_idle(*hole);
    if (hole->bytes > bytes) add_idle(split(*hole, bytes), younger);
    hole->state = BlockState::out;
    return hole;
}

Arena::Run Arena::find_run(const Holes& holes, std::size_t bytes) const noexcept {
    const Bins& bins = holes.bins[is_small(bytes) ? 1 : 0];
    const auto goes_on = [&](const Block* block) {
        return block != nullptr && block->state == BlockState::idle && !block->holes->kept &&
               block->small == is_small(bytes);
    };
    std::size_t looks = few_looks;
    for (Block* hole = bins.largest(); hole != nullptr && looks-- > 0; hole = bins.after(*hole)) {
        Run run{hole, hole};
        std::size_t sum = hole->bytes;
        while (sum < bytes && goes_on(run.last->after) && !run.last->after->seam) {
            run.last = run.last->after;
            sum += run.last->bytes;
        }
        while (sum < bytes && !run.first->seam && goes_on(run.first->before)) {
            run.first = run.first->before;
            sum += run.first->bytes;
        }
        if (sum >= bytes) return run;
    }
    return {};
}

void Arena::take_run(Run& run, std::size_t bytes) noexcept {
    // More than is wanted is only in the hole that was added last, at either end.
    // cppcheck-suppress mismatchingContainerExpression; they are blocks
    const auto over = static_cast<std::size_t>(run.last->end() - run.first->begin()) - bytes;
    const std::size_t behind = over < run.last->bytes ? over : 0, ahead = over - behind;
    const Run found = run;
    for (Block* block = found.first;; block = run.last->after) {
        const bool is_first = block == found.first, is_last = block == found.last;
        Block& part = cut(*block, block->begin() + (is_first ? ahead : 0),
                          block->end() - (is_last ? behind : 0));
        part.state = BlockState::out;
        if (is_first) run.first = &part;
        run.last = &part;
        if (is_last) return;
    }
}

Block& Arena::give(Block& block, std::uint64_t now, std::uint64_t order) noexcept {
    Block* hole = &block;
    block.bytes += block.slack;
    block.slack = 0;
    block.zero = false;
    block.state = BlockState::idle;
    if (Block* const before = block.before; before != nullptr && joins(*before, block)) {
        remove_idle(*before);
        join(*before, block);
        hole = before;
    }
    if (Block* const after = hole->after; after != nullptr && joins(*hole, *after)) {
        remove_idle(*after);
        join(*hole, *after);
    }
    hole->released_at = now;
    hole->order = std::max(hole->order, order);
    add_idle(*hole, nullptr);
    return *hole;
}

// --- Giving bytes back ------------------------------------------------------------------------------

/// Gives the pages under [begin, begin + bytes), part of a hollow hole, back to the memory, with those
/// they share with the rest of the hole. What shares a page with others is zeroed: hollow reads as zero.
void Arena::decommit(const Block& hole, std::byte* begin, std::size_t bytes) noexcept {
    const std::size_t page = source_.page();
    const auto number = [](const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); };
    const std::uintptr_t first = number(begin), last = first + bytes;
    const std::uintptr_t pages_begin =
        std::max(round_down(first, page), round_up(number(hole.begin()), page));
    const std::uintptr_t pages_end =
        std::min(round_up(last, page), round_down(number(hole.end()), page));
    const bool any = pages_end > pages_begin;
    const auto wipe = [&](std::uintptr_t from, std::uintptr_t to) {
        if (to <= from) return;
        std::byte* const at = begin + (from - first);
        if (source_.host_accessible()) mark_defined(at, to - from);
        source_.zero(at, to - from);
        if (source_.host_accessible()) mark_idle(at, to - from);
    };
    wipe(first, any ? pages_begin : last);
    if (any) wipe(pages_end, last);
    source_.decommit(begin, bytes, begin + static_cast<std::ptrdiff_t>(pages_begin - first),
                     any ? pages_end - pages_begin : 0);
}

/// Has a block that is in no bin go back to the memory, now or once the pool's lock is free.
void Arena::let_go(Block& block) noexcept {
    if (mapped_ == nullptr) return make_hollow(block, false);
    block.state = BlockState::leaving;
    leaving_.push_back(block);
}

/// Makes a block that is in no bin hollow. If its pages were moved away, nothing is left to give back.
void Arena::make_hollow(Block& block, bool moved) noexcept {
    std::byte* const begin = block.begin();
    const std::size_t bytes = block.bytes;
    Block& hole = join_hollow(block);
    if (!moved) decommit(hole, begin, bytes);
    add_hollow(hole);
}

/// Joins a block that becomes hollow with its neighbours; returns the hole, in no bin.
Block& Arena::join_hollow(Block& block) noexcept {
    Block* hole = &block;
    block.state = BlockState::hollow;
    block.holes = nullptr;
    block.small = false;
    Bins& bins = block.backed ? backed_ : hollow_;
    if (Block* const before = block.before; before != nullptr && joins(*before, block)) {
        bins.remove(*before);
        join(*before, block);
        hole = before;
    }
    if (Block* const after = hole->after; after != nullptr && joins(*hole, *after)) {
        bins.remove(*after);
        join(*hole, *after);
    }
    return *hole;
}

void Arena::give_back(Block& block) noexcept {
    block.bytes += block.slack;
    block.slack = 0;
    let_go(block);
}

std::size_t Arena::drop(Block& hole, std::size_t bytes) noexcept {
    const std::size_t part =
        round_up(std::min(bytes, hole.bytes), std::max(source_.page(), grain_));
    const bool all = part >= hole.bytes || store_.spares() < 2;
    Block& dropped = cut(hole, all ? hole.begin() : hole.end() - part, hole.end());
    const std::size_t gone = dropped.bytes;
    let_go(dropped);
    return gone;
}

/// Takes [begin, end) of an idle hole out; it is in no bin then. Needs two spare descriptors if that leaves a part.
Block& Arena::cut(Block& hole, std::byte* begin, std::byte* end) noexcept {
    Block* const younger = Ages::after(hole);
    remove_idle(hole);
    Block* part = &hole;
    if (begin > hole.begin()) {
        part = &split(hole, static_cast<std::size_t>(begin - hole.begin()));
        add_idle(hole, younger);
    }
    const auto bytes = static_cast<std::size_t>(end - begin);
    if (part->bytes > bytes) add_idle(split(*part, bytes), younger);
    return *part;
}

// --- Growing ----------------------------------------------------------------------------------------

/// Returns where `bytes` bytes need the fewest new ones: in the hollow hole that fits best, or beside
/// one of the largest idle holes; only hollow holes of `least` bytes count. No hollow hole: there is no such place.
Arena::Place Arena::best_place(const Holes& holes, std::size_t bytes,
                               std::size_t least) const noexcept {
    const bool seams = mapped_ != nullptr && mapped_->seams();
    const auto idle = [&](Block* block, std::size_t below) {
        const bool usable = block != nullptr && block->state == BlockState::idle &&
                            block->holes == &holes && block->small == is_small(bytes) &&
                            block->bytes < below && !seams;
        return usable ? block : nullptr;
    };
    Place best;
    const auto consider = [&](Block* hollow) {
        if (hollow == nullptr || hollow->state != BlockState::hollow || hollow->backed) return;
        if (hollow->bytes < least) return;
        Place place{idle(hollow->before, bytes), hollow, idle(hollow->after, no_bound), nullptr,
                    &holes};
        const std::size_t lead = place.before != nullptr ? place.before->bytes : 0;
        const std::size_t tail = place.after != nullptr ? place.after->bytes : 0;
        if (lead + hollow->bytes + tail < bytes) return;
        place.backed_end = hollow->begin() + std::min(hollow->bytes, bytes - lead);
        if (best.hollow == nullptr || place.hollow_bytes() < best.hollow_bytes()) best = place;
    };
    consider(hollow_.find(std::max(bytes, least), few_looks));
    const Bins& bins = holes.bins[is_small(bytes) ? 1 : 0];
    std::size_t looks = few_looks;
    for (Block* hole = bins.largest(); hole != nullptr && looks > 0;
         hole = bins.after(*hole), --looks) {
        consider(hole->after);
        consider(hole->before);
    }
    return best;
}

/// Chooses idle pages to move under the hollow part of a new block: in steps that are cheap to move,
/// the last one whole even if only its beginning is needed; then, if all are wanted, in small steps
/// where that leaves gaps.
Arena::Plan Arena::plan_moves(Place& place, Moving moving) const noexcept {
    Plan plan;
    if (moving == Moving::none) return plan;
    std::byte* const begin = place.hollow->begin();
    std::byte* const end = place.backed_end;
    const std::size_t step = source_.move_step();
    const std::size_t over = -reinterpret_cast<std::uintptr_t>(end) & (step - 1);
    if (over != 0 && over <= static_cast<std::size_t>(place.hollow->end() - end)) {
        plan_moves(plan, place, begin, end + over, step);
        if (plan.count != 0 && plan.moves[0].to + plan.bytes == end + over) {
            place.backed_end = end + over;
            return plan;
        }
        plan = {};
    }
    plan_moves(plan, place, begin, end, step);
    if (moving == Moving::cheap) return plan;
    std::byte* const moved_begin = plan.count != 0 ? plan.moves[0].to : end;
    std::byte* const moved_end = plan.count != 0 ? moved_begin + plan.bytes : end;
    plan_moves(plan, place, begin, moved_begin, source_.least_move());
    plan_moves(plan, place, moved_end, end, source_.least_move());
    return plan;
}

/// Adds moves into [begin, end), the largest holes first.
void Arena::plan_moves(Plan& plan, const Place& place, std::byte* begin, std::byte* end,
                       std::size_t step) const noexcept {
    const auto rest = [step](const std::byte* at) {
        return reinterpret_cast<std::uintptr_t>(at) & (step - 1);
    };
    const auto up = [&](std::byte* at) { return at + (-rest(at) & (step - 1)); };
    const auto down = [&](std::byte* at) { return at - rest(at); };
    const auto planned = [&plan](const Block* hole) {
        return std::any_of(plan.moves.data(), plan.moves.data() + plan.count,
                           [hole](const Move& move) { return move.hole == hole; });
    };
    const auto beyond = static_cast<std::size_t>(place.hollow->end() - place.backed_end);
    const bool reaches_after = beyond < source_.move_step();  // the end may be rounded up to that
    std::byte* to = up(begin);
    std::byte* const to_end = down(end);
    std::size_t looks = 4 * most_moves;
    const Bins& idle = place.holes->bins[0];
    for (Block* hole = idle.largest(); hole != nullptr && looks-- > 0; hole = idle.after(*hole)) {
        if (to >= to_end || plan.count == most_moves || hole->bytes < step) return;
        std::byte* const first = up(hole->begin());
        std::byte* const last = down(hole->end());
        const bool of_place = hole == place.before || (hole == place.after && reaches_after);
        if (last <= first || of_place || planned(hole)) continue;
        const std::size_t part = static_cast<std::size_t>(std::min(last - first, to_end - to));
        plan.moves[plan.count++] = {hole, last - part, to, part};
        plan.bytes += part;
        to += part;
    }
}

void Arena::move_pages(const Plan& plan) noexcept {
    for (std::size_t i = 0; i < plan.count; ++i) {
        const Move& move = plan.moves[i];
        const bool moved = source_.move(move.from, move.to, move.bytes);
        Block& part = cut(*move.hole, move.from, move.from + move.bytes);
        if (moved) {
            make_hollow(part, true);
            count_move(move.bytes);
        } else {
            let_go(part);
            // New pages instead; as many bytes were just decommitted, so there is room.
            static_cast<void>(source_.commit(move.to, move.bytes));
        }
    }
}

void Arena::grow_ranges(std::size_t bytes) {
    store_.reserve(1);
    ranges_.reserve(ranges_.size() + 1);
    std::size_t size = source_.range_bytes(bytes);
    void* data = source_.reserve(size);
    while (data == nullptr && size / 2 >= bytes) {
        size = round_up(size / 2, source_.move_step());
        data = source_.reserve(size);
    }
    if (data != nullptr) add_range(data, size);
}

void Arena::add_range(void* data, std::size_t bytes) {
    store_.reserve(1);
    if (ranges_.size() == ranges_.capacity()) ranges_.reserve(2 * ranges_.size() + 1);
    Block& hole = store_.take();
    hole.data = data;
    hole.bytes = bytes;
    hole.in_arena = true;
    auto* const begin = static_cast<std::byte*>(data);
    ranges_.push_back({begin, bytes, &hole, begin});
    add_hollow(hole);
}

void Arena::forget_range(Block& only) noexcept {
    const auto range = std::find_if(ranges_.begin(), ranges_.end(),
                                    [&](const Range& one) { return one.first == &only; });
    *range = ranges_.back();
    ranges_.pop_back();
    store_.give(only);
}

void Arena::note_use(const Block& block) noexcept {
    for (Range& range : ranges_) {
        if (block.begin() >= range.data && block.begin() < range.data + range.bytes) {
            range.used_end = std::max(range.used_end, block.end());
        }
    }
}

/// Makes the new block of what is idle before the hollow part, that part, and what it needs of the
/// idle hole after. What was backed beyond it becomes idle. Fresh: no pages are moved there.
Block& Arena::carve(const Place& place, Holes& holes, std::size_t bytes, bool fresh) noexcept {
    Block* block = place.hollow;
    hollow_.remove(*block);
    if (block->end() > place.backed_end) add_hollow(split(*block, place.hollow_bytes()));
    if (place.before != nullptr) {
        remove_idle(*place.before);
        join(*place.before, *block);
        block = place.before;
    }
    Block* younger = nullptr;
    if (place.after != nullptr && block->after == place.after) {
        younger = Ages::after(*place.after);
        remove_idle(*place.after);
        join(*block, *place.after);
    }
    block->zero = block->zero && fresh;  // of what is left over, too
    block->holes = &holes;
    if (block->bytes > bytes) add_idle(split(*block, bytes), younger);
    block->state = BlockState::out;
    return *block;
}

Arena::Taken Arena::take_new(Holes& holes, std::size_t bytes, std::size_t limit, Moving moving) {
    Place place = best_place(holes, bytes);
    if (place.hollow == nullptr) {
        grow_ranges(bytes);
        place = best_place(holes, bytes);
        if (place.hollow == nullptr) return {Outcome::memory_refused, nullptr, bytes};
    }
    const Plan plan = plan_moves(place, moving);
    store_.reserve(2 + 2 * plan.count);
    const std::size_t new_bytes = place.hollow_bytes() - plan.bytes;
    if (new_bytes > limit) return {Outcome::over_limit, nullptr, new_bytes};
    if (!source_.commit(place.hollow->data, new_bytes)) {
        return {Outcome::memory_refused, nullptr, new_bytes};
    }
    Block& block = carve(place, holes, bytes, plan.count == 0);
    note_use(block);
    move_pages(plan);
    return {Outcome::done, &block, new_bytes};
}

// --- Larger blocks ----------------------------------------------------------------------------------

Arena::Taken Arena::extend(Block& block, std::size_t bytes, std::size_t limit) noexcept {
    const std::size_t more = bytes - block.bytes;
    Block* const idle =
        block.after != nullptr && block.after->state == BlockState::idle ? block.after : nullptr;
    Block* hollow = idle != nullptr ? idle->after : block.after;
    const std::size_t ready = idle != nullptr ? std::min(idle->bytes, more) : 0;
    const std::size_t fresh = more - ready;
    if (fresh != 0 &&
        (hollow == nullptr || hollow->state != BlockState::hollow || hollow->bytes < fresh)) {
        return {Outcome::no_place, nullptr, 0};
    }
    if (fresh > limit) return {Outcome::over_limit, nullptr, fresh};
    if (fresh != 0 && !source_.commit(hollow->data, fresh)) {
        return {Outcome::memory_refused, nullptr, fresh};
    }
    if (idle != nullptr) {
        Block* const younger = Ages::after(*idle);
        remove_idle(*idle);
        if (idle->bytes > ready) add_idle(split(*idle, ready), younger);
        join(block, *idle);
    }
    if (fresh != 0) {
        hollow_.remove(*hollow);
        if (hollow->bytes > fresh) add_hollow(split(*hollow, fresh));
        join(block, *hollow);
    }
    note_use(block);
    return {Outcome::done, &block, fresh};
}

/// Carries bytes to hollow ones, by pages where the memory can, else by copying. Leaves none behind.
void Arena::carry(std::byte* from, std::byte* to, std::size_t bytes) noexcept {
    if (bytes == 0) return;
    if (source_.move(from, to, bytes)) return count_move(bytes);
    // Pages that came from several places may not move together.
    if (const std::size_t step = source_.move_step(); bytes > step) {
        const std::size_t lead = -reinterpret_cast<std::uintptr_t>(from) & (step - 1);
        const std::size_t half = bytes / 2 > step ? round_down(bytes / 2, step) : 0;
        const std::size_t part = lead != 0 && lead < bytes ? lead : half != 0 ? half : step;
        carry(from, to, part);
        carry(from + part, to + part, bytes - part);
        return;
    }
    static_cast<void>(source_.commit(to, bytes));
    source_.copy(to, from, bytes);
    source_.decommit(from, bytes, from, bytes);
}

Arena::Taken Arena::relocate(Block& block, std::size_t bytes, std::size_t limit, std::uint64_t now,
                             std::uint64_t order) {
    // The same place in a step, so that whole steps move.
    const std::size_t step = source_.move_step(), page = source_.page();
    if (bytes > no_bound / 4) return {Outcome::memory_refused, nullptr, bytes};
    Block* hollow = hollow_.find(bytes + step, few_looks);
    if (hollow == nullptr) {
        grow_ranges(bytes + step);
        hollow = hollow_.find(bytes + step, few_looks);
        if (hollow == nullptr) return {Outcome::memory_refused, nullptr, bytes};
    }
    store_.reserve(4);
    const auto number = [](const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); };
    const std::size_t lead = (number(block.begin()) - number(hollow->begin())) & (step - 1);
    const std::size_t first = -number(block.begin()) & (page - 1);
    const std::size_t rest = number(block.end()) & (page - 1);
    const std::size_t carried =
        block.bytes > first + rest ? block.bytes - first - rest : 0;  // whole pages of it
    const std::size_t fresh = bytes - carried;
    if (fresh > limit) return {Outcome::over_limit, nullptr, fresh};
    if (!source_.commit(hollow->begin() + lead, fresh)) {
        return {Outcome::memory_refused, nullptr, fresh};
    }
    hollow_.remove(*hollow);
    Block* larger = hollow;
    if (lead != 0) {
        larger = &split(*hollow, lead);
        add_hollow(*hollow);
    }
    if (larger->bytes > bytes) add_hollow(split(*larger, bytes));
    larger->state = BlockState::out;
    larger->holes = block.holes;
    larger->zero = false;
    note_use(*larger);
    if (source_.host_accessible()) {  // copied as a whole, waste and all
        mark_defined(block.data, block.bytes);
        mark_defined(larger->data, larger->bytes);
    }
    if (carried == 0) {
        source_.copy(larger->data, block.data, block.bytes);
    } else {
        source_.copy(larger->data, block.data, first);
        source_.copy(larger->begin() + first + carried, block.begin() + first + carried, rest);
        carry(block.begin() + first, larger->begin() + first, carried);
    }
    std::byte* const begin = block.begin() + first;
    ++block.generation;  // its loan goes on elsewhere
    Block& hole = give(block, now, order);
    if (carried != 0) make_hollow(cut(hole, begin, begin + carried), true);
    return {Outcome::done, larger, fresh};
}

const char* Arena::check() const noexcept {
    std::size_t idle_bytes = 0, idle_holes = 0;
    for (const Range& range : ranges_) {
        const std::byte* at = range.data;
        const Block* before = nullptr;
        for (const Block* block = range.first; block != nullptr; block = block->after) {
            if (block->begin() != at) return "blocks do not follow each other";
            if (block->before != before) return "a block's neighbour does not know it";
            if (block->bytes == 0) return "a block is empty";
            if (before != nullptr && joins(*before, *block) &&
                (block->state == BlockState::idle || block->state == BlockState::hollow)) {
                return "two holes of one kind are neighbours";
            }
            if (block->state == BlockState::spare) return "a spare descriptor is in the chain";
            if (block->state == BlockState::idle && !block->holes->kept) {
                idle_bytes += block->bytes;
                ++idle_holes;
            }
            at = block->end();
            before = block;
        }
        if (at != range.data + range.bytes) {
            return "blocks do not fill the range";
        }
    }
    if (idle_bytes != idle_bytes_ || idle_holes != idle_holes_) return "idle bytes are miscounted";
    return nullptr;
}

}  // namespace cistern
