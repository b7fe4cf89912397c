// cistern_workloads: runs workloads on stores, each in a process of its own, and prints what each
// took.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "blas.hpp"
#include "growth.hpp"
#include "report.hpp"
#include "workload.hpp"

namespace {

using namespace cistern::workloads;
using Json = nlohmann::ordered_json;

struct Arguments {
    std::vector<std::string> only, stores;
    std::string scale = "medium";
    Budget budget{.steps = 1};
    std::size_t grown_mebibytes = 0;
    bool json = false, list = false, here = false;
};

void list() {
    for (const Workload& workload : all()) {
        fmt::print("{:<8} {}\n{:<8} seed's rule: {}\n", workload.name, workload.what, "",
                   workload.seed);
    }
}

Json run_one(const Arguments& arguments, const std::string& name, const std::string& store) {
    const Workload& workload = find(name);
    const Store chosen = store_named(store);
    const Scale scale = scale_named(arguments.scale);
    if (arguments.here) {
        return json_of(workload, chosen, scale, workload.run(chosen, scale, arguments.budget));
    }
    return Json::parse(
        output_of_self({"--only", name, "--store", store, "--scale", arguments.scale, "--json",
                        "--here", "--steps", std::to_string(arguments.budget.steps), "--seconds",
                        fmt::format("{}", arguments.budget.seconds)},
                       fmt::format("the run of '{}' on '{}'", name, store)));
}

void print_row(const Json& report) {
    const auto number = [&](const char* key) { return report.at(key).get<std::uint64_t>(); };
    fmt::print("{:<8} {:<8} {:>6} {:>9.3f} {:>12} {:>12} {:>12} {:>9} {:>9}  {:.17g}\n",
               report.at("workload").get<std::string>(), report.at("store").get<std::string>(),
               number("steps"), report.at("seconds").get<double>(), number("page_faults"),
               number("peak_held_bytes"), number("peak_live_bytes"), number("requests"),
               report.at("hits").is_null() ? "" : report.at("hits").dump(),
               report.at("checksum").get<double>());
}

/// Throws if a workload's checksum depends on the store.
void run(const Arguments& arguments) {
    if (!arguments.json) {
        fmt::print("{:<8} {:<8} {:>6} {:>9} {:>12} {:>12} {:>12} {:>9} {:>9}  {}\n", "workload",
                   "store", "steps", "seconds", "page faults", "held bytes", "live bytes",
                   "requests", "hits", "checksum");
    }
    for (const std::string& name : arguments.only) {
        std::map<std::uint64_t, double> checksums;  // by steps
        for (const std::string& store : arguments.stores) {
            const Json report = run_one(arguments, name, store);
            if (arguments.json) {
                fmt::print("{}\n", report.dump());
            } else {
                print_row(report);
            }
            const double checksum = report.at("checksum").get<double>();
            const auto [same, first] =
                checksums.emplace(report.at("steps").get<std::uint64_t>(), checksum);
            if (same->second != checksum) {
                throw std::runtime_error(
                    fmt::format("'{}' has another result on '{}'", name, store));
            }
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{std::string("Runs real workloads on Cistern, on malloc and on the rules of the "
                             "projects they come from. Matrix products: ") +
                     blas_name(),
                 "cistern_workloads"};
    Arguments arguments;
    for (const Workload& workload : all()) arguments.only.emplace_back(workload.name);
    for (const Store store : {Store::cistern, Store::malloc, Store::seed}) {
        arguments.stores.emplace_back(name_of(store));
    }
    app.add_option("--only", arguments.only, "Workloads to run (default: all)");
    app.add_option("--store", arguments.stores, "cistern, malloc, seed (default: all)");
    app.add_option("--scale", arguments.scale, "small, medium, recorded")->capture_default_str();
    app.add_option("--steps", arguments.budget.steps, "Steps per run")->capture_default_str();
    app.add_option("--seconds", arguments.budget.seconds,
                   "End a run after this time (default: never)");
    app.add_option("--grow", arguments.grown_mebibytes,
                   "Instead, grow a key of this many MiB by a tenth and count page faults")
        ->check(CLI::Range(1, 1 << 20));
    app.add_flag("--json", arguments.json, "Print one line of JSON per run");
    app.add_flag("--list", arguments.list, "Name the workloads and stop");
    app.add_flag("--here", arguments.here, "Run in this process, not in others")->group("");
    CLI11_PARSE(app, argc, argv);
    try {
        if (arguments.list) {
            list();
        } else if (arguments.grown_mebibytes != 0) {
            print_growth(arguments.grown_mebibytes << 20);
        } else {
            run(arguments);
        }
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "cistern_workloads: %s\n", error.what());
        return 1;
    }
}
