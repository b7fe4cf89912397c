// Typed best fit with a cap on what is kept, and bytes that come from elsewhere.

#include <cistern/presets.hpp>
#include <cistern/vector.hpp>
#include <cstdlib>
#include <iostream>

int main() {
    // [typed
    cistern::Pool pool{cistern::Memory::host(), cistern::presets::typed_best_fit()};
    { auto output = pool.array<double>(1000); }           // a miss: capacity 1000
    { auto output = pool.zeros<double>(800); }            // a hit: the 1000 serve
    { auto other = pool.array<float>(800); }              // another type: a miss
    cistern::Vector<int> indices = pool.vector<int>(10);  // empty, with room
    indices.push_back(3);
    std::cout << pool.stats().hits << " hit, " << pool.stats().misses << " misses, "
              << pool.stats().idle_bytes.now << " B kept\n";
    // ]

    // [adopt
    cistern::Pool any;
    any.adopt(std::aligned_alloc(64, 4096), 4096, std::free);
    std::cout << "adopted: " << any.stats().idle_bytes.now << " B idle\n";
    // ]
}
