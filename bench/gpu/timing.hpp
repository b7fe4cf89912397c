#pragma once
// Times loops in turn, and keeps the best of many rounds.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

namespace bench {

inline double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// A loop to time: run(steps) does so many steps.
struct Loop {
    std::size_t steps;
    std::function<void(std::size_t)> run;
};

/// Runs all loops in turn, `rounds` times. Returns the best nanoseconds per step of each.
inline std::vector<double> best_of(const std::vector<Loop>& loops, int rounds) {
    std::vector<double> best(loops.size(), std::numeric_limits<double>::infinity());
    for (const Loop& loop : loops) loop.run(loop.steps / 8 + 1);
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < loops.size(); ++i) {
            const double begin = seconds();
            loops[i].run(loops[i].steps);
            best[i] =
                std::min(best[i], (seconds() - begin) * 1e9 / static_cast<double>(loops[i].steps));
        }
    }
    return best;
}

}  // namespace bench
