#pragma once
// Options that make a pool behave like one of the four pools Cistern unites (docs/coming_from.md).
//
//     Pool pool{Memory::host(), presets::typed_best_fit()};

#include <cstddef>

#include "cistern/pool.hpp"

namespace cistern::presets {

/// One growing buffer per key: for KeyedPool.
inline PoolOptions keyed() { return {.name = "keyed"}; }

/// Exact shapes, host and device: for UnifiedPool.
inline PoolOptions unified() { return {.name = "unified"}; }

/// Blocks of one size, last in first out; a larger request is an error.
inline PoolOptions fixed_blocks(std::size_t bytes) {
    return {.name = "fixed blocks", .fit = FixedBlock{bytes}};
}

/// The smallest idle block of the same element type that is large enough, up to 100 MiB kept, the
/// smallest going first.
inline PoolOptions typed_best_fit() {
    return {.name = "typed best fit",
            .fit = BestFit{1.0},
            .max_idle_bytes = std::size_t{100} << 20,
            .evict = Evict::smallest,
            .separate_types = true};
}

}  // namespace cistern::presets
