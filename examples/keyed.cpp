// One growing buffer per key: cells of many sizes, the same few arrays.

#include <cistern/keyed.hpp>
#include <iostream>

int main() {
    // [keyed
    cistern::KeyedPool pool;  // made once, kept for all cells
    for (const int rows : {1200, 800, 1500, 1000}) {
        auto coeff = pool.get<double>("coeff", rows, 100);  // contiguous, whatever was asked before
        auto gram = pool.get<double>("gram", 100, 100);
        coeff.fill(1.0);
        gram.fill(0.0);
        coeff = pool.get<double>("coeff", rows / 2, 20);  // fits in the bytes: a hit
    }
    for (const auto& [key, count] : pool.stats()) {
        std::cout << key << ": " << count.hits << " hits, " << count.misses << " misses, "
                  << count.grows << " grows, " << pool.memory_bytes(key) << " B\n";
    }
    // ]

    // [shared
    const auto kept = pool.get_shared<double>("coeff", 10);
    kept.fill(7.0);
    pool.clear();  // `kept` still holds its bytes
    std::cout << "kept " << kept(9) << ", " << pool.memory_bytes() << " B in the pool\n";
    // ]
}
