#pragma once
// The pair through `array<double>(n, m)`: extents checked, shape and view made, buffer returned.

#include <cstddef>

#include "clock.hpp"
#include "sources/cistern.hpp"
#include "task.hpp"

namespace bench {

class ArrayTask : public Task {
public:
    explicit ArrayTask(const Parameters& parameters)
        : rows_(parameters.bytes / (columns * sizeof(double))),
          source_(parameters.bytes),
          batch_(parameters.round_ns) {}

    Figures round() override {
        return {{"ns", batch_.run([&](std::size_t count) { run(count); })}};
    }

private:
    static constexpr std::ptrdiff_t columns = 8;

    [[gnu::noinline]] void run(std::size_t count) {
        auto rows = static_cast<std::ptrdiff_t>(rows_);
        std::ptrdiff_t cols = columns;
        for (; count != 0; --count) {
            hide(rows);
            hide(cols);
            auto array = source_.pool().array<double>(rows, cols);
            keep(array.data());
        }
    }

    std::size_t rows_;
    Cistern source_;
    Batch batch_;
};

}  // namespace bench
