#pragma once
// Acquire and release, over and over: one at a time, in several sizes, several at once, on two threads.

#include <cstddef>

#include "clock.hpp"
#include "cores.hpp"
#include "task.hpp"

namespace bench {

// The size is hidden in every step: a program's sizes vary, so nothing may be computed ahead. The
// loan is not const, because GCC keeps const objects with destructors in memory, not in registers.
template <class Source>
[[gnu::noinline]] void run_pairs(Source& source, std::size_t bytes, std::size_t count) {
    for (; count != 0; --count) {
        hide(bytes);
        auto loan = source.acquire(bytes);
        keep(loan.data());
    }
}

template <class Source>
class PairTask : public Task {
public:
    explicit PairTask(const Parameters& parameters)
        : bytes_(parameters.bytes), source_(bytes_), batch_(parameters.round_ns) {}

    Figures round() override {
        return {{"ns", batch_.run([&](std::size_t count) { run_pairs(source_, bytes_, count); })}};
    }

private:
    std::size_t bytes_;
    Source source_;
    Batch batch_;
};

/// Pairs of seven sizes in turn, each twice the one before; ns per pair.
template <class Source>
class RotateTask : public Task {
public:
    explicit RotateTask(const Parameters& parameters)
        : smallest_(parameters.bytes), source_(smallest_), batch_(parameters.round_ns) {}

    Figures round() override {
        return {{"ns", batch_.run([&](std::size_t count) { run(count); })}};
    }

private:
    [[gnu::noinline]] void run(std::size_t count) {
        for (std::size_t turn = 0; count != 0; --count, turn = turn == 6 ? 0 : turn + 1) {
            auto loan = source_.acquire(smallest_ << turn);
            keep(loan.data());
        }
    }

    std::size_t smallest_;
    Source source_;
    Batch batch_;
};

/// Four buffers of one size at once, as a solver holds them; ns per buffer.
template <class Source>
class NestedTask : public Task {
public:
    explicit NestedTask(const Parameters& parameters)
        : bytes_(parameters.bytes), source_(bytes_), batch_(parameters.round_ns) {}

    Figures round() override {
        return {{"ns", batch_.run([&](std::size_t count) { run(count); }) / 4}};
    }

private:
    [[gnu::noinline]] void run(std::size_t count) {
        std::size_t bytes = bytes_;
        for (; count != 0; --count) {
            hide(bytes);
            auto a = source_.acquire(bytes);
            keep(a.data());
            auto b = source_.acquire(bytes);
            keep(b.data());
            auto c = source_.acquire(bytes);
            keep(c.data());
            auto d = source_.acquire(bytes);
            keep(d.data());
        }
    }

    std::size_t bytes_;
    Source source_;
    Batch batch_;
};

/// The same pairs on one thread, then on two at once. ns per pair of both together, so that twice
/// the throughput is half the figure.
template <class Source>
class TwoThreadsTask : public Task {
public:
    explicit TwoThreadsTask(const Parameters& parameters)
        : bytes_(parameters.bytes), source_(bytes_), batch_(parameters.round_ns) {}

    Figures round() override {
        const double one =
            batch_.run([&](std::size_t count) { run_pairs(source_, bytes_, count); });
        const double two = both_.run_timed([&](std::size_t count) {
            const auto pairs = [&] { run_pairs(source_, bytes_, count); };
            return partner_.run(pairs, pairs);
        });
        return {{"one", one}, {"two", two / 2}};
    }

private:
    std::size_t bytes_;
    Source source_;
    Batch batch_;
    Batch both_ = batch_;
    Partner partner_;  // last, so that its thread ends before what it uses
};

}  // namespace bench
