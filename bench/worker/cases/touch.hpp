#pragma once
// Acquire, write every page, release: what a program does that fills an array and lets it go.

#include "clock.hpp"
#include "sources/mapping.hpp"
#include "task.hpp"

namespace bench {

template <class Source>
class TouchTask : public Task {
public:
    explicit TouchTask(const Parameters& parameters)
        : bytes_(parameters.bytes), source_(bytes_), batch_(parameters.round_ns) {}

    Figures round() override {
        return {{"ns", batch_.run([&](std::size_t count) { run(count); })}};
    }

private:
    [[gnu::noinline]] void run(std::size_t count) {
        for (; count != 0; --count) {
            auto loan = source_.acquire(bytes_);
            touch_pages(loan.data(), bytes_);
        }
    }

    std::size_t bytes_;
    Source source_;
    Batch batch_;
};

/// The reference: writes every page of one buffer that stays.
class WarmTouchTask : public Task {
public:
    explicit WarmTouchTask(const Parameters& parameters)
        : bytes_(parameters.bytes), buffer_(bytes_), batch_(parameters.round_ns) {}

    Figures round() override {
        return {{"ns", batch_.run([&](std::size_t count) {
                     for (; count != 0; --count) touch_pages(buffer_.data(), bytes_);
                 })}};
    }

private:
    std::size_t bytes_;
    HugeMapping buffer_;
    Batch batch_;
};

}  // namespace bench
