#pragma once
// The shelf keeps whole idle blocks: those of the fits that never split, those of memories that lend
// whole blocks only, and adopted ones. Found by element type and size, the last released first.
//
// Nodes of the tree are made when a block is, and reused, so that a release never allocates.

#include <cstddef>
#include <set>
#include <vector>

#include "base/list.hpp"
#include "cistern/pool.hpp"
#include "pool/block.hpp"

namespace cistern {

class Shelf {
public:
    explicit Shelf(const Fit& fit) noexcept : fit_(fit) {}

    /// Makes room for one more block, lent or kept. Throws std::bad_alloc.
    void add_room();
    void remove_room() noexcept;

    /// Whether the fit lets a block serve a request that it is large enough for.
    [[nodiscard]] bool allows(std::size_t block_bytes, std::size_t bytes) const noexcept;
    /// Returns the smallest block of this type that the fit allows for `bytes`; null if none.
    Block* take(std::size_t bytes, std::size_t type) noexcept;
    void put(Block& block) noexcept;
    void remove(Block& block) noexcept;

    [[nodiscard]] Block* oldest() const noexcept { return ages_.first(); }
    [[nodiscard]] Block* smallest() const noexcept;
    [[nodiscard]] Block* largest() const noexcept;
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::size_t count() const noexcept { return blocks_.size(); }

    template <class F>
    void for_each(F f) const {
        for (const Block* block : blocks_) f(*block);
    }

private:
    struct Wanted {
        std::size_t type, bytes;
    };
    struct Less {
        using is_transparent = void;
        bool operator()(const Block* a, const Block* b) const noexcept {
            if (a->type != b->type) return a->type < b->type;
            if (a->bytes != b->bytes) return a->bytes < b->bytes;
            return a->order > b->order;
        }
        bool operator()(const Block* a, const Wanted& b) const noexcept {
            return a->type != b.type ? a->type < b.type : a->bytes < b.bytes;
        }
        bool operator()(const Wanted& a, const Block* b) const noexcept {
            return a.type != b->type ? a.type < b->type : a.bytes < b->bytes;
        }
    };
    using Blocks = std::set<Block*, Less>;

    Fit fit_;
    Blocks blocks_;
    std::vector<Blocks::node_type> nodes_;
    List<Block, &Block::in_age> ages_;
    std::size_t room_ = 0, bytes_ = 0;
};

}  // namespace cistern
