#pragma once
// A tensor network is contracted pair by pair: each contraction permutes its inputs into pack
// temporaries where their order demands it, multiplies them into an output, and gives back what is
// not needed again. Sizes go from 16 B to 128 MiB. At most 100 MiB may stay idle. A step is the whole
// network.

#include "workload.hpp"

namespace cistern::workloads {

Report run_einsum(Store store, Scale scale, const Budget& budget);

inline constexpr Workload einsum{
    "einsum", "tensor network: 495 outputs and pack temporaries, 16 B to 128 MiB, 100 MiB idle",
    "best fit by capacity, at most 100 MiB idle, the smallest evicted first", run_einsum};

}  // namespace cistern::workloads
