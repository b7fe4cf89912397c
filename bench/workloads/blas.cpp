#include "blas.hpp"

#include "scratch.hpp"

namespace cistern::workloads {

void mirror(double* c, std::size_t columns) {
    constexpr std::size_t tile = 32;
    for (std::size_t top = 0; top < columns; top += tile) {
        for (std::size_t left = top; left < columns; left += tile) {
            const std::size_t bottom = top + tile < columns ? top + tile : columns;
            const std::size_t right = left + tile < columns ? left + tile : columns;
            for (std::size_t j = left; j < right; ++j) {
                for (std::size_t i = top; i < bottom && i < j; ++i) {
                    c[j * columns + i] = c[i * columns + j];
                }
            }
        }
    }
}

void warm_up_blas() {
    constexpr std::size_t n = 768;
    const Scratch a(n * n), c(n * n);
    gram(a.data(), n, n, n, c.data());
    multiply(n, n, n, 1, a.data(), a.data(), c.data());
}

}  // namespace cistern::workloads
