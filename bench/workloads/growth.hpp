#pragma once
// What it costs to make one large buffer larger: page faults on Cistern, which keeps the pages, and by
// the keyed seed's rule, which lets them go and takes others.

#include <cstddef>

namespace cistern::workloads {

/// Grows a buffer of `bytes` bytes by a tenth, in each way, and prints what it cost.
void print_growth(std::size_t bytes);

}  // namespace cistern::workloads
