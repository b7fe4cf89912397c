// cistern demo: the same solver on malloc, on malloc tuned and on a pool, each run in a process of its
// own, so that page faults and peak memory are its own too. The first run, on malloc, finds how many
// steps fit in its time; all others do as many.

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "cistern/error.hpp"
#include "commands.hpp"
#include "progress.hpp"
#include "units.hpp"

namespace cistern::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t rounds = 3;
constexpr std::array<const char*, 3> stores{"malloc", "tuned", "cistern"};

struct DemoArguments {
    std::uint64_t seconds = 12;
    bool json = false;
};

/// The runs of one store, and their medians.
struct Column {
    std::vector<Json> runs;

    [[nodiscard]] double median(const char* key) const {
        std::vector<double> values;
        for (const Json& run : runs) values.push_back(run.at(key).get<double>());
        std::sort(values.begin(), values.end());
        return values[values.size() / 2];
    }
};

struct Comparison {
    std::array<Column, stores.size()> columns;
    std::uint64_t steps = 0;
    std::size_t threads = 1;
    bool same_result = true;
};

/// Runs this program with other arguments; returns what it prints. Throws if it fails.
std::string output_of_self(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "cistern");
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);

    std::array<int, 2> ends = {};
    if (pipe(ends.data()) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    pid_t child = 0;
    const int error =
        posix_spawn(&child, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    std::string output;
    if (error == 0) {
        std::array<char, 4096> part = {};
        for (ssize_t n = 0; (n = read(ends[0], part.data(), part.size())) > 0;) {
            output.append(part.data(), static_cast<std::size_t>(n));
        }
    }
    close(ends[0]);
    if (error != 0) throw std::system_error(error, std::generic_category(), "posix_spawn");
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        throw std::runtime_error(
            fmt::format("the run on '{}' failed (status {})", arguments.at(2), status));
    }
    return output;
}

Comparison compare(const DemoArguments& arguments) {
    Comparison comparison;
    comparison.threads = std::clamp(std::thread::hardware_concurrency(), 1U, 4U);
    const double share = static_cast<double>(arguments.seconds) / (rounds * stores.size());
    // Plain malloc takes the longest, so its first run may take twice its share.
    double allowed = 2 * share;
    std::uint64_t steps = std::numeric_limits<std::uint64_t>::max();
    Progress progress;
    double done = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < stores.size(); ++i, ++done) {
            progress.show(fmt::format("round {} of {}: {}", round + 1, rounds, stores[i]),
                          done / (rounds * stores.size()));
            const std::string output = output_of_self(
                {"demo-run", stores[i], "--steps", std::to_string(steps), "--seconds",
                 fmt::format("{}", allowed), "--threads", std::to_string(comparison.threads)});
            comparison.columns[i].runs.push_back(Json::parse(output));
            const Json& first = comparison.columns[0].runs.front();
            const Json& last = comparison.columns[i].runs.back();
            comparison.same_result &= last.at("checksum") == first.at("checksum");
            comparison.steps = steps = first.at("steps").get<std::uint64_t>();
            allowed = 3600;
        }
    }
    return comparison;
}

Json json_of(const Comparison& comparison) {
    Json all{{"steps", comparison.steps},
             {"threads", comparison.threads},
             {"rounds", rounds},
             {"same_result", comparison.same_result}};
    for (std::size_t i = 0; i < stores.size(); ++i) {
        const Column& column = comparison.columns[i];
        Json& shown = all[stores[i]];
        for (const char* key : {"seconds", "cpu_seconds"}) shown[key] = column.median(key);
        for (const char* key : {"page_faults", "peak_bytes"}) {
            shown[key] = static_cast<std::uint64_t>(column.median(key));
        }
        if (column.runs.back().contains("stats")) shown["stats"] = column.runs.back().at("stats");
    }
    return all;
}

void print_comparison(const Comparison& comparison) {
    const Column &plain = comparison.columns[0], &tuned = comparison.columns[1],
                 &pool = comparison.columns[2];
    const auto row = [&](const char* name, const char* key, auto text) {
        fmt::print("{:<14}{:>14}{:>14}{:>14}{:>17.3g} x\n", name, text(plain.median(key)),
                   text(tuned.median(key)), text(pool.median(key)),
                   plain.median(key) / pool.median(key));
    };
    const auto seconds = [](double value) { return fmt::format("{:.2f} s", value); };
    const auto count = [](double value) {
        return text_of_count(static_cast<std::uint64_t>(value));
    };
    const auto bytes = [](double value) {
        return text_of_bytes(static_cast<std::uint64_t>(value));
    };

    fmt::print(
        "Heat sources wander over a plate; a finer grid follows each, so array shapes change at "
        "every\n"
        "step. {} steps on {} threads, each run in its own process, medians of {} runs:\n\n",
        comparison.steps, comparison.threads, rounds);
    fmt::print("{:<14}{:>14}{:>14}{:>14}{:>19}\n", "", "malloc", "malloc tuned", "Cistern",
               "malloc / Cistern");
    row("time", "seconds", seconds);
    row("CPU time", "cpu_seconds", seconds);
    row("page faults", "page_faults", count);
    row("peak memory", "peak_bytes", bytes);
    fmt::print("\nAll runs computed the same result. Tuned: mallopt keeps all that is freed.\n");

    const Json& report = pool.runs.back();
    fmt::print("\nWhat the pool did (pool.stats()):\n{}",
               report.at("stats_text").get<std::string>());
    fmt::print("\nWhy it still holds bytes (pool.explain()):\n");
    for (const Json& sentence : report.at("why")) {
        fmt::print("  - {}\n", sentence.get<std::string>());
    }
    fmt::print(
        "\nIn your code:  cistern::Pool pool;  auto u = pool.array<double>(rows, columns);\n");
}

void run_demo(const DemoArguments& arguments) {
    const Comparison comparison = compare(arguments);
    if (!comparison.same_result) {
        throw std::runtime_error("the runs computed different results; please report this");
    }
    if (arguments.json) {
        fmt::print("{}\n", json_of(comparison).dump(2));
    } else {
        print_comparison(comparison);
    }
}

}  // namespace

void add_demo(CLI::App& app) {
    CLI::App& command =
        *app.add_subcommand("demo", "Show on this machine what a pool saves a solver");
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
            "About how long to take (default 12)")
        ->type_name("N");
    command.add_flag("--json", arguments->json, "Print JSON instead of a table");
    command.footer(
        "Runs a small heat solver whose array shapes change at every step, on malloc, on malloc "
        "tuned to\n"
        "keep what is freed, and on Cistern; compares time, page faults and peak memory.\n\n"
        "Examples:\n"
        "  cistern demo\n"
        "  cistern demo --seconds 30 --json");
    command.callback([arguments] { run_demo(*arguments); });
}

}  // namespace cistern::cli
