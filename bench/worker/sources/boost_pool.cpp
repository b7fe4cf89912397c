#include "sources/boost_pool.hpp"

#include <boost/version.hpp>

#include "sources/all.hpp"
#include "tasks.hpp"

namespace bench {

std::unique_ptr<Task> make_boost_pool(const Parameters& parameters) {
    return make_one_size<BoostPool>(parameters);
}
std::string boost_version() { return BOOST_LIB_VERSION; }

}  // namespace bench
