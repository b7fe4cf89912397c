#include "sources/malloc.hpp"

#include "sources/all.hpp"
#include "tasks.hpp"

namespace bench {

std::unique_ptr<Task> make_malloc(const Parameters& parameters) {
    return make_any_size<Malloc>(parameters);
}

}  // namespace bench
