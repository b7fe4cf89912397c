// cistern demo-run: one run of the demo's solver, in a process of its own. Hidden from --help; prints
// one line of JSON for `cistern demo`.

#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "cistern/pool.hpp"
#include "commands.hpp"
#include "solver.hpp"

namespace cistern::cli {

namespace {

struct RunArguments {
    std::string store;
    std::uint64_t steps = 1;
    double seconds = 1;  // stops after whichever comes first
    std::size_t threads = 1;
};

class MallocStore {
public:
    class Array {
    public:
        Array() = default;
        Array(std::size_t rows, std::size_t columns)
            : data_(new double[rows * columns]),
              view_(data_.get(), {rows, columns}, rows * columns) {}
        [[nodiscard]] const Grid& view() const noexcept { return view_; }

    private:
        std::unique_ptr<double[]> data_;
        Grid view_;
    };
    Array array(std::size_t rows, std::size_t columns) { return {rows, columns}; }
};

class PoolStore {
public:
    explicit PoolStore(Pool pool) : pool_(std::move(pool)) {}
    Array<double, 2> array(std::size_t rows, std::size_t columns) {
        return pool_.array<double>(rows, columns);
    }

private:
    Pool pool_;
};

template <class Value>
std::string printed(const Value& value) {
    std::ostringstream out;
    out << value;
    return out.str();
}

double seconds_of(const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

template <class Store>
void measure(Store store, const RunArguments& arguments, nlohmann::ordered_json& report) {
    using Clock = std::chrono::steady_clock;
    std::uint64_t steps = 0;
    double seconds = 0;
    const auto begin = Clock::now();
    Solver<Store> solver(std::move(store), arguments.threads);
    do {
        solver.step();
        ++steps;
        seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    } while (steps < arguments.steps && seconds < arguments.seconds);
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    report["steps"] = steps;
    report["seconds"] = seconds;
    report["cpu_seconds"] = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    report["checksum"] = solver.checksum();
    report["page_faults"] = usage.ru_minflt;
    report["peak_bytes"] = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

void run_once(const RunArguments& arguments) {
    nlohmann::ordered_json report;
    if (arguments.store == "cistern") {
        Pool pool{Memory::host(), {.name = "demo"}};
        measure(PoolStore(pool), arguments, report);
        report["stats"] = nlohmann::ordered_json::parse(pool.stats().json());
        report["stats_text"] = printed(pool.stats());
        report["why"] = pool.explain().why;
    } else {
        if (arguments.store == "tuned") {
            // As an expert would: map no array on its own, keep what was freed, grow in large steps.
            // Of the settings tried this one took the least CPU time.
            mallopt(M_MMAP_THRESHOLD, 1 << 30);
            mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
            mallopt(M_TOP_PAD, 64 << 20);
        }
        measure(MallocStore(), arguments, report);
    }
    fmt::print("{}\n", report.dump());
}

}  // namespace

void add_demo_run(CLI::App& app) {
    CLI::App& command = *app.add_subcommand("demo-run", "One run of the demo");
    const auto arguments = std::make_shared<RunArguments>();
    command.group("");  // hidden
    command.add_option("store", arguments->store)
        ->required()
        ->check(CLI::IsMember({"malloc", "tuned", "cistern"}));
    command.add_option("--steps", arguments->steps);
    command.add_option("--seconds", arguments->seconds);
    command.add_option("--threads", arguments->threads)->check(CLI::Range(1, 1024));
    command.callback([arguments] { run_once(*arguments); });
}

}  // namespace cistern::cli
