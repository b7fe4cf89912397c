#pragma once
// CUDA memory for Python: loans by address, for the allocators of PyTorch, CuPy and Numba.

#include <nanobind/nanobind.h>

namespace cistern::python {

void add_cuda(nanobind::module_& module);

}  // namespace cistern::python
