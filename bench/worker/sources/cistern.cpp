// The tasks that only Cistern can run, and the common ones for each of its fits.

#include "sources/cistern.hpp"

#include "cases/arena.hpp"
#include "cases/array.hpp"
#include "cases/many.hpp"
#include "cases/pools.hpp"
#include "sources/all.hpp"
#include "tasks.hpp"

namespace bench {

std::unique_ptr<Task> make_cistern(const Parameters& parameters) {
    const std::string& task = parameters.task;
    const bool idle = task.ends_with("idle");
    if (task == "array") return std::make_unique<ArrayTask>(parameters);
    if (task == "pools") return std::make_unique<PoolsTask>(parameters);
    if (task == "arena") return std::make_unique<ArenaTask>(parameters);
    if (task == "many threads") return std::make_unique<ManyThreadsTask>(parameters);
    if (task == "many pools") return std::make_unique<ManyPoolsTask>(parameters);
    if (task == "trimmed") return std::make_unique<TrimmedTask<Cistern>>(parameters);
    if (task == "crowd live" || task == "crowd idle") {
        return std::make_unique<CrowdTask>(parameters, idle, cistern::PoolOptions{});
    }
    if (task == "arena crowd live" || task == "arena crowd idle") {
        return std::make_unique<CrowdTask>(parameters, idle, arena_only());
    }
    return make_any_size<Cistern>(parameters);
}

std::unique_ptr<Task> make_cistern_exact(const Parameters& parameters) {
    return make_one_size<CisternSource<ExactRule>>(parameters);
}
std::unique_ptr<Task> make_cistern_best(const Parameters& parameters) {
    return make_one_size<CisternSource<BestRule>>(parameters);
}
std::unique_ptr<Task> make_cistern_fixed(const Parameters& parameters) {
    return make_one_size<CisternSource<FixedRule>>(parameters);
}

}  // namespace bench
