// The errors of shapes, out of line so that the checks stay small where they are inlined.

#include "cistern/shape.hpp"

#include <string>

#include "cistern/error.hpp"
#include "cistern/version.hpp"

namespace cistern::detail {

void throw_negative_extent(std::intmax_t extent, std::size_t dimension) {
    throw InvalidArgument("an extent cannot be negative: dimension " + std::to_string(dimension) +
                          " is " + std::to_string(extent));
}

void throw_shape_overflow(const std::size_t* extents, std::size_t rank, std::size_t element_bytes) {
    std::string text = "shape has more bytes than can be addressed: ";
    for (std::size_t i = 0; i < rank; ++i) {
        text += (i == 0 ? "(" : ", ") + std::to_string(extents[i]);
    }
    throw InvalidArgument(text + ") elements of " + std::to_string(element_bytes) + " B, limit " +
                          std::to_string(PTRDIFF_MAX) + " B");
}

void throw_rank_mismatch(std::size_t extents, std::size_t rank) {
    throw InvalidArgument("the number of extents is not the rank: " + std::to_string(extents) +
                          " extents, rank " + std::to_string(rank));
}

void throw_not_aligned(std::size_t needed, std::size_t alignment) {
    throw InvalidArgument(
        "elements need more alignment than the pool's blocks have: " + std::to_string(needed) +
        ", PoolOptions::alignment " + std::to_string(alignment));
}

void throw_range_overflow(std::ptrdiff_t begin, std::ptrdiff_t end) {
    throw InvalidArgument("index range is too long: from " + std::to_string(begin) + " to " +
                          std::to_string(end) + ", limit " + std::to_string(PTRDIFF_MAX));
}

void throw_spec_overflow() {
    throw InvalidArgument("the arrays of one spec need more bytes than can be addressed: limit " +
                          std::to_string(PTRDIFF_MAX) + " B");
}

void throw_index_out_of_range(std::size_t index, std::size_t limit) {
    throw InvalidArgument("index out of range: " + std::to_string(index) + ", size " +
                          std::to_string(limit));
}

}  // namespace cistern::detail

namespace cistern {

const char* version() noexcept { return "0.1.0"; }

}  // namespace cistern
