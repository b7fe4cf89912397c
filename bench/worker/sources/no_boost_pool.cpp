// Stands in for boost_pool.cpp where Boost is not installed.

#include "sources/all.hpp"

namespace bench {

std::unique_ptr<Task> make_boost_pool(const Parameters& /*parameters*/) {
    throw Skipped("built without Boost");
}
std::string boost_version() { return ""; }

}  // namespace bench
