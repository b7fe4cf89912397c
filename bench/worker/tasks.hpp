#pragma once
// Which tasks a source can run, by the names the driver uses.

#include <memory>

#include "cases/fresh.hpp"
#include "cases/pair.hpp"
#include "cases/remote.hpp"
#include "cases/replace.hpp"
#include "cases/touch.hpp"
#include "task.hpp"

namespace bench {

[[noreturn]] inline void skip(const Parameters& parameters) {
    throw Skipped("has no task '" + parameters.task + "'");
}

/// The tasks every source can run.
template <class Source>
std::unique_ptr<Task> make_one_size(const Parameters& parameters) {
    if (parameters.task == "pair") return std::make_unique<PairTask<Source>>(parameters);
    if (parameters.task == "nested") return std::make_unique<NestedTask<Source>>(parameters);
    if (parameters.task == "touch") return std::make_unique<TouchTask<Source>>(parameters);
    skip(parameters);
}

/// The tasks of a source that serves any size, and any thread if it says so.
template <class Source>
std::unique_ptr<Task> make_any_size(const Parameters& parameters) {
    const std::string& task = parameters.task;
    if (task == "rotate") return std::make_unique<RotateTask<Source>>(parameters);
    if (task == "replace") return std::make_unique<ReplaceTask<Source, LargeBuffers>>(parameters);
    if (task == "mixed") return std::make_unique<ReplaceTask<Source, MixedBuffers>>(parameters);
    if (task == "fresh") return std::make_unique<FreshTask<FreshTouch<Source>>>(parameters);
    if (task == "zeroed fresh") return std::make_unique<FreshTask<FreshZeroed<Source>>>(parameters);
    if (task == "zeroed reused") return std::make_unique<ReusedZeroedTask<Source>>(parameters);
    if constexpr (Source::any_thread) {
        if (task == "two threads") return std::make_unique<TwoThreadsTask<Source>>(parameters);
        if (task == "remote") return std::make_unique<RemoteTask<Source, 1>>(parameters);
        if (task == "remote 256") return std::make_unique<RemoteTask<Source, 256>>(parameters);
    }
    return make_one_size<Source>(parameters);
}

}  // namespace bench
