#pragma once
// The class cistern._core.Pool, from which cistern.Pool derives.

#include <nanobind/nanobind.h>

namespace cistern::python {

void add_pool(nanobind::module_& module);

}  // namespace cistern::python
