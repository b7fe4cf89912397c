// cistern demo-run: one run of one of the demo's workloads, in a process of its own. Hidden from
// --help; prints one line of JSON for `cistern demo`.

#include <fmt/format.h>

#include <memory>
#include <string>

#include "commands.hpp"
#include "report.hpp"
#include "workload.hpp"

namespace cistern::cli {

namespace {

struct RunArguments {
    std::string workload, store, scale = "medium";
    workloads::Budget budget;
};

void run_once(const RunArguments& arguments) {
    const workloads::Workload& workload = workloads::find(arguments.workload);
    const workloads::Store store = workloads::store_named(arguments.store);
    const workloads::Scale scale = workloads::scale_named(arguments.scale);
    const workloads::Report report = workload.run(store, scale, arguments.budget);
    fmt::print("{}\n", workloads::json_of(workload, store, scale, report).dump());
}

}  // namespace

void add_demo_run(CLI::App& app) {
    CLI::App& command = *app.add_subcommand("demo-run", "One run of the demo");
    const auto arguments = std::make_shared<RunArguments>();
    command.group("");  // hidden
    command.add_option("workload", arguments->workload)->required();
    command.add_option("store", arguments->store)->required();
    command.add_option("--scale", arguments->scale);
    command.add_option("--steps", arguments->budget.steps);
    command.add_option("--seconds", arguments->budget.seconds);
    command.callback([arguments] { run_once(*arguments); });
}

}  // namespace cistern::cli
