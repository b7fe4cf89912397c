// Tuned peers are tuned for what these cases do, as an expert would: to keep what was freed, and to
// use huge pages.

#include "contestant.hpp"

#include <algorithm>
#include <stdexcept>

namespace bench {

const std::vector<Contestant>& contestants() {
    static const std::vector<std::string> jemalloc{"libjemalloc.so.2"};
    static const std::vector<Contestant> all{
        {.name = "floor", .source = "floor"},
        {.name = "cistern", .source = "cistern"},
        {.name = "static", .source = "cistern", .worker = "static"},
        {.name = "ExactFit", .source = "cistern-exact"},
        {.name = "BestFit", .source = "cistern-best"},
        {.name = "FixedBlock", .source = "cistern-fixed"},
        {.name = "PoolResource", .source = "cistern-resource"},
        {.name = "glibc", .source = "malloc"},
        {.name = "glibc*",
         .source = "malloc",
         .environment = {{"GLIBC_TUNABLES",
                          "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000:"
                          "glibc.malloc.top_pad=67108864:glibc.malloc.hugetlb=1"}},
         .settings = "never mmap, never trim, 64 MiB steps, huge pages advised"},
        {.name = "tcmalloc", .source = "malloc", .libraries = {"libtcmalloc_minimal.so.4"}},
        {.name = "mimalloc",
         .source = "malloc",
         .libraries = {"libmimalloc.so.2", "libmimalloc.so.3", "libmimalloc.so"}},
        {.name = "jemalloc", .source = "malloc", .libraries = jemalloc},
        {.name = "jemalloc*",
         .source = "malloc",
         .libraries = jemalloc,
         .environment = {{"MALLOC_CONF",
                          "dirty_decay_ms:-1,muzzy_decay_ms:-1,oversize_threshold:0,thp:always"}},
         .settings = "never decay, no oversize arena, huge pages always"},
        {.name = "tbbmalloc", .source = "malloc", .libraries = {"libtbbmalloc_proxy.so.2"}},
        {.name = "pmr sync", .source = "pmr-synchronized"},
        {.name = "pmr", .source = "pmr-unsynchronized"},
        {.name = "boost", .source = "boost-pool"},
    };
    return all;
}

const Contestant& contestant(const std::string& name) {
    const auto found = std::find_if(contestants().begin(), contestants().end(),
                                    [&](const Contestant& one) { return one.name == name; });
    if (found == contestants().end()) throw std::logic_error("no contestant '" + name + "'");
    return *found;
}

}  // namespace bench
