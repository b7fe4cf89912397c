#pragma once
// Spectral cells: a mountain-spectrum code walks along a meridian. Each cell fills the matrix `coeff`
// (its rows grow towards the pole) and multiplies it with itself into `E_tilda_lm`; then it asks for
// a much smaller `coeff` and does the same. A step is one meridian.

#include "workload.hpp"

namespace cistern::workloads {

Report run_cells(Store store, Scale scale, const Budget& budget);

inline constexpr Workload cells{
    "cells", "spectral cells: two matrices by name, larger from cell to cell, and Gram products",
    "one buffer per name, grown to the largest extents, strided views, a pool per cell", run_cells};

}  // namespace cistern::workloads
