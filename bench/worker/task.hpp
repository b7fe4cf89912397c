#pragma once
// A task is one case as one contestant runs it: prepared once, then run for many short rounds. The
// driver interleaves the rounds of all contestants, so that what disturbs one disturbs all.

#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

using Figures = std::map<std::string, double>;  // what a round measured, by name; in ns

struct Parameters {
    std::string task;
    std::size_t bytes = 0;
    double round_ns = 2e6;
};

class Task {
public:
    Task() = default;
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    virtual ~Task() = default;
    virtual Figures round() = 0;
};

/// Thrown by a task that this contestant or this machine cannot run.
class Skipped : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Makes the task a contestant's source runs. Throws Skipped if it has none of that name.
using MakeTask = std::unique_ptr<Task> (*)(const Parameters&);

/// Returns the maker for a source, or null if this build does not have it.
MakeTask find_source(const std::string& name);

/// Sizes spread evenly over the logarithm, the same sequence for every contestant.
inline std::vector<std::size_t> mixed_sizes(std::size_t count, std::size_t least,
                                            std::size_t most) {
    std::mt19937_64 random{20240229};
    std::uniform_real_distribution<double> exponent{std::log2(static_cast<double>(least)),
                                                    std::log2(static_cast<double>(most))};
    std::vector<std::size_t> sizes(count);
    for (std::size_t& bytes : sizes) bytes = static_cast<std::size_t>(std::exp2(exponent(random)));
    return sizes;
}

}  // namespace bench
