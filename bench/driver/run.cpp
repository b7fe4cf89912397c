// In every round each contestant runs once, for some milliseconds; the next round starts with
// another one. So a slow second of the machine falls on all of them.

#include "run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <numeric>

#include "contestant.hpp"
#include "machine.hpp"

namespace bench {

std::optional<double> figure(Take take, const CaseResult& result, const std::string& contestant,
                             const std::string& key) {
    const auto found = result.rounds.find(contestant);
    if (found == result.rounds.end()) return std::nullopt;
    const auto values = found->second.find(key);
    if (values == found->second.end()) return std::nullopt;
    const std::vector<double>& all = values->second;
    if (take == Take::best) return *std::min_element(all.begin(), all.end());
    if (take == Take::median) {
        std::vector<double> sorted = all;
        const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
        std::nth_element(sorted.begin(), middle, sorted.end());
        return *middle;
    }
    const std::size_t rounds = std::min(all.size(), static_cast<std::size_t>(result.about.rounds));
    std::vector<double> best(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(rounds));
    for (std::size_t i = rounds; i < all.size(); ++i) {
        best[i % rounds] = std::min(best[i % rounds], all[i]);
    }
    return std::accumulate(best.begin(), best.end(), 0.0) / static_cast<double>(rounds);
}

std::unique_ptr<Process> Workers::start(const std::string& name) {
    if (missing_.contains(name)) return nullptr;
    const Contestant& who = contestant(name);
    try {
        if (who.libraries.empty()) return start_with(name, "");
        for (const std::string& library : who.libraries) {
            if (auto process = start_with(name, library)) return process;
        }
        missing_[name] = who.libraries.front() + " is not installed";
    } catch (const std::exception& error) {
        missing_[name] = error.what();
    }
    return nullptr;
}

// The loader ignores a library it does not find, saying so on standard error; so the worker is asked
// where its malloc comes from. Loading it here to see would fail: jemalloc cannot be loaded late.
std::unique_ptr<Process> Workers::start_with(const std::string& name, const std::string& library) {
    const Contestant& who = contestant(name);
    Process::Environment environment = who.environment;
    if (!library.empty()) environment.emplace_back("LD_PRELOAD", library);
    const auto program = std::filesystem::canonical("/proc/self/exe").parent_path() /
                         ("cistern_bench_" + who.worker);
    auto process = std::make_unique<Process>(program, who.source, environment, !library.empty());
    const nlohmann::json about = process->ask({{"do", "about"}});
    const std::string stem = library.substr(0, library.find(".so"));
    if (about["library"].get<std::string>().find(stem) == std::string::npos) return nullptr;
    about_[name] = about;
    return process;
}

namespace {

/// The contestants of one case, each in a process that has done nothing else.
class Generation {
public:
    Generation(Workers& workers, CaseResult& result) : workers_(workers), result_(result) {
        std::size_t room = available_memory() / 10 * 7;
        for (const std::string& name : result_.about.contestants) {
            if (result_.skipped.contains(name)) continue;
            if (room < result_.about.resident_bytes) {
                result_.skipped[name] = "left out: not enough memory";
                continue;
            }
            start(name);
            room -= result_.about.resident_bytes;
        }
    }
    void round() {
        for (Running& one : running_) {
            const auto figures = ask(one, {{"do", "round"}});
            if (!figures) continue;
            for (const auto& [key, ns] : figures->items()) {
                result_.rounds[one.name][key].push_back(ns.get<double>());
            }
        }
        std::erase_if(running_, [](const Running& one) { return one.process == nullptr; });
        if (!running_.empty()) std::rotate(running_.begin(), running_.begin() + 1, running_.end());
    }

private:
    struct Running {
        std::string name;
        std::unique_ptr<Process> process;
    };

    void start(const std::string& name) {
        Running one{name, workers_.start(name)};
        if (one.process == nullptr) {
            result_.skipped[name] = workers_.missing().at(name);
            return;
        }
        if (ask(one, {{"do", "prepare"},
                      {"task", result_.about.task},
                      {"bytes", result_.about.bytes},
                      {"round_ns", result_.about.round_ms * 1e6}})) {
            running_.push_back(std::move(one));
        }
    }
    /// Returns the answer; nothing, and ends the process, if the contestant is out of this case.
    std::optional<nlohmann::json> ask(Running& one, const nlohmann::json& request) {
        try {
            nlohmann::json answer = one.process->ask(request);
            if (!answer.contains("skipped")) return answer;
            result_.skipped[one.name] = answer["skipped"];
        } catch (const WorkerDied& error) {
            result_.skipped[one.name] = error.what();
            workers_.note_death(one.name + " " + error.what() + ", in " + result_.about.task);
        }
        one.process.reset();
        return std::nullopt;
    }

    Workers& workers_;
    CaseResult& result_;
    std::vector<Running> running_;
};

}  // namespace

CaseResult run_case(Workers& workers, const Case& one, Progress& progress) {
    CaseResult result{.about = one, .rounds = {}, .skipped = {}};
    int done = 0;
    for (int n = 0; n < one.generations; ++n) {
        progress.step("preparing");
        Generation generation(workers, result);
        for (int round = 0; round < one.rounds; ++round) {
            progress.step(fmt::format("round {} of {}", ++done, one.generations * one.rounds));
            generation.round();
        }
    }
    return result;
}

}  // namespace bench
