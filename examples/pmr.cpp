// Standard containers on a pool, by a memory_resource or by an allocator.

#include <cistern/pmr.hpp>
#include <iostream>
#include <memory_resource>
#include <vector>

int main() {
    cistern::Pool pool;
    cistern::PoolResource resource{pool};
    using Allocator = cistern::PoolAllocator<double>;

    for (int step = 0; step < 100; ++step) {
        const std::pmr::vector<double> residuals(100'000, 0.0, &resource);
        const std::vector<double, Allocator> weights(50'000, 1.0, Allocator{pool});
    }

    const cistern::PoolStats stats = pool.stats();
    std::cout << stats.acquires << " allocations: " << stats.hits << " hits, " << stats.misses
              << " misses\n";
}
