#pragma once
// Actors that pass arrays on: a producer fills batches of images of changing size, a second actor
// turns each into features, a third consumes them. Every array is released by another thread than the
// one that took it. As many batches are in flight in every run; a step is 64 of them.

#include "workload.hpp"

namespace cistern::workloads {

Report run_actors(Store store, Scale scale, const Budget& budget);

inline constexpr Workload actors{
    "actors", "three threads pass batches of changing size on, ten in flight",
    "exact shape and type behind a mutex, at most 100 idle buffers, the oldest evicted",
    run_actors};

}  // namespace cistern::workloads
