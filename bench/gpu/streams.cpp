// Four threads give streams short kernels on buffers of their own: each thread one stream, each four, or
// all threads the same four. Buffers are read back on their stream, so that memory lent too early is seen.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "cases.hpp"
#include "cistern/stream.hpp"
#include "timing.hpp"

namespace bench {

namespace {

constexpr std::size_t thread_count = 4;

/// Which streams the threads work on.
struct Layout {
    const char* name;
    std::size_t streams;      // of a thread
    std::size_t from_thread;  // its first stream, times the number of the thread

    [[nodiscard]] std::size_t count() const { return streams + (thread_count - 1) * from_thread; }
    [[nodiscard]] std::size_t stream(std::size_t thread, std::size_t step) const {
        return thread * from_thread + step % streams;
    }
};

struct Work {
    std::size_t steps;
    std::size_t buffers;  // for each kernel
    bool kernels;
    std::size_t rounds;
    std::size_t times = 1;  // the usual sizes

    [[nodiscard]] std::size_t bytes_of(std::size_t number) const {
        return times * (std::size_t{4} << 10) << (number % 7);
    }
};
constexpr std::size_t most_buffers = 16;
constexpr std::size_t most_written = 256 << 10;  // by a short kernel

/// Runs step(thread, number) on all threads, each on a core of its own; returns the steps per second.
template <class Step>
double throughput(const Device& device, std::size_t steps, std::size_t round, Step step) {
    std::atomic<std::size_t> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < thread_count; ++thread) {
        threads.emplace_back([&, thread] {
            Cores cores;
            cores.share(thread, thread_count, round);
            device.enter();
            ready.fetch_add(1);
            while (!go.load()) std::this_thread::yield();
            for (std::size_t i = 0; i < steps; ++i) step(thread, i);
        });
    }
    while (ready.load() != thread_count) std::this_thread::yield();
    const double begin = seconds();
    go.store(true);
    threads.clear();  // joins
    BENCH_CHECK(cuCtxSynchronize());
    return static_cast<double>(steps * thread_count) / (seconds() - begin);
}

/// Threads, streams and the three ways to have buffers for the kernels.
class Scene {
public:
    Scene(const Device& device, const Layout& layout, const Work& work, std::size_t round)
        : device_(device), layout_(layout), work_(work), round_(round), streams_(layout.count()) {
        for (const StreamOf& stream : streams_) lanes_.push_back(pool_.on(stream.get()));
    }

    /// The steps per second with buffers of the pool, of the driver, and with buffers that stay.
    double cistern() {
        return run(work_.steps, [this](std::size_t thread, std::size_t lane, std::size_t i) {
            Buffers& buffers = buffers_[thread];
            for (std::size_t b = 0; b < work_.buffers; ++b) {
                buffers[b] = lanes_[lane].acquire(work_.bytes_of(i + b));
            }
            use(thread, lane, i, buffers[0].data(), work_.bytes_of(i));
            for (std::size_t b = 0; b < work_.buffers; ++b) buffers[b].release();
        });
    }
    double driver() {
        const std::size_t steps = work_.kernels ? work_.steps : work_.steps / 200;
        return run(steps, [this](std::size_t thread, std::size_t lane, std::size_t i) {
            CUstream stream = streams_[lane].get();
            std::array<CUdeviceptr, most_buffers> buffers{};
            for (std::size_t b = 0; b < work_.buffers; ++b) {
                BENCH_CHECK(cuMemAllocAsync(&buffers[b], work_.bytes_of(i + b), stream));
            }
            use(thread, lane, i, reinterpret_cast<void*>(buffers[0]), work_.bytes_of(i));
            for (std::size_t b = 0; b < work_.buffers; ++b) {
                BENCH_CHECK(cuMemFreeAsync(buffers[b], stream));
            }
        });
    }
    double kernels_alone() {
        if (!work_.kernels) return 0;
        cistern::Pool others{cistern::Memory::device()};
        std::vector<cistern::Buffer> kept;
        for (std::size_t i = 0; i < thread_count * lanes_.size(); ++i) {
            kept.push_back(others.acquire(most_written));
        }
        return run(work_.steps, [&, this](std::size_t thread, std::size_t lane, std::size_t i) {
            use(thread, lane, i, kept[thread * lanes_.size() + lane].data(), work_.bytes_of(i));
        });
    }
    void compare_every(std::size_t steps) { compare_every_ = steps; }
    [[nodiscard]] cistern::PoolStats stats() const { return pool_.stats(); }

private:
    struct alignas(64) Buffers : std::array<cistern::Buffer, most_buffers> {};

    template <class Step>
    double run(std::size_t steps, Step step) {
        return throughput(device_, steps, round_, [&, this](std::size_t thread, std::size_t i) {
            step(thread, layout_.stream(thread, i), i / layout_.streams);
        });
    }
    /// One short kernel that writes, and now and then a second one that reads back.
    void use(std::size_t thread, std::size_t lane, std::size_t step, void* data,
             std::size_t bytes) {
        if (!work_.kernels) return;
        const auto value = static_cast<std::uint32_t>((thread << 28) + step);
        const std::size_t words = std::min(bytes, most_written) / 4;
        device_.fill(streams_[lane].get(), data, words, value);
        if (step % compare_every_ == 0) {
            device_.compare(streams_[lane].get(), data, words, value);
        }
    }

    const Device& device_;
    Layout layout_;
    Work work_;
    std::size_t round_;
    std::size_t compare_every_ = 64;
    std::vector<StreamOf> streams_;
    cistern::Pool pool_{cistern::Memory::device()};
    std::vector<cistern::StreamPool> lanes_;
    std::array<Buffers, thread_count> buffers_;
};

nlohmann::ordered_json row(const Device& device, const Layout& layout, const Work& work) {
    std::vector<double> ours, theirs, bound;
    cistern::PoolStats stats;
    for (std::size_t round = 0; round < work.rounds; ++round) {
        Scene scene(device, layout, work, round);
        bound.push_back(scene.kernels_alone());
        ours.push_back(scene.cistern());
        theirs.push_back(scene.driver());
        stats = scene.stats();
        scene.compare_every(1);  // once more without the clock, and every buffer read back
        scene.cistern();
    }
    return {{"streams", layout.name},
            {"buffers_per_step", work.buffers},
            {"largest_bytes", work.bytes_of(6)},
            {"kernels_per_step", work.kernels ? 1 : 0},
            {"cistern_steps_per_s", median(ours)},
            {"cuMemAllocAsync_steps_per_s", median(theirs)},
            {"kernels_alone_steps_per_s", median(bound)},
            {"ratio", median(ours) / median(theirs)},
            {"cistern_hit_rate", stats.hit_rate()},
            {"cistern_held_bytes", stats.held_bytes.peak}};
}

}  // namespace

nlohmann::ordered_json several_streams(const Device& device) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const Layout& layout : {Layout{"one per thread", 1, 1}, Layout{"four per thread", 4, 4},
                                 Layout{"four shared by all", 4, 0}}) {
        for (const Work& work : {Work{2'000'000, 1, false, 5}, Work{30'000, 1, true, 9},
                                 Work{15'000, 2, true, 5}, Work{10'000, 4, true, 3},
                                 Work{4'000, most_buffers, true, 3}, Work{50'000, 1, false, 3, 100},
                                 Work{10'000, 1, true, 3, 100}, Work{4'000, 4, true, 3, 100}}) {
            rows.push_back(row(device, layout, work));
            fmt::print(stderr, "  {}, {} of up to {} KiB, {}: {:.2f} x\n", layout.name,
                       work.buffers, work.bytes_of(6) >> 10,
                       work.kernels ? "a kernel" : "no kernel", rows.back()["ratio"].get<double>());
        }
    }
    nlohmann::ordered_json result;
    result["throughput"] = rows;
    result["words_corrupted"] = device.errors();
    return result;
}

nlohmann::ordered_json crossing(const Device&) {
    const std::array<StreamOf, 2> streams;
    // A block crosses when its new stream would else ask the memory for more.
    cistern::Pool pool(cistern::Memory::device(), {.max_bytes = std::size_t{64} << 20,
                                                   .max_idle_bytes = std::size_t{64} << 20});
    std::array lanes{pool.on(streams[0].get()), pool.on(streams[1].get())};
    CUevent event = nullptr;
    BENCH_CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    const auto cross = [&](std::size_t steps) {
        for (std::size_t i = 0; i < steps; ++i) {
            static_cast<void>(lanes[i % 2].acquire(std::size_t{48} << 20));
        }
    };
    const auto bare_event = [&](std::size_t steps) {
        for (std::size_t i = 0; i < steps; ++i) {
            BENCH_CHECK(cuEventRecord(event, streams[i % 2].get()));
            BENCH_CHECK(cuStreamWaitEvent(streams[(i + 1) % 2].get(), event, 0));
        }
    };
    const std::vector<double> best = best_of({{200, cross}, {200, bare_event}}, 64);
    BENCH_CHECK(cuEventDestroy(event));
    return {{"cistern_ns", best[0]}, {"one_event_ns", best[1]}};
}

}  // namespace bench
