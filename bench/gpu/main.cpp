// cistern_bench_gpu: device and pinned memory beside the driver's own allocators. Prints JSON.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "cases.hpp"
#include "cistern/memory.hpp"

int main(int argc, char** argv) {
    struct Case {
        const char* name;
        const char* what;
        nlohmann::ordered_json (*run)(const bench::Device&);
    };
    constexpr std::array cases = {
        Case{"pairs", "acquire and release on one stream", bench::device_pairs},
        Case{"pinned", "pinned memory: pairs, the first GiB, waste", bench::pinned_memory},
        Case{"mapping", "what the driver's calls behind a growth cost", bench::mapping},
        Case{"streams", "four threads on four streams", bench::several_streams},
        Case{"crossing", "a block that goes from stream to stream", bench::crossing},
    };
    std::string help =
        "Cistern on a CUDA device beside the driver's own allocators; prints JSON.\n";
    for (const Case& one : cases) help += fmt::format("\n  {:<8} {}", one.name, one.what);
    CLI::App app(help);
    std::vector<std::string> names, wanted;
    for (const Case& one : cases) names.emplace_back(one.name);
    app.add_option("case", wanted, "those to run; all without")->check(CLI::IsMember(names));
    CLI11_PARSE(app, argc, argv);

    if (!cistern::cuda_available()) {
        fmt::print(stderr, "there is no CUDA device here\n");
        return 2;
    }
    const bench::Device device;
    nlohmann::ordered_json result;
    result["device"] = device.name();
    for (const Case& one : cases) {
        if (!wanted.empty() && std::ranges::find(wanted, one.name) == wanted.end()) continue;
        fmt::print(stderr, "{} ...\n", one.what);
        result[one.name] = one.run(device);
    }
    fmt::print("{}\n", result.dump(2));
    return 0;
}
