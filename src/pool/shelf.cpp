#include "pool/shelf.hpp"

#include <utility>

#include "base/size_class.hpp"

namespace cistern {

void Shelf::add_room() {
    // Room for all nodes at once, so that taking a block never grows the vector.
    if (nodes_.capacity() <= room_) nodes_.reserve(2 * room_ + 16);
    Blocks one;
    one.insert(nullptr);
    nodes_.push_back(one.extract(one.begin()));
    ++room_;
}

void Shelf::remove_room() noexcept {
    nodes_.pop_back();
    --room_;
}

bool Shelf::allows(std::size_t block_bytes, std::size_t bytes) const noexcept {
    if (std::holds_alternative<ExactFit>(fit_)) return block_bytes == bytes;
    if (const auto* const best = std::get_if<BestFit>(&fit_)) {
        return static_cast<double>(block_bytes - bytes) <=
               best->max_waste * static_cast<double>(block_bytes);
    }
    if (std::holds_alternative<FixedBlock>(fit_)) return true;
    // Elastic where nothing can be split: no more waste than a size class has.
    return block_bytes - bytes <= block_bytes / 8;
}

Block* Shelf::take(std::size_t bytes, std::size_t type) noexcept {
    const auto found = blocks_.lower_bound(Wanted{type, bytes});
    if (found == blocks_.end() || (*found)->type != type) return nullptr;
    Block* const block = *found;
    if (!allows(block->bytes, bytes)) return nullptr;
    remove(*block);
    return block;
}

void Shelf::put(Block& block) noexcept {
    auto node = std::move(nodes_.back());
    nodes_.pop_back();
    node.value() = &block;
    blocks_.insert(std::move(node));
    ages_.push_back(block);
    bytes_ += block.bytes;
    block.state = BlockState::shelved;
}

void Shelf::remove(Block& block) noexcept {
    nodes_.push_back(blocks_.extract(&block));
    ages_.remove(block);
    bytes_ -= block.bytes;
    block.state = BlockState::out;
}

Block* Shelf::smallest() const noexcept {
    Block* smallest = nullptr;
    for (auto it = blocks_.begin(); it != blocks_.end();
         it = blocks_.upper_bound(Wanted{(*it)->type, no_limit})) {
        if (smallest == nullptr || (*it)->bytes < smallest->bytes) smallest = *it;
    }
    return smallest;
}

Block* Shelf::largest() const noexcept {
    Block* largest = nullptr;
    for (auto it = blocks_.begin(); it != blocks_.end();) {
        const auto next = blocks_.upper_bound(Wanted{(*it)->type, no_limit});
        Block* const last = *std::prev(next);
        if (largest == nullptr || last->bytes > largest->bytes) largest = last;
        it = next;
    }
    return largest;
}

}  // namespace cistern
