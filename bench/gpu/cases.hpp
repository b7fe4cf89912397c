#pragma once
// The cases, each measured beside the driver's own allocators in one run.

#include <nlohmann/json.hpp>

#include "device.hpp"

namespace bench {

nlohmann::ordered_json device_pairs(const Device& device);
nlohmann::ordered_json pinned_memory(const Device& device);
nlohmann::ordered_json mapping(const Device& device);
nlohmann::ordered_json several_streams(const Device& device);
nlohmann::ordered_json crossing(const Device& device);

}  // namespace bench
