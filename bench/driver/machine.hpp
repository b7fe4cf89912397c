#pragma once
// The machine the figures are from.

#include <cstddef>
#include <nlohmann/json.hpp>

namespace bench {

/// Returns CPU, cores, memory, kernel, huge-page setting and compiler.
nlohmann::json machine_facts();
/// Returns how many bytes could be taken now without swapping.
std::size_t available_memory();
/// Returns whether other programs are running at this moment.
bool machine_is_busy();

}  // namespace bench
