// Acquire and release of device memory on one stream: the host's cost alone.

#include "cases.hpp"
#include "cases/pair.hpp"
#include "cistern/cistern.h"
#include "cistern/stream.hpp"
#include "sources/floor.hpp"
#include "timing.hpp"

namespace bench {

nlohmann::ordered_json device_pairs(const Device&) {
    const StreamOf stream;
    cistern::Pool pool(cistern::Memory::device());
    cistern::StreamPool lane = pool.on(stream.get());
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const std::size_t bytes : {std::size_t{1} << 10, std::size_t{1} << 20,
                                    std::size_t{64} << 20, std::size_t{1} << 30}) {
        Floor floor(64);
        const auto async = [&](std::size_t count) {
            for (; count != 0; --count) {
                CUdeviceptr data = 0;
                BENCH_CHECK(cuMemAllocAsync(&data, bytes, stream.get()));
                BENCH_CHECK(cuMemFreeAsync(data, stream.get()));
            }
        };
        const auto hook = [&](std::size_t count) {
            for (; count != 0; --count) {
                void* const data =
                    cistern_cuda_malloc(static_cast<std::ptrdiff_t>(bytes), 0, stream.get());
                cistern_cuda_free(data, static_cast<std::ptrdiff_t>(bytes), 0, stream.get());
            }
        };
        const auto plain = [&](std::size_t count) {
            for (; count != 0; --count) {
                CUdeviceptr data = 0;
                BENCH_CHECK(cuMemAlloc(&data, bytes));
                BENCH_CHECK(cuMemFree(data));
            }
        };
        const std::vector<double> ns =
            best_of({{200'000, [&](std::size_t count) { run_pairs(floor, bytes, count); }},
                     {200'000, [&](std::size_t count) { run_pairs(lane, bytes, count); }},
                     {200'000, [&](std::size_t count) { run_pairs(pool, bytes, count); }}},
                    400);
        const std::vector<double> driver =
            best_of({{20'000, hook}, {2'000, async}, {10, plain}}, 48);
        BENCH_CHECK(cuCtxSynchronize());
        pool.trim();
        cistern::default_pool(cistern::MemoryKind::device).trim();
        rows.push_back({{"bytes", bytes},
                        {"floor_ns", ns[0]},
                        {"cistern_ns", ns[1]},
                        {"cistern_default_stream_ns", ns[2]},
                        {"cistern_hook_ns", driver[0]},
                        {"cuMemAllocAsync_ns", driver[1]},
                        {"cuMemAlloc_ns", driver[2]},
                        {"cistern_over_floor", ns[1] / ns[0]}});
    }
    return rows;
}

}  // namespace bench
