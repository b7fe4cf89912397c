// cistern_bench_gpu: device and pinned memory beside the driver's own allocators. Prints JSON; run.py
// prints it as a table, with PyTorch and CuPy beside.

#include <fmt/format.h>

#include <cstdio>

#include "cases.hpp"
#include "cistern/memory.hpp"

int main() {
    if (!cistern::cuda_available()) {
        fmt::print(stderr, "there is no CUDA device here\n");
        return 2;
    }
    const bench::Device device;
    const auto say = [](const char* what) { fmt::print(stderr, "{} ...\n", what); };
    nlohmann::ordered_json result;
    result["device"] = device.name();
    say("device pairs");
    result["device_pairs"] = bench::device_pairs(device);
    say("pinned memory");
    result["pinned"] = bench::pinned_memory(device);
    say("several streams");
    result["streams"] = bench::several_streams(device);
    fmt::print("{}\n", result.dump(2));
    return 0;
}
