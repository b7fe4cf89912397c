#pragma once
// A flag in a flow: one time step of an immersed-boundary solver takes 451 arrays from four pools
// (fluid, boundary, body, structure), strictly nested, in the order and of the sizes of a recorded
// step. A step here is such a time step.

#include "workload.hpp"

namespace cistern::workloads {

Report run_fluid(Store store, Scale scale, const Budget& budget);

inline constexpr Workload fluid{
    "fluid", "immersed boundary: 451 nested arrays per time step from four pools",
    "blocks of one size per pool, found by searching a list", run_fluid};

}  // namespace cistern::workloads
