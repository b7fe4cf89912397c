// The floor for the pairs, and for every other case the reference it is measured against.

#include "sources/floor.hpp"

#include "sources/all.hpp"
#include "tasks.hpp"

namespace bench {

std::unique_ptr<Task> make_floor(const Parameters& parameters) {
    const std::string& task = parameters.task;
    if (task == "array") return std::make_unique<PairTask<Floor>>(parameters);
    if (task == "two threads") return std::make_unique<TwoThreadsTask<Floor>>(parameters);
    if (task == "touch") return std::make_unique<WarmTouchTask>(parameters);
    if (task == "replace") return std::make_unique<TouchAloneTask>(parameters);
    if (task == "remote") return std::make_unique<RemoteTask<NothingSource, 1>>(parameters);
    if (task == "remote 256") return std::make_unique<RemoteTask<NothingSource, 256>>(parameters);
    if (task == "zeroed reused") return std::make_unique<MemsetTask>(parameters);
    if (task == "fresh" || task == "trimmed" || task == "zeroed fresh") {
        return std::make_unique<FreshTask<FreshMapping>>(parameters);
    }
    return make_one_size<Floor>(parameters);
}

}  // namespace bench
