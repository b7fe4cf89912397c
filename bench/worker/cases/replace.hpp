#pragma once
// Many live buffers of many sizes, one replaced at random in every step: the release comes first,
// then the acquire. Every contestant sees the same sequence.

#include <cmath>
#include <cstddef>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "clock.hpp"
#include "sources/mapping.hpp"
#include "task.hpp"

namespace bench {

/// 20 buffers, 1 to 25 MiB, any multiple of 8 bytes.
struct LargeBuffers {
    static constexpr std::size_t live = 20, least = std::size_t{1} << 20, most = 25 * least;
    static constexpr std::size_t steps = 200, warm_up_rounds = 5;
    static constexpr bool touched = true;
    std::uniform_int_distribution<std::size_t> words{least / 8, most / 8};
    template <class Random>
    std::size_t operator()(Random& random) {
        return words(random) * 8;
    }
};

/// 1000 buffers, 64 B to 1 MiB, small ones more often.
struct MixedBuffers {
    static constexpr std::size_t live = 1000, least = 64, most = std::size_t{1} << 20;
    static constexpr std::size_t steps = 20'000, warm_up_rounds = 1;
    static constexpr bool touched = false;
    std::uniform_real_distribution<double> exponent{6, 20};
    template <class Random>
    std::size_t operator()(Random& random) {
        return static_cast<std::size_t>(std::exp2(exponent(random)));
    }
};

/// Slots and sizes drawn ahead, so that drawing is not timed.
template <class Mix>
class Replacements {
public:
    struct Step {
        std::size_t slot, bytes;
    };
    const std::vector<Step>& draw(std::size_t steps) {
        drawn_.resize(steps);
        for (Step& step : drawn_) step = {slot_(random_), mix_(random_)};
        return drawn_;
    }

private:
    std::mt19937_64 random_{7};
    std::uniform_int_distribution<std::size_t> slot_{0, Mix::live - 1};
    Mix mix_;
    std::vector<Step> drawn_;
};

template <class Source, class Mix>
class ReplaceTask : public Task {
public:
    using Loan = decltype(std::declval<Source&>().acquire(0));

    explicit ReplaceTask(const Parameters& /*parameters*/) : source_(0), live_(Mix::live) {
        // Slow contestants leave out some of the warm-up, but not of the sequence.
        const double latest = now_ns() + warm_up_ns;
        for (std::size_t n = 0; n < Mix::warm_up_rounds; ++n) {
            const auto& steps = replacements_.draw(Mix::steps);
            if (now_ns() < latest) run(steps);
        }
    }

    Figures round() override {
        const auto& steps = replacements_.draw(Mix::steps);
        return {{"ns", time_ns([&] { run(steps); }) / static_cast<double>(steps.size())}};
    }

private:
    static constexpr double warm_up_ns = 5e8;

    template <class Steps>
    [[gnu::noinline]] void run(const Steps& steps) {
        for (const auto& [slot, bytes] : steps) {
            live_[slot].reset();
            live_[slot].emplace(source_.acquire(bytes));
            if constexpr (Mix::touched) touch_pages(live_[slot]->data(), bytes);
        }
    }

    Source source_;
    Replacements<Mix> replacements_;
    std::vector<std::optional<Loan>> live_;
};

/// The reference: the same slots and sizes, written in buffers that stay: 20 of 25 MiB on huge
/// pages.
class TouchAloneTask : public Task {
public:
    explicit TouchAloneTask(const Parameters& /*parameters*/) {
        for (std::size_t i = 0; i < LargeBuffers::live; ++i) {
            buffers_.emplace_back(LargeBuffers::most);
            touch_pages(buffers_.back().data(), LargeBuffers::most);
        }
        for (std::size_t n = 0; n < LargeBuffers::warm_up_rounds; ++n) {
            replacements_.draw(LargeBuffers::steps);
        }
    }

    Figures round() override {
        const auto& steps = replacements_.draw(LargeBuffers::steps);
        const double ns = time_ns([&] {
            for (const auto& [slot, bytes] : steps) touch_pages(buffers_[slot].data(), bytes);
        });
        return {{"ns", ns / static_cast<double>(steps.size())}};
    }

private:
    std::vector<HugeMapping> buffers_;
    Replacements<LargeBuffers> replacements_;
};

}  // namespace bench
