#pragma once
// One maker per source; find_source() knows them by name.

#include <memory>
#include <string>

#include "task.hpp"

namespace bench {

std::unique_ptr<Task> make_floor(const Parameters& parameters);
std::unique_ptr<Task> make_cistern(const Parameters& parameters);
std::unique_ptr<Task> make_cistern_exact(const Parameters& parameters);
std::unique_ptr<Task> make_cistern_best(const Parameters& parameters);
std::unique_ptr<Task> make_cistern_fixed(const Parameters& parameters);
std::unique_ptr<Task> make_cistern_resource(const Parameters& parameters);
std::unique_ptr<Task> make_malloc(const Parameters& parameters);
std::unique_ptr<Task> make_pmr_synchronized(const Parameters& parameters);
std::unique_ptr<Task> make_pmr_unsynchronized(const Parameters& parameters);
std::unique_ptr<Task> make_boost_pool(const Parameters& parameters);

/// Returns the version of Boost, or nothing if it was built without.
std::string boost_version();

}  // namespace bench
