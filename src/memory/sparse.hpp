#pragma once
// A memory that can back parts of a large reserved address range, and move what backs one part to
// another. The arena stands on this; memories without it lend whole blocks only.
//
// A reserved range starts out hollow: addresses without bytes. commit() gives a part bytes,
// decommit() takes them away, move() carries them elsewhere without copying.

#include <cstddef>

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

}  // namespace cistern
