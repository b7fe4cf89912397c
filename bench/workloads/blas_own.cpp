// For machines without OpenBLAS: plain loops over tiles that stay in the second-level cache. The
// order of the sums depends on the sizes alone, so that results do not depend on the store.

#include <algorithm>

#include "blas.hpp"

namespace cistern::workloads {

namespace {

constexpr std::size_t tile = 64;

}  // namespace

void gram(const double* a, std::size_t rows, std::size_t columns, std::size_t stride, double* c) {
    std::fill(c, c + columns * columns, 0.0);
    for (std::size_t top = 0; top < rows; top += tile) {
        const std::size_t bottom = std::min(top + tile, rows);
        for (std::size_t i = 0; i < columns; ++i) {
            double* const sums = c + i * columns;
            for (std::size_t row = top; row < bottom; ++row) {
                const double* const from = a + row * stride;
                const double factor = from[i];
                for (std::size_t j = i; j < columns; ++j) sums[j] += factor * from[j];
            }
        }
    }
    mirror(c, columns);
}

void multiply(std::size_t rows, std::size_t columns, std::size_t inner, double factor,
              const double* a, const double* b, double* c) {
    std::fill(c, c + rows * columns, 0.0);
    for (std::size_t first = 0; first < inner; first += tile) {
        const std::size_t last = std::min(first + tile, inner);
        for (std::size_t i = 0; i < rows; ++i) {
            double* const sums = c + i * columns;
            for (std::size_t k = first; k < last; ++k) {
                const double weight = factor * a[i * inner + k];
                const double* const from = b + k * columns;
                for (std::size_t j = 0; j < columns; ++j) sums[j] += weight * from[j];
            }
        }
    }
}

const char* blas_name() { return "own"; }

}  // namespace cistern::workloads
