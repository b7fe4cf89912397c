#pragma once
// Bytes nobody has used before. Each round runs in a forked process in which nothing is idle, so
// that every allocator must go to the system; what it took goes back when that process ends. Acquire and touch are timed, the
// release is not.

#include <cstring>

#include "clock.hpp"
#include "sources/mapping.hpp"
#include "task.hpp"

namespace bench {

/// Runs `measure` in a forked process; returns what it returned. Throws std::runtime_error if that
/// process failed.
double in_fork(double (*measure)(std::size_t bytes), std::size_t bytes);

template <class Measure>
class FreshTask : public Task {
public:
    explicit FreshTask(const Parameters& parameters) : bytes_(parameters.bytes) {}
    Figures round() override { return {{"ns", in_fork(&Measure::run, bytes_)}}; }

private:
    std::size_t bytes_;
};

template <class Source>
struct FreshTouch {
    static double run(std::size_t bytes) {
        Source source(bytes);
        const double start = now_ns();
        auto loan = source.acquire(bytes);
        touch_pages(loan.data(), bytes);
        return now_ns() - start;
    }
};

template <class Source>
struct FreshZeroed {
    static double run(std::size_t bytes) {
        Source source(bytes);
        const double start = now_ns();
        auto loan = source.acquire_zeroed(bytes);
        touch_pages(loan.data(), bytes);
        return now_ns() - start;
    }
};

/// The reference for both: a mapping on huge pages. The system zeroes it, so it is zeroed too.
struct FreshMapping {
    static double run(std::size_t bytes) {
        const double start = now_ns();
        const HugeMapping mapping(bytes);
        touch_pages(mapping.data(), bytes);
        return now_ns() - start;
    }
};

/// The same for a pool that was trimmed, in one process.
template <class Source>
class TrimmedTask : public Task {
public:
    explicit TrimmedTask(const Parameters& parameters)
        : bytes_(parameters.bytes), source_(bytes_) {}

    Figures round() override {
        { auto idle = source_.acquire(bytes_); }
        source_.pool().trim();
        const double start = now_ns();
        auto loan = source_.acquire(bytes_);
        touch_pages(loan.data(), bytes_);
        return {{"ns", now_ns() - start}};
    }

private:
    std::size_t bytes_;
    Source source_;
};

/// Zeroed bytes, and every page written, where bytes just used are idle.
template <class Source>
class ReusedZeroedTask : public Task {
public:
    explicit ReusedZeroedTask(const Parameters& parameters)
        : bytes_(parameters.bytes), source_(bytes_), batch_(parameters.round_ns) {}

    Figures round() override {
        return {{"ns", batch_.run([&](std::size_t count) {
                     for (; count != 0; --count) {
                         auto loan = source_.acquire_zeroed(bytes_);
                         touch_pages(loan.data(), bytes_);
                     }
                 })}};
    }

private:
    std::size_t bytes_;
    Source source_;
    Batch batch_;
};

/// The reference: memset of one buffer that stays, and every page written.
class MemsetTask : public Task {
public:
    explicit MemsetTask(const Parameters& parameters)
        : bytes_(parameters.bytes), buffer_(bytes_), batch_(parameters.round_ns) {}

    Figures round() override {
        return {{"ns", batch_.run([&](std::size_t count) {
                     for (; count != 0; --count) {
                         std::memset(buffer_.data(), 0, bytes_);
                         touch_pages(buffer_.data(), bytes_);
                     }
                 })}};
    }

private:
    std::size_t bytes_;
    HugeMapping buffer_;
    Batch batch_;
};

}  // namespace bench
