// No limit is ever exceeded: a thread looks as often as it can while others do what they like.
// CISTERN_SAMPLES says how often.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "cistern/pool.hpp"
#include "support/literals.hpp"
#include "support/params.hpp"
#include "support/patterns.hpp"
#include "support/reconcile.hpp"
#include "support/scale.hpp"
#include "support/threads.hpp"

namespace cistern::test {

namespace {

struct LimitCase {
    const char* name;
    PoolOptions options;
    friend void PrintTo(const LimitCase& c, std::ostream* out) { *out << c.name; }
};

std::vector<LimitCase> limit_cases() {
    return {
        {"MaxBytes", {.max_bytes = 3_MiB}},
        {"MaxIdleBytes", {.max_idle_bytes = 1_MiB}},
        {"NoIdleBytes", {.max_idle_bytes = 0}},
        {"MaxIdleBuffers", {.max_idle_buffers = 5}},
        {"MaxBufferBytes", {.max_buffer_bytes = 64_KiB}},
        {"AllTogether",
         {.max_bytes = 4_MiB,
          .max_idle_bytes = 2_MiB,
          .max_idle_buffers = 40,
          .max_buffer_bytes = 512_KiB,
          .max_idle_age = std::chrono::milliseconds(2)}},
        {"NoLimits", {}},
    };
}

class LimitStress : public testing::TestWithParam<std::tuple<LimitCase, FitCase>> {
protected:
    Pool make_pool() {
        PoolOptions options = std::get<0>(GetParam()).options;
        options.fit = std::get<1>(GetParam()).fit;
        return Pool{Memory::simulated(), options};
    }
};

/// Acquires, keeps for a while, releases; often on another thread than the one that acquired.
void churn(Pool& pool, std::uint64_t seed, const std::atomic<bool>& stop) {
    std::vector<Buffer> lent(12);
    for (std::uint64_t k = seed << 32; !stop; ++k) {
        Buffer& slot = lent[scrambled(k) % lent.size()];
        slot.release();
        if (scrambled(k) % 5 == 0) continue;
        slot =
            pool.try_acquire(1 + scrambled(k + 7) % (std::size_t{64} << (scrambled(k + 3) % 11)));
    }
}

}  // namespace

TEST_P(LimitStress, HoldsInEverySnapshot) {
    const std::uint64_t samples = amount("CISTERN_SAMPLES", 200'000) / limit_cases().size() / 2 + 1;
    Pool pool = make_pool();
    const Limits limits = limits_of(pool.options());
    std::atomic<bool> stop{false};
    std::thread a([&] { churn(pool, 1, stop); }), b([&] { churn(pool, 2, stop); });
    while (pool.stats().acquires == 0) std::this_thread::yield();  // until they are at it

    std::string wrong;
    PoolStats last;
    for (std::uint64_t i = 0; i < samples && wrong.empty(); ++i) {
        const PoolStats now = pool.stats();
        wrong = contradictions_ever(now, limits);
        if (now.acquires < last.acquires || now.releases < last.releases ||
            now.evictions < last.evictions || now.hits < last.hits || now.misses < last.misses) {
            wrong += "a counter fell\n";
        }
        last = now;
    }
    stop = true;
    a.join();
    b.join();

    EXPECT_EQ(wrong, "") << last;
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits), "");
    EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
}

INSTANTIATE_TEST_SUITE_P(Of, LimitStress,
                         testing::Combine(testing::ValuesIn(limit_cases()),
                                          testing::Values(FitCase{"Elastic", Elastic{}},
                                                          FitCase{"BestFit",
                                                                  BestFit{.max_waste = 0.5}})),
                         [](const auto& c) { return name_of(c); });

TEST(LimitsOfTwoPools, StayWithinTheirMemory) {
    constexpr std::size_t capacity = 4_MiB;
    const Memory memory = Memory::simulated({.capacity = capacity});
    Pool first{memory, {.name = "first"}}, second{memory, {.name = "second"}};
    std::atomic<bool> stop{false};
    std::thread a([&] { churn(first, 1, stop); }), b([&] { churn(second, 2, stop); });

    std::string wrong;
    for (std::uint64_t i = 0; i < scaled(5'000) && wrong.empty(); ++i) {
        const PoolStats one = first.stats(), two = second.stats();
        wrong = contradictions(one) + contradictions(two);
        if (one.held_bytes.peak > capacity || two.held_bytes.peak > capacity) {
            wrong += "a pool holds more than its memory has\n";
        }
    }
    stop = true;
    a.join();
    b.join();

    EXPECT_EQ(wrong, "");
    first.trim();
    second.trim();
    EXPECT_NO_THROW((void)second.acquire(capacity));
}

}  // namespace cistern::test
