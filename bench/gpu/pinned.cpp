// Page-locked memory: pairs, the first GiB, and what is held for odd sizes.

#include <sys/wait.h>
#include <unistd.h>

#include "cases.hpp"
#include "cases/pair.hpp"
#include "cistern/pool.hpp"
#include "sources/floor.hpp"
#include "timing.hpp"

namespace bench {

nlohmann::ordered_json pinned_memory(const Device&) {
    nlohmann::ordered_json result;
    constexpr std::size_t gib = std::size_t{1} << 30;

    // Each is the first: the pool is new, and the driver keeps nothing.
    double ours = 1e9, theirs = 1e9;
    for (int round = 0; round < 3; ++round) {
        cistern::Pool pool(cistern::Memory::pinned());
        double begin = seconds();
        const cistern::Buffer buffer = pool.acquire(gib);
        ours = std::min(ours, seconds() - begin);
        void* data = nullptr;
        begin = seconds();
        BENCH_CHECK(cuMemHostAlloc(&data, gib, CU_MEMHOSTALLOC_PORTABLE));
        theirs = std::min(theirs, seconds() - begin);
        BENCH_CHECK(cuMemFreeHost(data));
    }
    result["first_gib"] = {{"cistern_ms", ours * 1e3}, {"cuMemHostAlloc_ms", theirs * 1e3}};

    nlohmann::ordered_json held = nlohmann::ordered_json::array();
    for (const std::size_t bytes : {std::size_t{259} << 19, std::size_t{13} * (gib / 10)}) {
        cistern::Pool pool(cistern::Memory::pinned());
        const cistern::Buffer buffer = pool.acquire(bytes);
        const auto now = static_cast<double>(pool.stats().held_bytes.now);
        held.push_back({{"bytes", bytes},
                        {"held_bytes", pool.stats().held_bytes.now},
                        {"waste", now / static_cast<double>(bytes) - 1}});
    }
    result["held"] = held;

    nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
    cistern::Pool pool(cistern::Memory::pinned());
    for (const std::size_t bytes : {std::size_t{1} << 10, std::size_t{1} << 20,
                                    std::size_t{64} << 20, std::size_t{1} << 30}) {
        Floor floor(64);
        const auto plain = [&](std::size_t count) {
            for (; count != 0; --count) {
                void* data = nullptr;
                BENCH_CHECK(cuMemHostAlloc(&data, bytes, CU_MEMHOSTALLOC_PORTABLE));
                BENCH_CHECK(cuMemFreeHost(data));
            }
        };
        const std::vector<double> ns =
            best_of({{200'000, [&](std::size_t count) { run_pairs(floor, bytes, count); }},
                     {200'000, [&](std::size_t count) { run_pairs(pool, bytes, count); }}},
                    400);
        const std::vector<double> host = best_of({{1, plain}}, 2);
        pairs.push_back({{"bytes", bytes},
                         {"floor_ns", ns[0]},
                         {"cistern_ns", ns[1]},
                         {"cuMemHostAlloc_ns", host[0]},
                         {"cistern_over_floor", ns[1] / ns[0]}});
    }
    result["pairs"] = pairs;
    return result;
}

}  // namespace bench
