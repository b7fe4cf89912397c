// Holes by size, found in O(1) by a bitmap over their classes.

#include "pool/arena.hpp"

namespace cistern {

void Bins::insert(Block& hole) noexcept {
    const std::size_t index = class_of(hole.bytes);
    bins_[index].push_front(hole);
    filled_[index / 64] |= std::uint64_t{1} << (index % 64);
}

void Bins::remove(Block& hole) noexcept {
    const std::size_t index = class_of(hole.bytes);
    bins_[index].remove(hole);
    if (bins_[index].empty()) filled_[index / 64] &= ~(std::uint64_t{1} << (index % 64));
}

std::size_t Bins::at_or_above(std::size_t index) const noexcept {
    std::size_t word = index / 64;
    if (word >= filled_.size()) return detail::class_count;
    std::uint64_t bits = filled_[word] & (~std::uint64_t{0} << (index % 64));
    while (bits == 0) {
        if (++word == filled_.size()) return detail::class_count;
        bits = filled_[word];
    }
    return word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
}

Block* Bins::first_at_or_below(std::size_t index) const noexcept {
    std::size_t word = index / 64;
    std::uint64_t bits = filled_[word] & (~std::uint64_t{0} >> (63 - index % 64));
    while (bits == 0) {
        if (word-- == 0) return nullptr;
        bits = filled_[word];
    }
    return bins_[word * 64 + 63 - static_cast<std::size_t>(std::countl_zero(bits))].first();
}

Block* Bins::find(std::size_t bytes, std::size_t looks) const noexcept {
    const auto smallest_in = [&](std::size_t index) {
        Block* best = nullptr;
        std::size_t left = looks;
        for (Block* hole = bins_[index].first(); hole != nullptr && left-- > 0;
             hole = Bin::after(*hole)) {
            if (hole->bytes >= bytes && (best == nullptr || hole->bytes < best->bytes)) best = hole;
        }
        return best;
    };
    const std::size_t own = class_of(bytes);
    if (Block* const hole = smallest_in(own)) return hole;
    const std::size_t above = at_or_above(own + 1);
    return above < detail::class_count ? smallest_in(above) : nullptr;
}

Block* Bins::largest() const noexcept { return first_at_or_below(detail::class_count - 1); }

Block* Bins::after(const Block& hole) const noexcept {
    if (Block* const next = Bin::after(hole); next != nullptr) return next;
    const std::size_t index = class_of(hole.bytes);
    return index == 0 ? nullptr : first_at_or_below(index - 1);
}

Block* Bins::smallest() const noexcept {
    const std::size_t index = at_or_above(0);
    return index < detail::class_count ? bins_[index].first() : nullptr;
}

}  // namespace cistern
