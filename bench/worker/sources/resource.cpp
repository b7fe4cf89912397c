#include "sources/resource.hpp"

#include "sources/all.hpp"
#include "tasks.hpp"

namespace bench {

std::unique_ptr<Task> make_pmr_synchronized(const Parameters& parameters) {
    return make_any_size<PmrSynchronized>(parameters);
}
std::unique_ptr<Task> make_pmr_unsynchronized(const Parameters& parameters) {
    return make_any_size<PmrUnsynchronized>(parameters);
}
std::unique_ptr<Task> make_cistern_resource(const Parameters& parameters) {
    return make_any_size<CisternResource>(parameters);
}

}  // namespace bench
