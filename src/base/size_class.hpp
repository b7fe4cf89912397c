#pragma once
// Size classes: 8 per doubling, so a block is at most 1/8 larger than the smallest request it serves.
// Requests look up (class_of_last); holes are filed down (class_of), so that every hole of a higher
// class fits.

#include <algorithm>
#include <bit>
#include <cstddef>

#include "cistern/detail/front.hpp"

namespace cistern {

inline constexpr std::size_t smallest_grain = 64;
inline constexpr std::size_t largest_rounded_to_class = 32 << 10;

/// Returns `bytes` rounded up to a multiple of `step`, a power of two. The caller checks overflow.
constexpr std::size_t round_up(std::size_t bytes, std::size_t step) noexcept {
    return (bytes + step - 1) & ~(step - 1);
}
constexpr std::size_t round_down(std::size_t bytes, std::size_t step) noexcept {
    return bytes & ~(step - 1);
}

/// Returns the class that holes of `bytes` bytes are filed in.
inline std::size_t class_of(std::size_t bytes) noexcept { return detail::class_of_last(bytes); }

/// Returns the first size above class `index`: every request of the class is at most this large.
constexpr std::size_t class_end(std::size_t index) noexcept {
    const std::size_t exponent = index / 8 + 1, eighth = index % 8;
    if (exponent < 3) return std::size_t{2} << exponent;
    return (9 + eighth) << (exponent - 3);
}

/// Returns the block size for a request: small ones a whole class, so that any block of the class
/// serves; large ones an eighth of a class, so that little is wasted.
inline std::size_t block_bytes_for(std::size_t bytes, std::size_t grain) noexcept {
    const std::size_t spacing = std::bit_floor(std::max(bytes - 1, grain)) / 8;
    const std::size_t step = bytes <= largest_rounded_to_class ? spacing : spacing / 8;
    return round_up(bytes, std::max(step, grain));
}

}  // namespace cistern
