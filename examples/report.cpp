// Prints the report that docs/stats.md explains line by line.

#include <cistern/pool.hpp>
#include <iostream>

constexpr std::size_t KiB = 1 << 10, MiB = 1 << 20;

int main() {
    cistern::Pool pool{cistern::Memory::host(),
                       {.name = "solver", .max_bytes = 64 * MiB, .max_idle_bytes = 32 * MiB}};
    { const cistern::Buffer setup = pool.acquire(40 * MiB); }  // larger than max_idle_bytes
    const cistern::Buffer matrix = pool.acquire(20 * MiB);
    {
        const cistern::Buffer coarse = pool.acquire(6 * MiB);
        const cistern::Buffer fine = pool.acquire(12 * MiB);
    }
    const cistern::Buffer weights = pool.acquire(5000 * 8);
    const cistern::Buffer refused = pool.try_acquire(48 * MiB);  // more than max_bytes allows
    for (int step = 0; step < 100; ++step) {
        const cistern::Buffer field = pool.acquire(3 * MiB);
        const cistern::Buffer halo = pool.acquire(100 * KiB);
    }
    std::cout << pool.stats() << '\n' << pool.explain();
}
