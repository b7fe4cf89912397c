#pragma once
// Programs with many threads and many pools.
//
// `ManyThreadsTask`: acquires that the magazine cannot serve, as in `ArenaTask`, while 0, 16 or 256 other
// threads have magazines of the same pool.
// `ManyPoolsTask`: one thread borrows from 1, 31 or 256 pools in turn.

#include <array>
#include <cstddef>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "clock.hpp"
#include "sources/cistern.hpp"
#include "task.hpp"

namespace bench {

/// Threads that have each borrowed from a pool once, and sleep.
class Sleepers {
public:
    Sleepers(cistern::Pool& pool, std::size_t count)
        : borrowed_(static_cast<std::ptrdiff_t>(count)) {
        for (std::size_t i = 0; i < count; ++i) {
            threads_.emplace_back([&] {
                pool.acquire(1024).release();
                borrowed_.count_down();
                end_.wait();
            });
        }
        borrowed_.wait();
    }
    Sleepers(const Sleepers&) = delete;
    Sleepers& operator=(const Sleepers&) = delete;
    ~Sleepers() { end_.count_down(); }

private:
    std::latch borrowed_, end_{1};
    std::vector<std::jthread> threads_;
};

class ManyThreadsTask : public Task {
public:
    explicit ManyThreadsTask(const Parameters& parameters)
        : repeats_(static_cast<std::size_t>(parameters.round_ns / 1e4)) {
        for (const std::size_t count : {0UL, 16UL, 256UL}) {
            rows_.push_back(std::make_unique<Row>(count));
        }
    }

    Figures round() override {
        Figures figures;
        for (const auto& row : rows_) {
            double missed = 0;
            for (std::size_t n = 0; n < repeats_; ++n) {
                missed += time_ns([&] { acquire(row->source); });
                std::thread([&] { release(); }).join();
            }
            figures[row->name] = missed / static_cast<double>(repeats_ * batch);
        }
        return figures;
    }

private:
    static constexpr std::size_t batch = 64;
    struct Row {
        explicit Row(std::size_t count)
            : name(std::to_string(count)), sleepers(source.pool(), count) {}
        std::string name;
        Cistern source{0};
        Sleepers sleepers;
    };

    [[gnu::noinline]] void acquire(Cistern& source) {
        for (std::size_t i = 0; i < batch; ++i) live_[i] = source.acquire(sizes_[i]);
    }
    [[gnu::noinline]] void release() {
        for (cistern::Buffer& buffer : live_) buffer.release();
    }

    std::size_t repeats_;
    std::vector<std::size_t> sizes_ = mixed_sizes(batch, 64, std::size_t{1} << 20);
    std::array<cistern::Buffer, batch> live_;
    std::vector<std::unique_ptr<Row>> rows_;
};

class ManyPoolsTask : public Task {
public:
    explicit ManyPoolsTask(const Parameters& parameters) : bytes_(parameters.bytes) {
        for (const std::size_t count : {1UL, 31UL, 256UL}) {
            Row& row =
                rows_.emplace_back(Row{std::to_string(count), {}, Batch(parameters.round_ns)});
            for (std::size_t i = 0; i < count; ++i) row.sources.emplace_back(0);
        }
    }

    Figures round() override {
        Figures figures;
        for (Row& row : rows_) {
            figures[row.name] = row.batch.run([&](std::size_t count) {
                for (std::size_t turn = 0; count != 0; --count) {
                    auto loan = row.sources[turn].acquire(bytes_);
                    keep(loan.data());
                    if (++turn == row.sources.size()) turn = 0;
                }
            });
        }
        return figures;
    }

private:
    struct Row {
        std::string name;
        std::vector<Cistern> sources;
        Batch batch;
    };
    std::size_t bytes_;
    std::vector<Row> rows_;
};

}  // namespace bench
