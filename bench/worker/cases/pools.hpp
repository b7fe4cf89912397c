#pragma once
// What a hit costs in the pools that stand on the engine: a key's buffer, and two arrays for the
// length of a call.

#include <cistern/keyed.hpp>
#include <cistern/scope.hpp>
#include <cstddef>
#include <string_view>

#include "clock.hpp"
#include "task.hpp"

namespace bench {

class PoolsTask : public Task {
public:
    explicit PoolsTask(const Parameters& parameters) : batch_(parameters.round_ns) {
        (void)keyed_.get<double>("E_tilda_lm", 1000, 100);
        (void)keyed_.get<double>("coeff", 1000, 100);
    }

    Figures round() override {
        return {{"keyed", batch_.run([&](std::size_t count) { run_keyed(count); })},
                {"scope", batch_.run([&](std::size_t count) { run_scope(count); })}};
    }

private:
    [[gnu::noinline]] void run_keyed(std::size_t count) {
        std::size_t rows = 100, columns = 50;
        for (; count != 0; --count) {
            hide(rows);
            hide(columns);
            const std::string_view key = count % 2 == 0 ? "coeff" : "E_tilda_lm";
            keep(keyed_.get<double>(key, rows, columns).data());
        }
    }
    [[gnu::noinline]] void run_scope(std::size_t count) {
        std::size_t rows = 100, columns = 50;
        for (; count != 0; --count) {
            hide(rows);
            hide(columns);
            cistern::with_arrays(
                [](auto u, auto v) {
                    keep(u.data());
                    keep(v.data());
                },
                pool_, cistern::shape<float>(rows, columns), cistern::shape<double>(rows));
        }
    }

    cistern::KeyedPool keyed_;
    cistern::Pool pool_;
    Batch batch_;
};

}  // namespace bench
