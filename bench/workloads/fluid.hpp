#pragma once
// A flag in a flow: a time step of an immersed-boundary solver takes up to 451 arrays for the flow,
// the boundary, the body and the structure, strictly nested, as a recorded step does. A step here is
// such a time step.

#include "workload.hpp"

namespace cistern::workloads {

Report run_fluid(Store store, Scale scale, const Budget& budget);

inline constexpr Workload fluid{
    "fluid", "immersed boundary: nested arrays for flow, boundary, body and structure",
    "blocks of one size per pool, found by searching a list", run_fluid};

}  // namespace cistern::workloads
