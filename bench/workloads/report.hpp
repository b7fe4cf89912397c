#pragma once
// Runs are measured in processes of their own; this is how a run's report gets from there to here.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "workload.hpp"

namespace cistern::workloads {

/// Returns what a run found, a key for each member of Report, with the names of what ran. `hits` is
/// null where the store does not count them.
nlohmann::ordered_json json_of(const Workload& workload, Store store, Scale scale,
                               const Report& report);

/// Runs this program with other arguments; returns what it prints. Throws std::runtime_error if it
/// fails, naming `what`.
std::string output_of_self(std::vector<std::string> arguments, const std::string& what);

}  // namespace cistern::workloads
