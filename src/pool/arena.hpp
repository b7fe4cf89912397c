#pragma once
// The arena: one growing address range, split and coalesced.
//
// The range is a chain of blocks without gaps, each out (somebody has it), idle (a hole whose bytes
// are kept) or hollow (a hole without bytes; what lies beyond the last block ever used is one large
// hollow hole). No two idle and no two hollow blocks are neighbours. Holes are filed by size in bins,
// 8 per doubling, with a bitmap over them, so that finding one is O(1).
//
// Idle holes belong to whoever may use their bytes next without waiting (Holes): the host, or a stream.
// Only holes of one owner are joined.
//
// When no idle hole fits, a place is chosen that needs the fewest new bytes, and its hollow part is
// backed: first with pages moved from other idle holes, then with new ones. Counting bytes:
//   out_bytes + idle_bytes = held bytes of the arena; hollow bytes are not held.
//
// A memory that maps segments (MappedSource) is never called from here: the pool does that, with its lock
// free, between begin_growth and end_growth, or while a block is leaving. Where a limit takes a part of a
// segment away, that part is hollow and still backed.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/list.hpp"
#include "base/size_class.hpp"
#include "memory/sparse.hpp"
#include "pool/block.hpp"

namespace cistern {

/// Holes of one kind by size.
class Bins {
public:
    static constexpr std::size_t all_looks = SIZE_MAX;

    void insert(Block& hole) noexcept;
    void remove(Block& hole) noexcept;
    /// Returns a hole of at least `bytes`, nearly the smallest; null if there is none.
    [[nodiscard]] Block* find(std::size_t bytes, std::size_t looks) const noexcept;
    [[nodiscard]] Block* largest() const noexcept;
    [[nodiscard]] Block* smallest() const noexcept;
    /// Returns the hole that comes after `hole` on the way from largest() down, class by class.
    [[nodiscard]] Block* after(const Block& hole) const noexcept;

private:
    using Bin = List<Block, &Block::in_bin>;

    [[nodiscard]] std::size_t at_or_above(std::size_t index) const noexcept;
    [[nodiscard]] Block* first_at_or_below(std::size_t index) const noexcept;

    std::array<std::uint64_t, detail::class_count / 64> filled_{};
    std::array<Bin, detail::class_count> bins_{};
};

/// The idle holes that one order of use has. Where bytes are mapped in segments, small blocks have segments
/// of their own: one of them would keep a large hole from being whole.
struct Holes {
    std::array<Bins, 2> bins;  // of large blocks, of small ones
    bool kept = false;         // for a graph: to everybody else they are lent

    [[nodiscard]] Bins& of(const Block& block) noexcept { return bins[block.small ? 1 : 0]; }
    [[nodiscard]] bool empty() const noexcept { return largest() == nullptr; }
    [[nodiscard]] Block* largest() const noexcept {
        Block* const large = bins[0].largest();
        return large != nullptr ? large : bins[1].largest();
    }
    [[nodiscard]] Block* smallest() const noexcept {
        Block* const small = bins[1].smallest();
        return small != nullptr ? small : bins[0].smallest();
    }
};

/// What moving pages did, since the pool began.
struct Moves {
    std::uint64_t count = 0, bytes = 0;
};

class Arena {
public:
    Arena(SparseSource& source, BlockStore& store, std::size_t grain) noexcept
        : source_(source),
          mapped_(dynamic_cast<MappedSource*>(&source)),
          store_(store),
          grain_(grain) {}
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    /// Every block must have been given back.
    ~Arena();

    /// Whether the memory could serve such a request at all.
    [[nodiscard]] bool could_lend(std::size_t bytes, std::size_t held) const noexcept {
        return source_.could_lend(bytes, held);
    }
    [[nodiscard]] std::string space() const { return source_.space(); }
    /// What the memory has left for whom it likes.
    [[nodiscard]] std::ptrdiff_t bytes_left() const noexcept { return source_.bytes_left(); }
    /// The memory, if it maps segments.
    [[nodiscard]] MappedSource* mapped() const noexcept { return mapped_; }

    /// Lends an idle hole of at least `bytes`, a multiple of the grain; what is left of it stays
    /// idle. Null if there is none. Needs one spare descriptor. A thorough search finds any hole
    /// that fits, at a cost that grows with the holes of that class. Small blocks are looked for among
    /// small ones, or anywhere if the memory has no more.
    enum class Search { quick, thorough, everywhere };
    Block* take_idle(Holes& holes, std::size_t bytes, Search search) noexcept;

    /// Idle holes side by side, from the first to the last, whosever they are but for a graph's.
    struct Run {
        Block* first = nullptr;
        Block* last = nullptr;
    };
    /// Returns holes that make up a block of `bytes`, around one of the largest of `holes`; none if none are found.
    [[nodiscard]] Run find_run(const Holes& holes, std::size_t bytes) const noexcept;
    /// Takes so many bytes of them out; what is left over at an end stays idle. Needs a spare descriptor.
    void take_run(Run& run, std::size_t bytes) noexcept;

    /// How take_new went.
    enum class Outcome { done, over_limit, memory_refused, no_place };
    struct Taken {
        Outcome outcome;
        Block* block;           // when done
        std::size_t new_bytes;  // asked of the memory; when over the limit, that would have been
    };
    /// Which pages of idle holes may be moved under a new block.
    enum class Moving { none, cheap, all };
    /// Lends `bytes` bytes of which some are new, at most `limit`. Changes nothing unless done.
    /// Throws std::bad_alloc.
    Taken take_new(Holes& holes, std::size_t bytes, std::size_t limit, Moving moving);

    /// Blocks that become one: what is idle, what has to be mapped, what is idle after it. All but
    /// `fresh` may be missing; where that is, the bytes are there already.
    struct Growth {
        Outcome outcome = Outcome::done;
        Block* before = nullptr;
        Block* fresh = nullptr;
        Block* after = nullptr;
        Block* spare = nullptr;     // mapped with `fresh`, more than the limit allows to hold
        bool backed = false;        // nothing has to be mapped
        std::size_t new_bytes = 0;  // that are not held yet
    };
    /// The three steps of take_new where the memory maps segments. Reserve four descriptors first.
    /// No place: add a range. Holds at most `limit` bytes more; what is left over stays idle if that
    /// is at most `idle_limit`.
    /// `moved`: so many bytes come from elsewhere, and have to be held.
    Growth begin_growth(Holes& holes, std::size_t bytes, std::size_t limit, std::size_t idle_limit,
                        std::size_t held, std::size_t moved) noexcept;
    Block& end_growth(const Growth& growth, Holes& holes, std::size_t bytes, std::uint64_t now,
                      std::uint64_t order) noexcept;
    void cancel_growth(const Growth& growth) noexcept;
    /// Adds addresses that were reserved. Throws std::bad_alloc.
    void add_range(void* data, std::size_t bytes);
    /// Adds a segment with addresses of its own and lends `bytes` of it. Throws std::bad_alloc.
    Block& add_segment(void* data, std::size_t segment_bytes, Holes& holes, std::size_t bytes,
                       std::uint64_t now, std::uint64_t order);

    /// What is to go back to the memory; the pool takes blocks from this list, waits until nobody uses
    /// their bytes and calls part_with().
    using Leaving = List<Block, &Block::in_bin>;
    [[nodiscard]] Leaving& leaving() noexcept { return leaving_; }
    [[nodiscard]] const Leaving& leaving() const noexcept { return leaving_; }
    /// Makes a block that left hollow. Returns whole segments to unmap, no block's, if there are any;
    /// then unmapped() makes them hollow too, or forgets them if their addresses have gone with them.
    Block* part_with(Block& block) noexcept;
    void unmapped(Block& block) noexcept;
    /// Passes the holes that were idle at `order` on to another owner and joins them with its own.
    void pass_on(Holes& from, Holes& to, std::uint64_t order) noexcept;
    /// Makes holes that were kept for a graph idle, and another owner's.
    void let_free(Holes& from, Holes& to, std::uint64_t now, std::uint64_t order) noexcept;
    /// Lets whole segments in idle holes go, the oldest first, at least `bytes` if there are. Returns how many.
    std::size_t drop_segments(std::size_t bytes) noexcept {
        return take_segments(bytes, {.too_many = SIZE_MAX}, leaving_);
    }
    /// Takes such segments out before a growth for a block of `bytes` beyond the `peak`: as many as it will map, none
    /// of its own place, and none much larger than is wanted; first what nobody has to be waited for, the holes' own
    /// and `settled` ones, of these the largest, and then, if they may be, `others`, by age. The rest is as in begin_growth().
    std::size_t take_segments_for(const Holes& holes, const Holes& settled, std::size_t bytes,
                                  bool others, std::size_t idle_limit, std::size_t held,
                                  std::size_t peak, Leaving& into) noexcept;

    /// Makes a block that is out larger, `bytes` in all, by what follows it: no_place if that is not
    /// free. Needs two spare descriptors.
    Taken extend(Block& block, std::size_t bytes, std::size_t limit) noexcept;
    /// Lends a larger block elsewhere and carries the pages of `block` there; what is left of it is
    /// idle. Throws std::bad_alloc.
    Taken relocate(Block& block, std::size_t bytes, std::size_t limit, std::uint64_t now,
                   std::uint64_t order);

    /// Makes a block idle, joined with its neighbours. Returns the hole.
    Block& give(Block& block, std::uint64_t now, std::uint64_t order) noexcept;
    /// Makes up to `bytes` of an idle hole hollow, rounded up to whole pages where that leaves a part.
    /// Returns how many.
    std::size_t drop(Block& hole, std::size_t bytes) noexcept;
    /// Makes a block hollow at once, without its ever being idle.
    void give_back(Block& block) noexcept;

    [[nodiscard]] Block* oldest() const noexcept { return ages_.first(); }

    [[nodiscard]] std::size_t idle_bytes() const noexcept { return idle_bytes_; }
    [[nodiscard]] std::size_t idle_holes() const noexcept { return idle_holes_; }
    [[nodiscard]] const Moves& moves() const noexcept { return moves_; }
    void count_move(std::size_t bytes) noexcept {
        ++moves_.count;
        moves_.bytes += bytes;
    }

    /// Calls f(block) for every block of the arena, by address.
    template <class F>
    void for_each(F f) const {
        for (const Range& range : ranges_) {
            for (const Block* block = range.first; block != nullptr; block = block->after)
                f(*block);
        }
    }
    /// Checks the invariants above; for tests. Returns what is wrong, or nothing.
    [[nodiscard]] const char* check() const noexcept;

private:
    using Ages = List<Block, &Block::in_age>;
    struct Range {
        std::byte* data;
        std::size_t bytes;
        Block* first;
        std::byte* used_end;  // nothing beyond was ever lent
    };
    /// Where a new block goes: idle, hollow, idle neighbours, the outer ones optional.
    struct Place {
        Block* before = nullptr;
        Block* hollow = nullptr;
        Block* after = nullptr;
        std::byte* backed_end = nullptr;  // where the part of the hollow one that gets bytes ends
        const Holes* holes = nullptr;     // whose idle bytes

        [[nodiscard]] std::size_t hollow_bytes() const noexcept {
            return static_cast<std::size_t>(backed_end - hollow->begin());
        }
    };
    struct Move {
        Block* hole;  // whose pages go
        std::byte* from;
        std::byte* to;
        std::size_t bytes;
    };
    static constexpr std::size_t most_moves = 64;
    struct Plan {
        std::array<Move, most_moves> moves;
        std::size_t count = 0, bytes = 0;
    };

    void add_idle(Block& hole, Block* younger) noexcept;
    void remove_idle(Block& hole) noexcept;
    void add_hollow(Block& hole) noexcept;
    Block& split(Block& block, std::size_t bytes) noexcept;
    void join(Block& block, Block& with_after) noexcept;
    Block& cut(Block& hole, std::byte* begin, std::byte* end) noexcept;
    void let_go(Block& block) noexcept;
    void make_hollow(Block& block, bool moved) noexcept;
    void decommit(const Block& hole, std::byte* begin, std::size_t bytes) noexcept;
    [[nodiscard]] bool is_small(std::size_t bytes) const noexcept {
        return mapped_ != nullptr && bytes < large_from;
    }
    [[nodiscard]] bool joins(const Block& block, const Block& with_after) const noexcept;
    Block& join_hollow(Block& block) noexcept;
    [[nodiscard]] std::size_t growth_at(const Place& place, std::size_t held) const noexcept;
    struct Choice {
        std::size_t too_many;             // beyond what is wanted
        std::size_t looks = SIZE_MAX;     // so many of the oldest holes are looked at
        Place spared = {};                // its neighbours stay,
        std::byte* spared_end = nullptr;  // of the one after it what comes before this
    };
    std::size_t take_segments(std::size_t bytes, const Choice& choice, Leaving& into) noexcept;
    std::size_t take_segments_of(Block& victim, std::size_t wanted, const Choice& choice,
                                 Leaving& into) noexcept;
    [[nodiscard]] Block* best_victim(const Holes& holes, const Holes& settled, std::size_t wanted,
                                     const Choice& choice) const noexcept;
    [[nodiscard]] MappedSource::Part segments_of(const Block& victim, std::size_t wanted,
                                                 const Choice& choice) const noexcept;
    [[nodiscard]] Place best_place(const Holes& holes, std::size_t bytes,
                                   std::size_t least = 0) const noexcept;
    [[nodiscard]] Plan plan_moves(Place& place, Moving moving) const noexcept;
    void plan_moves(Plan& plan, const Place& place, std::byte* begin, std::byte* end,
                    std::size_t step) const noexcept;
    Block& carve(const Place& place, Holes& holes, std::size_t bytes, bool fresh) noexcept;
    void move_pages(const Plan& plan) noexcept;
    void carry(std::byte* from, std::byte* to, std::size_t bytes) noexcept;
    void grow_ranges(std::size_t bytes);
    void forget_range(Block& only) noexcept;
    void note_use(const Block& block) noexcept;

    SparseSource& source_;
    MappedSource* mapped_;
    BlockStore& store_;
    std::size_t grain_;
    std::vector<Range> ranges_;
    Bins hollow_, backed_;
    Leaving leaving_;
    Ages ages_;
    std::size_t idle_bytes_ = 0, idle_holes_ = 0;
    Moves moves_;
};

}  // namespace cistern
