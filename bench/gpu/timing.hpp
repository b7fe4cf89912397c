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

/// Says on which core the calling thread runs while this lives: what neighbours do on one slows every round there.
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
    /// On the next one.
    void next() { stay_on(next_++); }
    /// As thread `number` of `count`, each on one of its own; not on two halves of one where there are four times as many,
    /// whether those are numbered side by side or half of all apart.
    void share(std::size_t number, std::size_t count, std::size_t round) {
        const std::size_t apart = static_cast<std::size_t>(CPU_COUNT(&all_)) >= 4 * count ? 2 : 1;
        stay_on(apart * number + round);
    }

private:
    void stay_on(std::size_t index) {
        if (CPU_COUNT(&all_) == 0) return;  // more cores than the set has bits: stays where it is
        std::size_t before = index % static_cast<std::size_t>(CPU_COUNT(&all_)), core = 0;
        while (!CPU_ISSET(core, &all_) || before-- != 0) ++core;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one);
    }

    cpu_set_t all_{};
    std::size_t next_ = 0;
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
