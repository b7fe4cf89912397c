// cistern_bench: Cistern, the floor and the peers on the same work, in one run.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "budget.hpp"
#include "machine.hpp"
#include "plan.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "run.hpp"
#include "table.hpp"

namespace bench {
namespace {

#if defined(__OPTIMIZE__)
constexpr bool optimised = true;
#else
constexpr bool optimised = false;
#endif

struct Options {
    std::string json, filter;
    bool quick = false, check = false, list = false;
};

std::string full_name(const Group& group, const Case& one) {
    return group.title + " / " + one.lines.front().label;
}

/// Returns the groups with the cases that match; no empty ones.
std::vector<Group> selected(const Options& options) {
    const std::regex wanted(options.filter, std::regex::icase);
    std::vector<Group> groups = plan(options.quick);
    for (Group& group : groups) {
        std::erase_if(group.cases, [&](const Case& one) {
            return !std::regex_search(full_name(group, one), wanted);
        });
    }
    std::erase_if(groups, [](const Group& group) { return group.cases.empty(); });
    return groups;
}

std::size_t count_cases(const std::vector<Group>& groups) {
    std::size_t cases = 0;
    for (const Group& group : groups) cases += group.cases.size();
    return cases;
}

/// Where the JSON goes; opened first, so that a wrong path is not found out after minutes. Throws
/// std::invalid_argument.
class JsonFile {
public:
    explicit JsonFile(const std::string& path) : path_(path) {
        if (path.empty() || path == "-") return;
        file_.open(path);
        if (!file_) throw std::invalid_argument("--json: cannot write '" + path + "'");
    }
    void write(const nlohmann::json& report) {
        if (path_ == "-") fmt::print("{}\n", report.dump(1));
        if (file_.is_open()) file_ << report.dump(1) << std::endl;
    }

private:
    std::string path_;
    std::ofstream file_;
};

void print_heading() {
    const nlohmann::json facts = machine_facts();
    fmt::print("{}, {} cores, Linux {}, huge pages: {}\n", facts["cpu"].get<std::string>(),
               facts["cores"].get<int>(), facts["kernel"].get<std::string>(),
               facts["transparent_hugepage"].get<std::string>());
    if (!optimised) fmt::print("Built without optimisation: the figures mean little.\n");
}

int run(const Options& options) {
    const std::vector<Group> groups = selected(options);
    if (groups.empty()) {
        throw std::invalid_argument("--filter: no case matches '" + options.filter + "'");
    }
    if (options.list) {
        for (const Group& group : groups) {
            for (const Case& one : group.cases) fmt::print("{}\n", full_name(group, one));
        }
        return 0;
    }
    JsonFile json(options.json);
    const bool tables = options.json != "-";
    if (tables) print_heading();
    Workers workers;
    Progress progress(count_cases(groups));
    std::vector<GroupResult> results;
    std::size_t disturbed = 0;
    for (const Group& group : groups) {
        GroupResult& result = results.emplace_back(GroupResult{.about = group, .cases = {}});
        result.about.cases.clear();
        progress.start_group(group.title);
        for (const Case& one : group.cases) {
            progress.start_case(group.title + ", " + one.lines.front().label);
            if (machine_is_busy()) ++disturbed;
            result.cases.push_back(run_case(workers, one, progress));
        }
        progress.clear();
        if (tables) print_group(result);
    }
    if (tables) {
        print_notes(workers);
        if (disturbed != 0) {
            fmt::print(
                "Other programs were running at the start of {} of {} cases; figures for two "
                "threads suffer most.\n",
                disturbed, count_cases(groups));
        }
        print_summary(results);
    }
    json.write(report(results, workers));

    const std::vector<Summary> summary = summarise(results);
    const bool all_hold =
        std::all_of(summary.begin(), summary.end(), [](const Summary& one) { return one.holds(); });
    if (!workers.deaths().empty()) return 3;
    return options.check && !all_hold ? 1 : 0;
}

}  // namespace
}  // namespace bench

int main(int count, char** arguments) try {
    bench::Options options;
    CLI::App app{
        "Measures Cistern beside a floor and other allocators, on the same work, interleaved.\n"
        "Exit status: 0; 1 if a budget does not hold and --check was given; 2 for bad arguments;\n"
        "3 if a contestant crashed."};
    app.add_option("--json", options.json, "write every figure to FILE; '-' prints nothing else")
        ->type_name("FILE");
    app.add_option("--filter", options.filter, "only cases whose name matches (see --list)")
        ->type_name("REGEX")
        ->check([](const std::string& text) {
            try {
                const std::regex tried(text);
                return std::string();
            } catch (const std::regex_error& error) {
                return "'" + text + "' is no regular expression: " + error.what();
            }
        });
    app.add_flag("--quick", options.quick, "a short run, with rougher figures");
    app.add_flag("--check", options.check, "exit with 1 if a budget does not hold");
    app.add_flag("--list", options.list, "list the cases and stop");
    try {
        app.parse(count, arguments);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    return bench::run(options);
} catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
} catch (const std::exception& error) {
    std::fprintf(stderr, "cistern_bench: %s\n", error.what());
    return 3;
}
