#include <cistern/cistern.hpp>
#include <iostream>

using cistern::shape;

int main() {
    cistern::Pool pool;  // host memory, good defaults
    double total = 0;
    for (int step = 0; step < 1000; ++step) {
        const int ny = 500 + step % 7, nx = 400;  // shapes change as the program runs
        auto [u, flux] = pool.arrays(shape<float>(ny, nx), shape<double>(ny, nx + 1));
        u.fill(0.5F);
        flux.fill(1.0);
        total += flux(ny - 1, nx) + static_cast<double>(u(0, 0));
    }  // both arrays return to the pool here; the next step gets the same bytes

    const cistern::PoolStats stats = pool.stats();
    std::cout << "total " << total << ", " << stats.acquires << " arrays: " << stats.hits
              << " from idle bytes, " << stats.misses << " from new ones\n";
}
