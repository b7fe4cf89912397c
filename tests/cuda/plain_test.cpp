// Memory that comes with addresses of its own: managed, and of devices or processes that cannot map.

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "gpu.hpp"
#include "support/scale.hpp"

namespace cistern::test {
namespace {

using PlainCalls = StandIn;

/// Managed memory, and a device that cannot map, which nobody used before one of these tests did.
class Plain : public StandIn {
protected:
    void SetUp() override {
        StandIn::SetUp();
        if (IsSkipped()) return;
        driver.control->set_attribute(cuda::attribute_virtual_memory, 0);
        memories = {Memory::device(ordinal), Memory::managed()};
        used_before_ = in_use(ordinal);
        managed_before_ = managed();
    }
    void TearDown() override {
        if (driver.is_stand_in()) {
            driver.control->set_attribute(cuda::attribute_virtual_memory, 1);
        }
        StandIn::TearDown();
    }
    [[nodiscard]] const Memory& plain() const { return memories.front(); }
    /// What the pools of both memories have.
    [[nodiscard]] std::size_t used() const {
        return in_use(ordinal) - used_before_ + managed() - managed_before_;
    }

    static constexpr int ordinal = 5;
    std::vector<Memory> memories;

private:
    [[nodiscard]] std::size_t managed() const { return driver.control->managed_bytes(); }

    std::size_t used_before_ = 0, managed_before_ = 0;
};

// Each on a device that nobody has used before.

TEST_F(PlainCalls, AllocationServesWhereADeviceCannotMap) {
    driver.control->set_attribute(cuda::attribute_virtual_memory, 0);
    const std::size_t before = in_use(4);
    {
        Pool pool{Memory::device(4)};
        const auto plain = calls("cuMemAlloc_v2");
        Buffer buffer = pool.acquire(5_MiB);
        EXPECT_EQ(buffer.memory().name(), "cuda:4");
        EXPECT_EQ(calls("cuMemAlloc_v2"), plain + 1);
        EXPECT_GE(in_use(4), before + 5_MiB);
        buffer.release();
        EXPECT_FALSE(pool.acquire(5_MiB).empty());
        EXPECT_EQ(calls("cuMemAlloc_v2"), plain + 1) << "kept";
        EXPECT_EQ(pool.trim(), 6_MiB) << "a multiple of 2 MiB";
        EXPECT_EQ(in_use(4), before);
    }
    driver.control->set_attribute(cuda::attribute_virtual_memory, 1);
}

TEST_F(PlainCalls, AllocationServesWhereTheProcessMayNotMap) {
    int count = 0;
    ASSERT_EQ(driver.device_count(&count), 0);
    if (count < 4) GTEST_SKIP() << "needs a fourth device";
    driver.control->fail("cuMemAddressReserve", 1, 1000, 801);
    Pool pool{Memory::device(3)};
    const auto plain = calls("cuMemAlloc_v2");
    EXPECT_FALSE(pool.acquire(5_MiB).empty());
    EXPECT_EQ(calls("cuMemAlloc_v2"), plain + 1);
}

TEST_F(Plain, AllocationsAreSplitAndJoinedAndGoBackBeforeThePoolGrowsFar) {
    for (const Memory& memory : memories) {
        SCOPED_TRACE(memory.name());
        Pool pool{memory};
        std::minstd_rand random(static_cast<unsigned>(seed_or(3)));
        std::vector<Buffer> live(10);
        std::size_t most_used = 0;
        for (int i = 0; i < 2000; ++i) {
            Buffer& one = live[random() % live.size()];
            one.release();
            one = pool.acquire(i % 2 == 0 ? 1_MiB + random() % 24_MiB : random() % 64_KiB);
            most_used = std::max(most_used, used());
        }

        const PoolStats stats = pool.stats();
        EXPECT_GT(stats.hits, stats.misses);
        EXPECT_LE(stats.held_bytes.peak, stats.lent_bytes.peak * 8 / 5);
        EXPECT_EQ(most_used, stats.held_bytes.peak);
        live.clear();
        EXPECT_EQ(pool.trim(), stats.held_bytes.now);
        EXPECT_EQ(used(), 0u);
        EXPECT_FALSE(pool.acquire(5_MiB).empty());
    }
}

TEST_F(Plain, AnAllocationIsNoLargerThanLimitsAndTheDeviceAllow) {
    std::size_t total = 0;
    ASSERT_EQ(driver.device_total(&total, ordinal), 0);
    {
        Pool pool{plain(), {.max_bytes = 5_MiB}};
        const Buffer buffer = pool.acquire(5_MiB);
        EXPECT_EQ(used(), 5_MiB);
        EXPECT_THROW((void)pool.acquire(1_MiB), OutOfMemory);
    }
    {
        Pool pool{plain(), {.max_idle_bytes = 0}};
        const Buffer buffer = pool.acquire(5_MiB);
        EXPECT_EQ(used(), 5_MiB) << "nothing is left over to be idle";
    }
    {
        Pool pool{plain()};
        driver.control->set_total_bytes(ordinal, in_use(ordinal) + 5_MiB);
        const Buffer buffer = pool.acquire(5_MiB);
        EXPECT_EQ(pool.stats().held_bytes.now, 5_MiB);
        EXPECT_TRUE(pool.try_acquire(1_MiB).empty());
        EXPECT_EQ(pool.stats().held_bytes.now, 5_MiB);
        driver.control->set_total_bytes(ordinal, total);
    }
    EXPECT_EQ(used(), 0u);
}

TEST_F(Plain, AnAllocationThatFailsLeavesNothingBehind) {
    Pool pool{plain()};
    driver.control->fail("cuMemAlloc_v2", 1, 1, 999);

    EXPECT_THROW((void)pool.acquire(5_MiB), DeviceError);

    EXPECT_EQ(pool.stats().held_bytes.now, 0u);
    EXPECT_EQ(used(), 0u);
    EXPECT_FALSE(pool.acquire(5_MiB).empty());
}

TEST_F(Plain, AnAllocationOfWhichAPartIsLentStaysWhole) {
    Pool pool{plain()};
    pool.acquire(64_MiB).release();
    const Buffer part = pool.acquire(3_MiB);

    EXPECT_EQ(pool.trim(), 61_MiB);

    EXPECT_EQ(pool.stats().held_bytes.now, 3_MiB);
    EXPECT_EQ(used(), 64_MiB);
    const Buffer again = pool.acquire(50_MiB);
    EXPECT_EQ(used(), 64_MiB) << "what is allocated already comes first";
}

TEST_F(Plain, ThreadsKeepTheirBytesWhileOthersGiveTheSameAddressesBack) {
    for (const Memory& memory : memories) {
        SCOPED_TRACE(memory.name());
        Pool pool{memory, {.max_idle_bytes = 0}};
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for (int number = 0; number < 4; ++number) {
            threads.emplace_back([&, number] {
                const OnThread here(*this);
                for (std::uint64_t i = 0; i < scaled(4000); ++i) {
                    const Buffer mine = pool.acquire(4_MiB);
                    for (const std::size_t at : {std::size_t{0}, mine.size() - 1}) {
                        const cuda::Address address = cuda::address_of(mine.data()) + at;
                        const auto value = static_cast<unsigned char>(number);
                        unsigned char found = 99;
                        if (driver.set_async(address, value, 1, nullptr) != 0 ||
                            driver.copy(cuda::address_of(&found), address, 1) != 0 ||
                            found != value) {
                            ++wrong;
                        }
                    }
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(wrong, 0);
        EXPECT_EQ(pool.stats().held_bytes.now, 0u);
        EXPECT_EQ(used(), 0u);
    }
}

TEST_F(Plain, WhatWasRefusedIsInNoPeak) {
    std::size_t total = 0;
    ASSERT_EQ(driver.device_total(&total, ordinal), 0);
    Pool pool{plain()};
    driver.control->set_total_bytes(ordinal, in_use(ordinal) + 5_MiB);

    const Buffer in_whole_steps_it_does_not_fit = pool.acquire(5_MiB);

    EXPECT_EQ(pool.stats().held_bytes.peak, 5_MiB);
    driver.control->set_total_bytes(ordinal, total);
    driver.control->fail("cuMemAlloc_v2", 1, 1, 999);
    EXPECT_THROW((void)pool.acquire(100_MiB), DeviceError);
    EXPECT_EQ(pool.stats().held_bytes.peak, 5_MiB);
}

TEST_F(Plain, AllocationsBeginWhereTheAlignmentWants) {
    for (const Memory& memory : memories) {
        Pool pool{memory, {.alignment = 64_KiB}};
        std::vector<Buffer> buffers;
        for (std::size_t i = 1; i <= 40; ++i) {
            buffers.push_back(pool.acquire(i * 30_KiB));
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % 64_KiB, 0u);
            if (memory.host_accessible()) {
                std::memset(buffers.back().data(), 1, buffers.back().size());
            }
        }
        buffers.clear();
        pool.trim();
        EXPECT_EQ(used(), 0u);
    }
}

using Managed = Gpu;

TEST_F(Managed, ABufferThatGrewIsTheHostsAtOnce) {
    for (int i = 0; i < 20; ++i) {
        Pool pool{Memory::managed()};
        Buffer buffer = pool.acquire(1_MiB);
        std::memset(buffer.data(), 5, buffer.size());
        const Buffer behind_it = pool.acquire(1_MiB);

        pool.grow(buffer, 4_MiB);

        const auto* const bytes = static_cast<const unsigned char*>(buffer.data());
        ASSERT_EQ(std::count(bytes, bytes + 1_MiB, 5), 1_MiB);
        std::memset(buffer.data(), 6, 1_MiB);
        ASSERT_EQ(driver.synchronize(), 0);
        ASSERT_EQ(std::count(bytes, bytes + 1_MiB, 6), 1_MiB) << "nothing is still on its way";
    }
}

}  // namespace
}  // namespace cistern::test
