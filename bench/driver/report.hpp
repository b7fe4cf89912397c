#pragma once
// Everything as JSON, raw figures included.

#include <nlohmann/json.hpp>
#include <vector>

#include "run.hpp"

namespace bench {

nlohmann::json report(const std::vector<GroupResult>& groups, const Workers& workers);

}  // namespace bench
