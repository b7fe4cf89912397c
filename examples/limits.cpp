// A pool with a limit: what it throws out, what it refuses, and how the limit changes at run time.

#include <cistern/pool.hpp>
#include <iostream>

constexpr std::size_t MiB = 1 << 20;

void print(const char* when, const cistern::Pool& pool) {
    const cistern::PoolStats stats = pool.stats();
    std::cout << when << ": lent " << stats.lent_bytes.now / MiB << " MiB, idle "
              << stats.idle_bytes.now / MiB << " MiB, evictions " << stats.evictions << '\n';
}

int main() {
    // [limits
    cistern::Pool pool{cistern::Memory::host(), {.name = "fields", .max_bytes = 64 * MiB}};
    { const cistern::Buffer first = pool.acquire(48 * MiB); }
    print("released", pool);

    cistern::Buffer small = pool.acquire(8 * MiB);
    const cistern::Buffer large = pool.acquire(56 * MiB);  // the idle 40 MiB and 16 new ones
    print("full", pool);

    try {
        const cistern::Buffer more = pool.acquire(1 * MiB);
    } catch (const cistern::OutOfMemory& error) {
        std::cout << error.what() << '\n';
    }
    std::cout << "try_acquire: " << (pool.try_acquire(1 * MiB).empty() ? "empty" : "lent") << '\n';

    pool.set_limits({.max_bytes = 96 * MiB, .max_idle_bytes = 16 * MiB});
    { const cistern::Buffer now_fits = pool.acquire(24 * MiB); }  // too large to be kept
    small.release();
    print("new limits", pool);
    const std::size_t given_back = pool.trim();
    std::cout << "trim gave back " << given_back / MiB << " MiB\n";
    print("trimmed", pool);
    // ]
}
