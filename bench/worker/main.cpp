// A worker is one contestant in a process of its own, started by cistern_bench with the allocator
// it is to measure. It reads one JSON request per line and answers each with one JSON line:
//
//     {"do": "about"}                                      -> {"library": ..., "version": ...}
//     {"do": "prepare", "task": "pair", "bytes": 1024}     -> {} or {"skipped": "why"}
//     {"do": "round"}                                      -> {"ns": 4.9}

#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "about.hpp"
#include "cores.hpp"
#include "sources/all.hpp"
#include "task.hpp"

namespace bench {

MakeTask find_source(const std::string& name) {
    static const std::map<std::string, MakeTask> sources{
        {"floor", make_floor},
        {"cistern", make_cistern},
        {"cistern-exact", make_cistern_exact},
        {"cistern-best", make_cistern_best},
        {"cistern-fixed", make_cistern_fixed},
        {"cistern-resource", make_cistern_resource},
        {"malloc", make_malloc},
        {"pmr-synchronized", make_pmr_synchronized},
        {"pmr-unsynchronized", make_pmr_unsynchronized},
        {"boost-pool", make_boost_pool},
    };
    const auto found = sources.find(name);
    return found == sources.end() ? nullptr : found->second;
}

namespace {

using nlohmann::json;

class Worker {
public:
    Worker(std::string source, MakeTask make) : source_(std::move(source)), make_(make) {}

    json answer(const json& request) {
        const std::string verb = request.at("do");
        if (verb == "about") {
            return {{"library", malloc_library()}, {"version", version_of(source_)}};
        }
        if (verb == "prepare") prepare(request);
        return verb == "round" ? json(task_->round()) : json::object();
    }

private:
    // A first round, not reported, so that the task's loops are sized and its memory is warm.
    void prepare(const json& request) {
        const Parameters parameters{.task = request.at("task"),
                                    .bytes = request.value("bytes", std::size_t{0}),
                                    .round_ns = request.value("round_ns", 2e6)};
        task_ = make_(parameters);
        task_->round();
    }

    std::string source_;
    MakeTask make_;
    std::unique_ptr<Task> task_;
};

}  // namespace
}  // namespace bench

int main(int count, char** arguments) try {
    const std::string source = count == 2 ? arguments[1] : "";
    const bench::MakeTask make = bench::find_source(source);
    if (make == nullptr) {
        std::cerr << "This program is started by cistern_bench.\n";
        return 2;
    }
    bench::pin_main_thread();
    bench::Worker worker(source, make);
    for (std::string line; std::getline(std::cin, line);) {
        nlohmann::json answer;
        try {
            answer = worker.answer(nlohmann::json::parse(line));
        } catch (const std::exception& error) {
            answer = {{"skipped", error.what()}};
        }
        std::cout << answer.dump() << std::endl;
    }
} catch (const std::exception& error) {
    std::fprintf(stderr, "worker: %s\n", error.what());
    return 2;
}
