// Blocks of one size, and arrays for the length of a call.

#include <cistern/presets.hpp>
#include <cistern/scope.hpp>
#include <iostream>
#include <tuple>

using cistern::range, cistern::shape;

int main() {
    // [scopes
    cistern::Pool pool{cistern::Memory::host(), cistern::presets::fixed_blocks(1 << 20)};
    const int nx = 64, ny = 32;
    const double sum = cistern::with_arrays(
        [&](auto velocity, auto ghost) {
            auto& [u, v] = velocity;  // two views in one block
            u.fill(1.0F);
            v.fill(2.0F);
            ghost.fill(0.0);
            ghost(-1, 0) = 3.0;  // indexed from -1
            return static_cast<double>(u(0, 0) + v(ny - 1, nx - 1)) + ghost(-1, 0);
        },
        pool, std::tuple{shape<float>(ny, nx), shape<float>(ny, nx)},
        shape<double>(range(-1, nx + 1), ny));
    std::cout << "sum " << sum << ", lent now " << pool.stats().lent_buffers.now << ", at most "
              << pool.stats().lent_buffers.peak << '\n';
    // ]

    // [like
    const auto field = pool.array<float>(ny, nx);
    field.fill(2.0F);
    cistern::with_arrays_like(
        [&](auto scratch) {  // the type and shape of `field`
            scratch.fill(0.0F);
            std::cout << "scratch " << scratch.extent(0) << " x " << scratch.extent(1) << '\n';
        },
        pool, field);
    // ]
}
