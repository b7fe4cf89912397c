// Four threads, each giving four streams short kernels on buffers of its own; every buffer is written
// and read back on its stream, so that memory lent too early is seen.

#include <atomic>
#include <thread>

#include "cases.hpp"
#include "cistern/stream.hpp"
#include "timing.hpp"

namespace bench {

namespace {

constexpr std::size_t thread_count = 4, stream_count = 4;

struct Work {
    std::size_t steps;
    std::size_t buffers;  // for each kernel
    bool kernels;
};

/// Runs step(thread, stream, number) on all threads; returns the steps per second.
template <class Step>
double throughput(const Device& device, std::size_t steps, Step step) {
    std::atomic<std::size_t> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < thread_count; ++thread) {
        threads.emplace_back([&, thread] {
            device.enter();
            ready.fetch_add(1);
            while (!go.load()) std::this_thread::yield();
            for (std::size_t i = 0; i < steps; ++i) step(thread, i % stream_count, i);
        });
    }
    while (ready.load() != thread_count) std::this_thread::yield();
    const double begin = seconds();
    go.store(true);
    threads.clear();  // joins
    BENCH_CHECK(cuCtxSynchronize());
    return static_cast<double>(steps * thread_count) / (seconds() - begin);
}

std::size_t bytes_of(std::size_t number) { return (std::size_t{4} << 10) << (number % 7); }

/// Writes, and every eighth time reads back what was written: one short kernel a step, mostly.
void use(const Device& device, CUstream stream, void* data, std::size_t bytes, std::size_t step,
         std::size_t thread) {
    const auto value = static_cast<std::uint32_t>((thread << 28) + step);
    device.fill(stream, data, bytes / 4, value);
    if (step / stream_count % 8 == 0) device.compare(stream, data, bytes / 4, value);
}

}  // namespace

nlohmann::ordered_json several_streams(const Device& device) {
    const std::array<StreamOf, stream_count> streams;
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const Work& work : {Work{200'000, 1, false}, Work{20'000, 1, true}, Work{10'000, 4, true},
                             Work{4'000, 16, true}}) {
        double ours = 0, theirs = 0, bound = 0;
        cistern::PoolStats stats;
        for (int round = 0; round < 3; ++round) {
            cistern::Pool pool(cistern::Memory::device());
            std::vector<cistern::StreamPool> lanes;
            for (const StreamOf& stream : streams) lanes.push_back(pool.on(stream.get()));
            const auto cistern_step = [&](std::size_t thread, std::size_t lane, std::size_t i) {
                for (std::size_t b = 0; b < work.buffers; ++b) {
                    const std::size_t bytes = bytes_of(i / stream_count + b);
                    const cistern::Buffer buffer = lanes[lane].acquire(bytes);
                    if (!work.kernels || b != 0) continue;
                    use(device, streams[lane].get(), buffer.data(), bytes, i, thread);
                }
            };
            const auto driver_step = [&](std::size_t thread, std::size_t lane, std::size_t i) {
                CUstream stream = streams[lane].get();
                for (std::size_t b = 0; b < work.buffers; ++b) {
                    const std::size_t bytes = bytes_of(i / stream_count + b);
                    CUdeviceptr data = 0;
                    BENCH_CHECK(cuMemAllocAsync(&data, bytes, stream));
                    if (work.kernels && b == 0) {
                        use(device, stream, reinterpret_cast<void*>(data), bytes, i, thread);
                    }
                    BENCH_CHECK(cuMemFreeAsync(data, stream));
                }
            };
            // What the kernels alone allow: every thread has a buffer per stream, and keeps it.
            std::vector<cistern::Buffer> kept;
            for (std::size_t i = 0; i < thread_count * stream_count; ++i) {
                kept.push_back(lanes[i % stream_count].acquire(bytes_of(6)));
            }
            const auto bare_step = [&](std::size_t thread, std::size_t lane, std::size_t i) {
                use(device, streams[lane].get(), kept[thread * stream_count + lane].data(),
                    bytes_of(i / stream_count), i, thread);
            };
            if (work.kernels) bound = std::max(bound, throughput(device, work.steps, bare_step));
            kept.clear();
            ours = std::max(ours, throughput(device, work.steps, cistern_step));
            const std::size_t fewer = work.kernels ? work.steps : work.steps / 20;
            theirs = std::max(theirs, throughput(device, fewer, driver_step));
            stats = pool.stats();
        }
        rows.push_back({{"buffers_per_step", work.buffers},
                        {"kernels_per_step", work.kernels ? 1 : 0},
                        {"cistern_steps_per_s", ours},
                        {"cuMemAllocAsync_steps_per_s", theirs},
                        {"kernels_alone_steps_per_s", bound},
                        {"ratio", ours / theirs},
                        {"cistern_hit_rate", stats.hit_rate()},
                        {"cistern_held_bytes", stats.held_bytes.peak}});
    }
    nlohmann::ordered_json result;
    result["throughput"] = rows;
    result["words_corrupted"] = device.errors();

    // A block crosses when its new stream would else ask the memory for more.
    cistern::Pool pool(cistern::Memory::device(), {.max_bytes = std::size_t{64} << 20,
                                                   .max_idle_bytes = std::size_t{64} << 20});
    cistern::StreamPool first = pool.on(streams[0].get()), second = pool.on(streams[1].get());
    constexpr std::size_t crossings = 2000, bytes = std::size_t{48} << 20;
    static_cast<void>(first.acquire(bytes));
    const double begin = seconds();
    for (std::size_t i = 0; i < crossings / 2; ++i) {
        static_cast<void>(second.acquire(bytes));
        static_cast<void>(first.acquire(bytes));
    }
    result["crossing_ns"] = (seconds() - begin) * 1e9 / crossings;
    return result;
}

}  // namespace bench
