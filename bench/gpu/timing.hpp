#pragma once
// Times loops in turn, and keeps the best of many rounds.

#include <sched.h>

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

inline double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

/// A loop to time: run(steps) does so many steps.
struct Loop {
    std::size_t steps;
    std::function<void(std::size_t)> run;
};

/// Moves the calling thread from core to core: what neighbours do on one slows every round there.
class Cores {
public:
    Cores() {
        if (sched_getaffinity(0, sizeof all_, &all_) != 0) CPU_ZERO(&all_);
    }
    Cores(const Cores&) = delete;
    Cores& operator=(const Cores&) = delete;
    ~Cores() {
        if (CPU_COUNT(&all_) != 0) sched_setaffinity(0, sizeof all_, &all_);
    }
    void next() {
        if (CPU_COUNT(&all_) == 0) return;  // more cores than the set has bits: stays where it is
        do core_ = (core_ + 1) % CPU_SETSIZE;
        while (!CPU_ISSET(core_, &all_));
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core_, &one);
        sched_setaffinity(0, sizeof one, &one);
    }

private:
    cpu_set_t all_{};
    std::size_t core_ = CPU_SETSIZE - 1;
};

/// Runs all loops in turn, `rounds` times, each time on another core. Returns the best nanoseconds per
/// step of each.
inline std::vector<double> best_of(const std::vector<Loop>& loops, int rounds) {
    std::vector<double> best(loops.size(), std::numeric_limits<double>::infinity());
    for (const Loop& loop : loops) loop.run(loop.steps / 8 + 1);
    Cores cores;
    for (int round = 0; round < rounds; ++round) {
        cores.next();
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
