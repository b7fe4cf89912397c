#pragma once
// The class cistern._core.Pool, from which cistern.Pool derives.

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cistern/pool.hpp"

namespace cistern::python {

/// Limits as Python gives them: those that are missing stay as they are.
struct LimitArguments {
    std::optional<std::size_t> max_bytes, max_idle_bytes, max_idle_buffers, max_buffer_bytes;
    std::optional<std::int64_t> max_idle_milliseconds;
};
void change_limits(Pool& pool, const LimitArguments& changes);

void add_pool(nanobind::module_& module);

}  // namespace cistern::python
