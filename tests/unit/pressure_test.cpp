// A memory that would rather have idle bytes given up than lend more: what the host is to all pools of a process.

#include <gtest/gtest.h>
#include <sys/sysinfo.h>

#include <atomic>
#include <cstddef>
#include <memory>

#include "cistern/cistern.hpp"
#include "memory/limits.hpp"
#include "memory/sparse.hpp"
#include "support/literals.hpp"
#include "support/reconcile.hpp"
#include "support/sanitizers.hpp"

namespace cistern::test {

namespace {

/// Addresses without bytes, as Memory::simulated(), of which a few are lent readily and the rest if need be.
class Modest final : public SparseSource {
public:
    explicit Modest(std::size_t usual) : usual_(usual) {}

    [[nodiscard]] std::size_t used() const { return used_; }

    [[nodiscard]] std::string name() const override { return "modest"; }
    [[nodiscard]] bool host_accessible() const noexcept override { return false; }
    void zero(void*, std::size_t) noexcept override {}
    void copy(void*, const void*, std::size_t) override {}
    void* allocate(std::size_t, std::size_t) override { return nullptr; }
    void deallocate(void*, std::size_t, std::size_t) noexcept override {}
    [[nodiscard]] std::size_t range_bytes(std::size_t bytes) const noexcept override {
        return source().range_bytes(bytes);
    }
    void* reserve(std::size_t bytes) override { return source().reserve(bytes); }
    void unreserve(void* range, std::size_t bytes) noexcept override {
        source().unreserve(range, bytes);
    }
    [[nodiscard]] std::size_t page() const noexcept override { return source().page(); }
    [[nodiscard]] std::size_t move_step() const noexcept override { return source().move_step(); }
    [[nodiscard]] std::size_t least_move() const noexcept override { return source().least_move(); }
    [[nodiscard]] std::ptrdiff_t bytes_left() const noexcept override {
        return static_cast<std::ptrdiff_t>(usual_ - used_);
    }
    bool commit(void*, std::size_t bytes) noexcept override {
        used_ += bytes;
        return true;
    }
    void decommit(void*, std::size_t bytes, void*, std::size_t) noexcept override {
        used_ -= bytes;
    }
    bool move(void* from, void* to, std::size_t bytes) noexcept override {
        return source().move(from, to, bytes);
    }

private:
    [[nodiscard]] SparseSource& source() const {
        return static_cast<SparseSource&>(*simulated_.source());
    }
    Memory simulated_ = Memory::simulated();
    std::size_t usual_;
    std::atomic<std::size_t> used_{0};
};

class Pressure : public testing::Test {
protected:
    std::shared_ptr<Modest> source = std::make_shared<Modest>(8_MiB);
    Memory memory{source};

    static void expect_right(const Pool& pool) {
        EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
    }
};

}  // namespace

TEST_F(Pressure, APoolGivesUpItsOwnIdleBytesFirst) {
    Pool pool{memory, {.fit = ExactFit{}}};
    { const Buffer one = pool.acquire(3_MiB), two = pool.acquire(3_MiB); }
    const Buffer other = pool.acquire(5_MiB);
    EXPECT_EQ(source->used(), 8_MiB);
    EXPECT_EQ(pool.stats().held_bytes.now, 8_MiB);
    EXPECT_EQ(pool.stats().failures, 0u);
    expect_right(pool);
}

TEST_F(Pressure, ThenThoseOfOtherPoolsAndNoMoreThanItTakes) {
    Pool idle{memory}, pool{memory};
    { const Buffer buffer = idle.acquire(6_MiB); }
    const Buffer buffer = pool.acquire(5_MiB);
    EXPECT_EQ(source->used(), 8_MiB);
    EXPECT_EQ(idle.stats().idle_bytes.now, 3_MiB);
    expect_right(idle);
    expect_right(pool);
}

TEST_F(Pressure, WhatIsLentMayBeMore) {
    Pool one{memory}, two{memory};
    int called = 0;
    two.on_out_of_memory([&](std::size_t) { ++called; });
    const Buffer most = one.acquire(8_MiB), more = two.acquire(4_MiB);
    EXPECT_FALSE(most.empty() || more.empty());
    EXPECT_EQ(source->used(), 12_MiB);
    EXPECT_EQ(called, 0) << "there is memory";
    EXPECT_EQ(two.stats().failures, 0u);
}

TEST_F(Pressure, IsNotPutOnOthersInVainAllTheTime) {
    Pool one{memory}, two{memory};
    Buffer most = one.acquire(8_MiB);
    const Buffer more = two.acquire(4_MiB);  // in vain
    most.release();
    const Buffer little = two.acquire(64_KiB);
    EXPECT_EQ(one.stats().idle_bytes.now, 8_MiB) << "too little to ask again";
    const Buffer much = two.acquire(2_MiB), last = two.acquire(1_MiB);
    EXPECT_LT(one.stats().idle_bytes.now, 8_MiB);
}

TEST_F(Pressure, IsPutOnOthersForALargeRequestAtOnce) {
    Pool one{memory}, two{memory};
    Buffer most = one.acquire(8_MiB);
    const Buffer little = two.acquire(64_KiB);  // in vain
    most.release();
    const Buffer much = two.acquire(4_MiB);
    EXPECT_EQ(source->used(), 8_MiB);
}

TEST_F(Pressure, IsPutOnOthersAgainAfterAPoolHasShrunk) {
    Pool one{memory}, two{memory};
    { const Buffer in_vain = one.acquire(10_MiB); }
    one.trim();
    { const Buffer idle = two.acquire(7_MiB); }
    const Buffer buffer = one.acquire(6_MiB);
    EXPECT_EQ(source->used(), 8_MiB);
}

/// Where even all idle bytes would not do, they stay.
TEST_F(Pressure, TakesNothingWarmInVain) {
    Pool one{memory}, busy{memory}, pool{memory, {.fit = ExactFit{}}};
    const Buffer most = one.acquire(9_MiB);
    { const Buffer warm = busy.acquire(1_MiB); }
    for (std::size_t i = 0; i < 100; ++i) pool.acquire(100_KiB * (1 + i % 5)).release();
    EXPECT_EQ(pool.stats().misses, 5u);
    EXPECT_EQ(busy.stats().idle_bytes.now, 1_MiB);
}

/// A thread that borrows a few sizes in turn gets bytes for each (tests/unit/rotation_test.cpp), after it too.
TEST_F(Pressure, LeavesNoTrace) {
    Pool one{memory}, pool{memory};
    { const Buffer most = one.acquire(8_MiB), in_vain = pool.acquire(64_KiB); }
    one.trim();
    for (std::size_t i = 0; i < 70'000; ++i) pool.acquire(4_KiB << (i % 7)).release();
    EXPECT_GE(pool.stats().held_bytes.now, 500_KiB);
}

TEST_F(Pressure, BuffersGrowUnderItToo) {
    Pool idle{memory}, pool{memory};
    { const Buffer buffer = idle.acquire(4_MiB); }
    Buffer buffer = pool.acquire(2_MiB);
    pool.grow(buffer, 6_MiB);
    EXPECT_EQ(buffer.size(), 6_MiB);
    EXPECT_EQ(source->used(), 8_MiB);
    expect_right(pool);
}

TEST_F(Pressure, TheLimitOfAPoolIsStillItsOwn) {
    Pool idle{memory}, pool{memory, {.max_bytes = 2_MiB}};
    { const Buffer buffer = idle.acquire(8_MiB); }
    EXPECT_THROW((void)pool.acquire(3_MiB), OutOfMemory);
    EXPECT_EQ(idle.stats().idle_bytes.now, 8_MiB) << "which would not have helped";
    EXPECT_FALSE(pool.acquire(2_MiB).empty());
    EXPECT_EQ(source->used(), 8_MiB);
}

TEST(HostBytes, AreThoseOfAllPools) {
    const std::size_t before = host_bytes_held;
    const std::ptrdiff_t left = host_bytes_left();
    {
        Pool one, two{Memory::host({.huge_pages = false}), {.fit = ExactFit{}}};
        Buffer buffer = one.acquire(10_MiB);
        const Buffer other = two.acquire(1_MiB);
        EXPECT_GE(host_bytes_held, before + 11_MiB);
        EXPECT_LE(host_bytes_held, before + 12_MiB);
        EXPECT_LE(host_bytes_left(), left - std::ptrdiff_t{11_MiB});
        buffer.release();
        one.trim();
        EXPECT_LE(host_bytes_held, before + 2_MiB);
    }
    EXPECT_EQ(host_bytes_held, before);
    EXPECT_LT(host_bytes_left(), static_cast<std::ptrdiff_t>(process_memory_limit()));
}

/// Pages come with the first touch, so a vector may have room for more than the machine has.
TEST(HostBytes, OfABufferThatGrowsMayGoBeyondAllMemoryIfNoStepDoes) {
    if (under_asan || under_tsan) GTEST_SKIP() << "a sanitizer has pages of its own for these";
    struct sysinfo info {};
    ASSERT_EQ(sysinfo(&info), 0);
    const std::size_t machine = (info.totalram + info.totalswap) * info.mem_unit;
    Pool pool;
    Buffer buffer = pool.acquire(machine / 10 * 6);

    pool.grow(buffer, machine / 10 * 9);
    pool.grow(buffer, machine / 10 * 12);

    EXPECT_EQ(buffer.size(), machine / 10 * 12);
    EXPECT_TRUE(pool.try_acquire(machine / 10 * 25).empty());
}

}  // namespace cistern::test
