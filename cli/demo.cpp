// cistern demo: four workloads on Cistern, on malloc and on the rule of the project each comes from.
// Every run is a process of its own, so that page faults and peak memory are its own too. The first
// run of a workload, on malloc, finds how many steps fit in its time; all others do as many. Rounds
// go through everything in turn, so that a slow second of the machine falls on all stores.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "blas.hpp"
#include "cistern/error.hpp"
#include "commands.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "units.hpp"
#include "workload.hpp"

namespace cistern::cli {

namespace {

using Json = nlohmann::ordered_json;
using workloads::Store;
using workloads::Workload;
using Clock = std::chrono::steady_clock;

// malloc first: its first run finds the number of steps.
constexpr std::array<Store, 3> stores{Store::malloc, Store::seed, Store::cistern};
constexpr std::array<Store, 3> shown_stores{Store::cistern, Store::malloc, Store::seed};
constexpr std::size_t most_rounds = 9;
// A run on malloc may take this part of the time that it would have if there were one round.
constexpr double part_of_round = 1.0 / 7;

struct DemoArguments {
    std::uint64_t seconds = 24;
    std::vector<std::string> only;
    std::string scale = "medium";
    bool json = false, list = false;
};

/// The runs of one workload, by store.
struct Section {
    const Workload* workload;
    std::array<std::vector<Json>, stores.size()> runs;
    std::uint64_t steps = std::numeric_limits<std::uint64_t>::max();

    [[nodiscard]] std::vector<double> sorted(Store store, const char* key) const {
        std::vector<double> values;
        for (const Json& run : runs[static_cast<std::size_t>(store)]) {
            values.push_back(run.at(key).get<double>());
        }
        std::sort(values.begin(), values.end());
        return values;
    }
    /// What disturbs a run makes it slower, so the best is nearest to the truth.
    [[nodiscard]] double seconds(Store store) const { return sorted(store, "seconds").front(); }
    [[nodiscard]] double median(Store store, const char* key) const {
        const std::vector<double> values = sorted(store, key);
        return values[values.size() / 2];
    }
    [[nodiscard]] double held_per_live(Store store) const {
        return median(store, "peak_held_bytes") / median(store, "peak_live_bytes");
    }
    /// Returns null where the store does not count hits.
    [[nodiscard]] Json hit_rate(Store store) const {
        if (runs[static_cast<std::size_t>(store)].front().at("hits").is_null()) return nullptr;
        return median(store, "hits") / median(store, "requests");
    }
};

struct Comparison {
    std::vector<Section> sections;
    std::size_t rounds = 0;
};

std::string title_of(Store store) {
    if (store == Store::cistern) return "Cistern";
    return store == Store::malloc ? "malloc" : "seed's rule";
}

/// Throws if the result is not that of the first run.
void run_once(Section& section, Store store, double seconds, const std::string& scale) {
    const std::string name(section.workload->name), store_name(workloads::name_of(store));
    Json run = Json::parse(workloads::output_of_self(
        {"demo-run", name, store_name, "--scale", scale, "--steps", std::to_string(section.steps),
         "--seconds", fmt::format("{}", seconds)},
        fmt::format("the run of '{}' on '{}'", name, store_name)));
    section.steps = run.at("steps").get<std::uint64_t>();
    section.runs[static_cast<std::size_t>(store)].push_back(std::move(run));
    const auto& first = section.runs[static_cast<std::size_t>(stores.front())].front();
    const auto& last = section.runs[static_cast<std::size_t>(store)].back();
    if (first.at("checksum") != last.at("checksum")) {
        throw std::runtime_error(fmt::format(
            "'{}' computed another result on '{}'; please report this", name, store_name));
    }
}

Comparison compare(const DemoArguments& arguments) {
    Comparison comparison;
    for (const Workload& workload : workloads::all()) {
        const auto& only = arguments.only;
        if (only.empty() || std::find(only.begin(), only.end(), workload.name) != only.end()) {
            comparison.sections.push_back({.workload = &workload, .runs = {}});
        }
    }
    const auto allowed = static_cast<double>(arguments.seconds);
    const auto runs_per_round = static_cast<double>(comparison.sections.size() * stores.size());
    const double share = part_of_round * allowed / runs_per_round;
    const auto begin = Clock::now();
    const auto elapsed = [&] {
        return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    Progress progress;
    double last_round = 0;
    do {
        const double round_begin = elapsed();
        double done = 0;
        for (Section& section : comparison.sections) {
            for (std::size_t i = 0; i < stores.size(); ++i, ++done) {
                const Store store = stores[(i + comparison.rounds) % stores.size()];
                // Towards the end of the time, or of the first round if that takes longer.
                const double part =
                    comparison.rounds == 0 ? done / runs_per_round * part_of_round : 0;
                progress.show(fmt::format("{} on {}", section.workload->name, title_of(store)),
                              std::max(elapsed() / allowed, part));
                const bool first = comparison.rounds == 0 && i == 0;
                run_once(section, store, first ? share : 3600, arguments.scale);
            }
        }
        ++comparison.rounds;
        last_round = elapsed() - round_begin;
    } while (comparison.rounds < most_rounds && elapsed() + last_round <= allowed);
    return comparison;
}

Json json_of(const Comparison& comparison, const DemoArguments& arguments) {
    Json all{{"scale", arguments.scale},
             {"rounds", comparison.rounds},
             {"blas", workloads::blas_name()},
             {"same_result", true},
             {"workloads", Json::array()}};
    for (const Section& section : comparison.sections) {
        Json one{{"name", section.workload->name}, {"steps", section.steps}};
        for (const Store store : shown_stores) {
            const auto number = [&](const char* key) {
                return static_cast<std::uint64_t>(section.median(store, key));
            };
            one[std::string(workloads::name_of(store))] = {
                {"seconds", section.seconds(store)},
                {"page_faults", number("page_faults")},
                {"peak_held_bytes", number("peak_held_bytes")},
                {"peak_live_bytes", number("peak_live_bytes")},
                {"held_per_live", section.held_per_live(store)},
                {"hit_rate", section.hit_rate(store)}};
        }
        all["workloads"].push_back(std::move(one));
    }
    return all;
}

void print_comparison(const Comparison& comparison) {
    fmt::print("{:<10}{:<13}{:>9}{:>13}{:>14}{:>13}{:>10}\n", "workload", "store", "time",
               "÷ Cistern", "page faults", "held ÷ live", "hit rate");
    for (const Section& section : comparison.sections) {
        std::string name(section.workload->name);
        const double fastest = section.seconds(Store::cistern);
        for (const Store store : shown_stores) {
            const Json hit_rate = section.hit_rate(store);
            std::string row = fmt::format(
                "{:<10}{:<13}{:>6.0f} ms{:>13.2f}{:>14}{:>13.2f}", name, title_of(store),
                1000 * section.seconds(store), section.seconds(store) / fastest,
                text_of_count(static_cast<std::uint64_t>(section.median(store, "page_faults"))),
                section.held_per_live(store));
            if (!hit_rate.is_null()) row += fmt::format("{:>8.0f} %", 100 * hit_rate.get<double>());
            fmt::print("{}\n", row);
            name.clear();
        }
    }
    fmt::print(
        "\nTime: the best of {} runs, each in its own process; the rest: medians. Held: by how "
        "much "
        "the\nprocess grew at most; live: what the program had asked for at most. All stores "
        "computed "
        "the\nsame results. `cistern demo --list` says what the workloads do.\n",
        comparison.rounds);
    fmt::print(
        "\nIn your code:  cistern::Pool pool;  auto u = pool.array<double>(rows, columns);\n");
}

void print_list() {
    for (const Workload& workload : workloads::all()) {
        fmt::print("{:<8}{}\n{:<8}seed's rule: {}\n", workload.name, workload.what, "",
                   workload.seed);
    }
}

void run_demo(const DemoArguments& arguments) {
    for (const std::string& name : arguments.only) workloads::find(name);
    workloads::scale_named(arguments.scale);
    if (arguments.list) {
        print_list();
        return;
    }
    const Comparison comparison = compare(arguments);
    if (arguments.json) {
        fmt::print("{}\n", json_of(comparison, arguments).dump(2));
    } else {
        print_comparison(comparison);
    }
}

}  // namespace

void add_demo(CLI::App& app) {
    CLI::App& command =
        *app.add_subcommand("demo", "Show on this machine what a pool saves four programs");
    const auto arguments = std::make_shared<DemoArguments>();
    command
        .add_option_function<std::string>(
            "--seconds",
            [arguments](const std::string& text) {
                try {
                    arguments->seconds = parse_count(text, 1);
                } catch (const InvalidArgument& error) {
                    throw CLI::ValidationError("--seconds", error.what());
                }
            },
            "About how long to take (default 24), but at least one run of each")
        ->type_name("N");
    command.add_option("--only", arguments->only, "Only these workloads")->type_name("NAME");
    command.add_option("--scale", arguments->scale, "small, medium (default) or recorded")
        ->type_name("NAME");
    command.add_flag("--list", arguments->list, "Say what the workloads do, and stop");
    command.add_flag("--json", arguments->json, "Print JSON instead of a table");
    command.footer(
        "Runs four workloads taken from numerical projects, each on Cistern, on malloc and on the "
        "rule by\nwhich its project pools memory; compares time, page faults, memory held and "
        "hits.\n\n"
        "Examples:\n"
        "  cistern demo\n"
        "  cistern demo --only cells --seconds 10 --json");
    command.callback([arguments] { run_demo(*arguments); });
}

}  // namespace cistern::cli
