// What the driver asks for mapping device memory: the calls behind every growth of a pool, for handles of
// several sizes, on an idle device and beside a stream that has work to do.

#include <algorithm>
#include <array>
#include <utility>

#include "cases.hpp"
#include "timing.hpp"

namespace bench {

namespace {

constexpr std::size_t handles = 8;

struct Costs {
    double create, map, access, unmap, release;  // µs for each handle
};

Costs costs_of(std::size_t bytes) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUdeviceptr range = 0;
    BENCH_CHECK(cuMemAddressReserve(&range, handles * bytes, 0, 0, 0));
    std::array<CUmemGenericAllocationHandle, handles> all{};

    double then = seconds();
    const auto lap = [&] {
        const double now = seconds();
        return (now - std::exchange(then, now)) * 1e6 / handles;
    };
    Costs costs{};
    for (auto& handle : all) BENCH_CHECK(cuMemCreate(&handle, bytes, &properties, 0));
    costs.create = lap();
    for (std::size_t i = 0; i < handles; ++i) {
        BENCH_CHECK(cuMemMap(range + i * bytes, bytes, 0, all[i], 0));
    }
    costs.map = lap();
    BENCH_CHECK(cuMemSetAccess(range, handles * bytes, &access, 1));
    costs.access = lap();
    for (std::size_t i = 0; i < handles; ++i) BENCH_CHECK(cuMemUnmap(range + i * bytes, bytes));
    costs.unmap = lap();
    for (const auto handle : all) BENCH_CHECK(cuMemRelease(handle));
    costs.release = lap();
    BENCH_CHECK(cuMemAddressFree(range, handles * bytes));
    return costs;
}

}  // namespace

nlohmann::ordered_json mapping(const Device& device) {
    const StreamOf stream;
    constexpr std::size_t filled = std::size_t{1} << 30;
    CUdeviceptr data = 0;
    BENCH_CHECK(cuMemAlloc(&data, filled));
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const std::size_t mib : std::array<std::size_t, 5>{2, 8, 32, 64, 128}) {
        for (const bool busy : {false, true}) {
            Costs best{1e9, 1e9, 1e9, 1e9, 1e9};
            bool worked = false;
            for (int round = 0; round < 5; ++round) {
                for (int i = 0; busy && i < 200; ++i) {
                    device.fill(stream.get(), reinterpret_cast<void*>(data), filled / 4, 1);
                }
                const Costs costs = costs_of(mib << 20);
                worked |= cuStreamQuery(stream.get()) == CUDA_ERROR_NOT_READY;
                best = {std::min(best.create, costs.create), std::min(best.map, costs.map),
                        std::min(best.access, costs.access), std::min(best.unmap, costs.unmap),
                        std::min(best.release, costs.release)};
                BENCH_CHECK(cuCtxSynchronize());
            }
            rows.push_back({{"handle_mib", mib},
                            {"stream_busy", busy},
                            {"stream_busy_at_the_end", worked},
                            {"create_us", best.create},
                            {"map_us", best.map},
                            {"access_us", best.access},
                            {"unmap_us", best.unmap},
                            {"release_us", best.release}});
        }
    }
    BENCH_CHECK(cuMemFree(data));
    return rows;
}

}  // namespace bench
