#pragma once
// A memory that can back parts of a large reserved address range, and move what backs one part to
// another. The arena stands on this; memories without it lend whole blocks only.
//
// A reserved range starts out hollow: addresses without bytes. commit() gives a part bytes,
// decommit() takes them away, move() carries them elsewhere without copying.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cistern/memory.hpp"

namespace cistern {

class SparseSource : public MemorySource {
public:
    /// Returns how many bytes of address space a range should have, at least `bytes`.
    [[nodiscard]] virtual std::size_t range_bytes(std::size_t bytes) const noexcept = 0;
    /// Reserves addresses, aligned to step(); null if there are none.
    virtual void* reserve(std::size_t bytes) = 0;
    virtual void unreserve(void* range, std::size_t bytes) noexcept = 0;

    /// The unit of decommit; the unit in which moving is cheapest; and the smallest unit worth moving.
    /// Powers of two, page() <= least_move() <= move_step().
    [[nodiscard]] virtual std::size_t page() const noexcept = 0;
    [[nodiscard]] virtual std::size_t move_step() const noexcept = 0;
    [[nodiscard]] virtual std::size_t least_move() const noexcept = 0;

    /// Whether it could serve a request of so many bytes of a pool that holds so many, whatever came back. Calls no
    /// driver: the pool's lock is held.
    [[nodiscard]] virtual bool could_lend(std::size_t /*bytes*/,
                                          std::size_t /*held*/) const noexcept {
        return true;
    }
    /// Returns ", the device has ...", for errors; nothing if that says nothing.
    [[nodiscard]] virtual std::string space() const { return {}; }
    /// Returns how many more bytes it likes to lend, negative if it has lent too many: beyond that, idle ones are
    /// given up first.
    [[nodiscard]] virtual std::ptrdiff_t bytes_left() const noexcept { return PTRDIFF_MAX; }
    /// Makes these hollow bytes usable, reading as zero; false if the memory is exhausted.
    [[nodiscard]] virtual bool commit(void* data, std::size_t bytes) noexcept = 0;
    /// Makes these bytes hollow. [pages, pages + page_bytes) are the whole pages that no longer
    /// hold any usable byte.
    virtual void decommit(void* data, std::size_t bytes, void* pages,
                          std::size_t page_bytes) noexcept = 0;
    /// Carries what backs `from` to the hollow bytes at `to`; both are then as if `from` had been
    /// decommitted and `to` committed. False, changing nothing, if it cannot. Whole pages.
    virtual bool move(void* from, void* to, std::size_t bytes) noexcept = 0;
};

/// A sparse memory whose driver may take its time, or wait for work that itself waits for the pool: its
/// calls are made with no lock held, on addresses that nobody else uses meanwhile. Bytes come and go in
/// segments, each a multiple of page(), and are not zero at first.
class MappedSource : public SparseSource {
public:
    struct Part {
        std::byte* begin = nullptr;
        std::byte* end = nullptr;
    };
    using Parts = std::span<const Part>;

    /// Gives hollow addresses bytes, in one segment or more. First come those of `moved`, whole segments of
    /// at most as many bytes, which have two places from then on; only where moves(). False if the memory is
    /// exhausted; throws DeviceError if it failed. Changes nothing unless it returns true.
    [[nodiscard]] virtual bool map(void* data, std::size_t bytes, Parts moved) = 0;
    /// Takes whole segments away from addresses that nobody uses any more. Returns how many bytes went back to the
    /// memory: those that have no other place.
    virtual std::size_t unmap(void* data, std::size_t bytes) noexcept = 0;
    /// Whether segments can have a second place.
    [[nodiscard]] virtual bool moves() const noexcept = 0;
    /// Whether addresses are there before and after their bytes. If not, none can be reserved: allocate() makes a
    /// segment with addresses of its own, and unmap() takes them away, too; then they may be anybody's at once.
    [[nodiscard]] virtual bool keeps_addresses() const noexcept { return true; }
    /// Returns how much to map where `bytes` more are needed and `held` are there: at least that.
    [[nodiscard]] virtual std::size_t growth(std::size_t bytes,
                                             std::size_t held) const noexcept = 0;
    /// Whether bytes of two segments cannot be used as one.
    [[nodiscard]] virtual bool seams() const noexcept = 0;

    /// Returns how many segments lie in a part.
    [[nodiscard]] virtual std::size_t segments_in(const std::byte* begin,
                                                  std::size_t bytes) const noexcept = 0;

    static constexpr std::size_t all = SIZE_MAX;
    /// Returns from where to where the last segments lie that are wholly in [begin, end), as few as make up `enough`
    /// bytes, or all, but no more than `most` bytes; empty if there are none. Makes no call to the driver.
    [[nodiscard]] virtual Part segments_within(std::byte* begin, std::byte* end, std::size_t enough,
                                               std::size_t most) const noexcept = 0;

    bool commit(void*, std::size_t) noexcept final { return false; }
    void decommit(void*, std::size_t, void*, std::size_t) noexcept final {}
    bool move(void*, void*, std::size_t) noexcept final { return false; }
    [[nodiscard]] std::size_t move_step() const noexcept final { return page(); }
    [[nodiscard]] std::size_t least_move() const noexcept final { return page(); }
};

}  // namespace cistern
