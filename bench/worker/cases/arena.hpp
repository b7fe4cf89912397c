#pragma once
// Requests the magazine cannot serve: what the second floor costs.
//
// `ArenaTask`: batches of 64 buffers, 64 B to 1 MiB mixed, are acquired and then released in another
// order, so that the arena splits and coalesces all the while. In two ways:
// - A pool with a limit on the number of idle buffers keeps no magazines: every acquire takes from
//   the arena and every release goes back to it. Both are timed.
// - A pool with default options, whose buffers a thread on the same core releases that then ends: its
//   magazine goes to the arena, and that of the timed thread is empty. Only the acquire is timed.
//
// `CrowdTask`: what a pair costs while 10, 1000 or 100,000 others are live or idle.

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cases/pair.hpp"
#include "clock.hpp"
#include "sources/cistern.hpp"
#include "task.hpp"

namespace bench {

/// Options that send every request to the arena, with a limit no task here comes near.
inline cistern::PoolOptions arena_only() {
    return {.name = "bench", .max_idle_buffers = std::size_t{1} << 30};
}

class ArenaTask : public Task {
public:
    explicit ArenaTask(const Parameters& parameters)
        : default_source_(0),
          source_(0, arena_only()),
          repeats_(static_cast<std::size_t>(parameters.round_ns / 1e4)) {
        for (std::size_t i = 0; i < batch; ++i) order_[i] = i;
        std::shuffle(order_.begin(), order_.end(), std::mt19937_64{11});
    }

    Figures round() override {
        acquire(source_);  // to warm the caches
        release();
        double acquired = 0, released = 0, missed = 0;
        for (std::size_t n = 0; n < repeats_; ++n) {
            acquired += time_ns([&] { acquire(source_); });
            released += time_ns([&] { release(); });
        }
        for (std::size_t n = 0; n < repeats_; ++n) {
            missed += time_ns([&] { acquire(default_source_); });
            std::thread([&] { release(); }).join();
        }
        const auto buffers = static_cast<double>(repeats_ * batch);
        return {{"acquire", acquired / buffers},
                {"release", released / buffers},
                {"miss", missed / buffers}};
    }

private:
    static constexpr std::size_t batch = 64;

    [[gnu::noinline]] void acquire(Cistern& source) {
        for (std::size_t i = 0; i < batch; ++i) live_[i] = source.acquire(sizes_[i]);
    }
    [[gnu::noinline]] void release() {
        for (const std::size_t i : order_) live_[i].release();
    }

    Cistern default_source_, source_;
    std::size_t repeats_;
    std::vector<std::size_t> sizes_ = mixed_sizes(batch, 64, std::size_t{1} << 20);
    std::array<std::size_t, batch> order_{};
    std::array<cistern::Buffer, batch> live_;
};

/// A pool in which `count` blocks of mixed sizes are live, or idle between as many live ones (so
/// that they cannot coalesce).
class Crowd {
public:
    Crowd(std::size_t count, bool idle, cistern::PoolOptions options)
        : source_(0, std::move(options)) {
        for (const std::size_t bytes : mixed_sizes(idle ? 2 * count : count, 64, 8192)) {
            live_.push_back(source_.acquire(bytes));
        }
        if (!idle) return;
        for (std::size_t i = 0; i < live_.size(); i += 2) live_[i].release();
    }
    Cistern& source() { return source_; }

private:
    Cistern source_;
    std::vector<cistern::Buffer> live_;
};

class CrowdTask : public Task {
public:
    CrowdTask(const Parameters& parameters, bool idle, const cistern::PoolOptions& options)
        : bytes_(parameters.bytes) {
        for (const std::size_t count : {10UL, 1000UL, 100'000UL}) {
            rows_.push_back(
                {std::to_string(count), Crowd(count, idle, options), Batch(parameters.round_ns)});
        }
    }

    Figures round() override {
        Figures figures;
        for (Row& row : rows_) {
            figures[row.name] = row.batch.run(
                [&](std::size_t count) { run_pairs(row.crowd.source(), bytes_, count); });
        }
        return figures;
    }

private:
    struct Row {
        std::string name;
        Crowd crowd;
        Batch batch;
    };
    std::size_t bytes_;
    std::vector<Row> rows_;
};

}  // namespace bench
