// Limits, trimming and running out, as the driver sees them.

#include <algorithm>
#include <random>

#include "gpu.hpp"
#include "support/reconcile.hpp"
#include "support/scale.hpp"
#include "support/text.hpp"

namespace cistern::test {
namespace {

constexpr std::size_t step = 2_MiB;  // what the driver maps at least

using DeviceLimits = StandIn;

TEST_F(DeviceLimits, MaxBytesIsExact) {
    const std::size_t before = in_use();
    Pool pool{Memory::device(), {.max_bytes = 9_MiB}};
    const Buffer one = pool.acquire(4_MiB), two = pool.acquire(4_MiB);

    EXPECT_THROW((void)pool.acquire(2_MiB), OutOfMemory);
    const Buffer last = pool.acquire(1_MiB);

    EXPECT_EQ(pool.stats().held_bytes.now, 9_MiB);
    EXPECT_LE(pool.stats().held_bytes.peak, 9_MiB);
    EXPECT_LE(in_use() - before, 10_MiB) << "the driver's steps";
}

TEST_F(DeviceLimits, LimitsAsReadCanBeSetAgain) {
    Pool pool{Memory::device(), {.max_bytes = 9_MiB}};
    EXPECT_LE(pool.options().max_idle_bytes, 9_MiB);
    pool.set_limits(limits_of(pool.options()));
    EXPECT_FALSE(pool.acquire(9_MiB).empty());
}

TEST_F(DeviceLimits, StatisticsAgreeWithTheDriver) {
    const std::size_t before = in_use();
    Pool pool{Memory::device()};
    std::vector<Buffer> buffers;
    for (std::size_t i = 1; i <= 20; ++i) {
        buffers.push_back(pool.acquire(i * 700_KiB));
        const std::size_t held = pool.stats().held_bytes.now, used = in_use() - before;
        EXPECT_LE(held, used);
        EXPECT_LE(used - held, step);
    }
}

/// Growing in large steps must not leave mapped bytes behind that nobody uses.
TEST_F(DeviceLimits, WhatIsMappedStaysNearWhatIsHeld) {
    const std::size_t before = in_use();
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pool.on(stream);
    std::minstd_rand random(static_cast<unsigned>(seed_or(3)));
    std::vector<Buffer> live(20);
    std::size_t most_mapped = 0, most_live = 0;
    for (int i = 0; i < 500; ++i) {
        live[random() % live.size()] = ordered.acquire(1_MiB + random() % 24_MiB);
        std::size_t bytes = 0;
        for (const Buffer& buffer : live) bytes += buffer.size();
        most_live = std::max(most_live, bytes);
        most_mapped = std::max(most_mapped, in_use());
        EXPECT_LE(in_use(), before + pool.stats().held_bytes.now + 32_MiB);
    }
    RecordProperty("mapped_of_live_percent",
                   static_cast<int>(100 * (most_mapped - before) / most_live));
    EXPECT_LE(most_mapped, before + most_live + most_live * 25 / 100);
}

TEST_F(DeviceLimits, TrimGivesBytesBackToTheDriver) {
    const std::size_t before = in_use();
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pool.on(stream);
    const Buffer stays = ordered.acquire(3_MiB);
    {
        const Buffer one = ordered.acquire(64_MiB), two = ordered.acquire(5_MiB);
        fill(stream, one, 1, late);
        fill(stream, two, 2, late);
    }
    fill(stream, stays, 3);

    EXPECT_GE(pool.trim(), 64_MiB);

    EXPECT_LE(in_use() - before, 3_MiB + 2 * step);
    EXPECT_EQ(pool.stats().idle_bytes.now, 0u);
    check(stream, stays, 3);
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(DeviceLimits, WhatAGrowthLeavesOverKeepsTheLimitsToo) {
    for (const PoolOptions& options :
         {PoolOptions{.max_idle_bytes = 0}, PoolOptions{.max_idle_bytes = 100_KiB},
          PoolOptions{.max_idle_buffers = 0}}) {
        for (const Memory& memory : {Memory::device(), Memory::pinned()}) {
            Pool pool{memory, options};
            const Buffer one = pool.acquire(64_KiB), two = pool.acquire(3_MiB);
            EXPECT_EQ(contradictions_ever(pool.stats(), limits_of(pool.options())), "");
        }
    }
}

TEST_F(DeviceLimits, MaxIdleBytesHoldsOnEveryStream) {
    Pool pool{Memory::device(), {.max_idle_bytes = 6_MiB}};
    const cuda::Stream first = make_stream(), second = make_stream();
    StreamPool on_first = pool.on(first), on_second = pool.on(second);
    for (int i = 0; i < 10; ++i) {
        {
            const Buffer one = on_first.acquire(4_MiB), two = on_second.acquire(4_MiB);
            fill(first, one, 1, late);
            fill(second, two, 2, late);
            check(first, one, 1);
            check(second, two, 2);
        }
        EXPECT_LE(pool.stats().idle_bytes.now, 6_MiB);
    }
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_LE(pool.stats().idle_bytes.peak, 6_MiB);
}

TEST_F(DeviceLimits, ThePoolsEndGivesEverythingBack) {
    const std::size_t before = in_use();
    {
        Pool pool{Memory::device()};
        const cuda::Stream stream = make_stream();
        StreamPool ordered = pool.on(stream);
        const Buffer buffer = ordered.acquire(40_MiB);
        fill(stream, buffer, 1, late);
    }
    EXPECT_EQ(in_use(), before);
    EXPECT_EQ(mismatches(), 0u) << "and the driver is well";
}

TEST_F(DeviceLimits, IdleBytesOfOtherPoolsServeBeforeMemoryRunsOut) {
    std::size_t total = 0;
    ASSERT_EQ(driver.device_total(&total, 0), 0);
    Pool first{Memory::device(), {.name = "first"}}, second{Memory::device(), {.name = "second"}};
    const cuda::Stream stream = make_stream();
    {
        const Buffer idle = first.on(stream).acquire(total / 10 * 6);
        fill(stream, idle, 1, late);
    }
    const Buffer large = second.acquire(total / 10 * 7);
    EXPECT_EQ(large.size(), total / 10 * 7);
    EXPECT_EQ(first.stats().idle_bytes.now, 0u);
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(DeviceLimits, TheErrorSaysWhoHoldsWhat) {
    Pool first{Memory::device(), {.name = "first"}}, second{Memory::device(), {.name = "second"}};
    const Buffer lent = first.acquire(600_MiB);
    const std::string text = text_of<OutOfMemory>([&] { (void)second.acquire(700_MiB); });
    EXPECT_TRUE(mentions(text, "cuda:0")) << text;
    EXPECT_TRUE(mentions_bytes(text, 700_MiB)) << text;
    EXPECT_TRUE(mentions(text, "'first'")) << text;
    EXPECT_TRUE(mentions(text, "'second'")) << text;
    EXPECT_TRUE(mentions_bytes(text, 600_MiB)) << text;
    EXPECT_TRUE(second.try_acquire(700_MiB).empty());
}

TEST_F(DeviceLimits, ACallbackMayMakeRoom) {
    Pool first{Memory::device()}, second{Memory::device()};
    Buffer lent = first.acquire(600_MiB);
    int called = 0;
    second.on_out_of_memory([&](std::size_t) {
        ++called;
        lent.release();
    });
    EXPECT_FALSE(second.acquire(700_MiB).empty());
    EXPECT_EQ(called, 1);
}

TEST_F(DeviceLimits, AFewBytesShortIsEnough) {
    std::size_t total = 0;
    ASSERT_EQ(driver.device_total(&total, 0), 0);
    const std::size_t others = in_use();
    Pool pool{Memory::device()};
    const Buffer all = pool.acquire(total - others);
    EXPECT_EQ(in_use(), total) << "to the last byte";
}

TEST_F(DeviceLimits, MoreThanTheDeviceHasCostsNobodyIdleBytes) {
    std::size_t total = 0;
    ASSERT_EQ(driver.device_total(&total, 0), 0);
    Pool pool{Memory::device()}, other{Memory::device()};
    pool.acquire(100_MiB).release();
    other.acquire(200_MiB).release();

    EXPECT_TRUE(pool.try_acquire(total + 1).empty());
    EXPECT_THROW((void)pool.array<double>(std::size_t{1} << 50), OutOfMemory);

    EXPECT_EQ(pool.stats().idle_bytes.now, 100_MiB);
    EXPECT_EQ(other.stats().idle_bytes.now, 200_MiB);
}

TEST_F(DeviceLimits, WhatTheDeviceRefusesIsInNoPeak) {
    std::size_t total = 0;
    ASSERT_EQ(driver.device_total(&total, 0), 0);
    Pool other{Memory::device()}, pool{Memory::device()};
    const Buffer most = other.acquire(total / 4 * 3), some = pool.acquire(6_MiB);

    EXPECT_TRUE(pool.try_acquire(total / 2).empty());

    EXPECT_EQ(pool.stats().held_bytes.peak, 6_MiB);
}

TEST_F(DeviceLimits, MaxBytesCanBeSetAlone) {
    Pool pool{Memory::device()};
    Limits limits = limits_of(pool.options());
    limits.max_bytes = 20_MiB;  // less than what a device's pool may keep by itself

    pool.set_limits(limits);

    EXPECT_EQ(pool.options().max_idle_bytes, 20_MiB);
    EXPECT_THROW((void)pool.acquire(21_MiB), OutOfMemory);
}

}  // namespace
}  // namespace cistern::test
