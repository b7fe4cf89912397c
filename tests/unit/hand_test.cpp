// The block in a thread's hand: lent and taken back by a store each way, and counted all the same.

#include "support/hand.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

#include "cistern/cistern.hpp"
#include "memory/barrier.hpp"
#include "support/child.hpp"
#include "support/literals.hpp"
#include "support/reconcile.hpp"
#include "support/twin.hpp"

namespace cistern::test {

namespace {

constexpr std::size_t bytes = 1000, block = 1_KiB;

class Hand : public testing::Test {
protected:
    void SetUp() override {
        if (!barrier_available()) GTEST_SKIP() << "this system has no fast path";
        pool.acquire(bytes).release();
        ASSERT_NE(with_hand_for(bytes), nullptr) << "the first release fills the hand";
    }
    void TearDown() override {
        EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
    }

    Pool pool{Memory::simulated()};
};

}  // namespace

TEST_F(Hand, CountsEveryPair) {
    for (std::uint64_t i = 1; i <= 1000; ++i) {
        const Buffer buffer = pool.acquire(bytes);
        ASSERT_EQ(buffer.size(), bytes);
        const PoolStats lent = pool.stats();
        ASSERT_EQ(lent.hits, i);
        ASSERT_EQ(lent.releases, i);
        ASSERT_EQ(lent.lent_bytes.now, block);
        ASSERT_EQ(lent.idle_bytes.now, 0u);
        ASSERT_EQ(lent.waste_bytes.now, block - bytes);
    }
    EXPECT_NE(with_hand_for(bytes), nullptr);
    const PoolStats idle = pool.stats();
    EXPECT_EQ(idle.hits, 1000u);
    EXPECT_EQ(idle.misses, 1u);
    EXPECT_EQ(idle.releases, 1001u);
    EXPECT_EQ(idle.lent_buffers, (Gauge{0, 1}));
    EXPECT_EQ(idle.idle_buffers, (Gauge{1, 1}));
    EXPECT_EQ(idle.lent_bytes, (Gauge{0, block}));
    EXPECT_EQ(idle.idle_bytes, (Gauge{block, block}));
    EXPECT_EQ(idle.waste_bytes.now, 0u);
}

TEST_F(Hand, ServesItsOwnSizeOnly) {
    void* const data = pool.acquire(bytes).data();
    const Buffer other = pool.acquire(bytes - 1);  // the slow path makes it an ordinary block
    EXPECT_EQ(other.data(), data);
    EXPECT_EQ(other.size(), bytes - 1);
    EXPECT_EQ(pool.stats().waste_bytes.now, block - (bytes - 1));
    EXPECT_EQ(pool.stats().misses, 1u);
}

TEST_F(Hand, LendsItsBlockOnce) {
    const Buffer first = pool.acquire(bytes), second = pool.acquire(bytes);
    EXPECT_NE(first.data(), second.data());
    EXPECT_EQ(pool.stats().lent_buffers.now, 2u);
}

TEST_F(Hand, NothingIsNothing) {
    const Buffer lent = pool.acquire(bytes);
    EXPECT_TRUE(pool.acquire(0).empty());
    EXPECT_EQ(pool.stats().acquires, 2u);
    EXPECT_THROW((void)pool.acquire(no_limit), OutOfMemory);
}

TEST_F(Hand, PeaksCountWhatWasLentAtOnce) {
    pool.acquire(8_KiB).release();
    pool.acquire(bytes).release();
    pool.acquire(8_KiB).release();
    EXPECT_EQ(pool.stats().lent_bytes.peak, 8_KiB);
    EXPECT_EQ(pool.stats().lent_buffers.peak, 1u);
    { const Buffer one = pool.acquire(8_KiB), two = pool.acquire(bytes); }
    EXPECT_EQ(pool.stats().lent_bytes.peak, 8_KiB + block);
    EXPECT_EQ(pool.stats().lent_buffers.peak, 2u);
}

TEST_F(Hand, PeaksAreSeenBesideAFullHand) {
    // All of this on the fast path: what is lent beside the hand's block, then with it.
    { const Buffer one = pool.acquire(8_KiB), two = pool.acquire(16_KiB); }
    { const Buffer one = pool.acquire(8_KiB), two = pool.acquire(16_KiB); }
    const std::uint64_t before = pool.stats().lent_bytes.peak;
    EXPECT_EQ(before, 24_KiB);
    {
        const Buffer one = pool.acquire(8_KiB), two = pool.acquire(16_KiB);
        const Buffer three = pool.acquire(bytes);
    }
    EXPECT_EQ(pool.stats().lent_bytes.peak, 24_KiB + block);
}

TEST_F(Hand, TrimTakesItsBlock) {
    EXPECT_EQ(pool.trim(), block);
    EXPECT_EQ(pool.stats().held_bytes.now, 0u);
}

TEST_F(Hand, TrimLeavesWhatIsLent) {
    Buffer lent = pool.acquire(bytes);
    EXPECT_EQ(pool.trim(), 0u);
    lent.release();
    EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
    EXPECT_EQ(pool.stats().idle_bytes.now, block);
}

TEST_F(Hand, KeepsTheLimitOnIdleBytes) {
    pool.set_limits({.max_idle_bytes = 2 * block});
    { const Buffer a = pool.acquire(bytes), b = pool.acquire(bytes), c = pool.acquire(bytes); }
    for (int i = 0; i < 100; ++i) {
        const Buffer a = pool.acquire(bytes);
        { const Buffer b = pool.acquire(bytes), c = pool.acquire(bytes); }
        EXPECT_LE(pool.stats().idle_bytes.now, 2 * block);
    }
    EXPECT_LE(pool.stats().idle_bytes.peak, 2 * block);
}

TEST_F(Hand, IsExplained) {
    EXPECT_EQ(pool.explain().idle_bytes, block);
    const Buffer lent = pool.acquire(bytes);
    EXPECT_EQ(pool.explain().idle_bytes, 0u);
}

TEST_F(Hand, AnotherThreadMayReleaseWhatItLent) {
    for (int i = 0; i < 100; ++i) {
        Buffer lent = pool.acquire(bytes);
        void* const data = lent.data();
        std::thread([&] {
            lent.release();
            const Buffer theirs = pool.acquire(bytes), more = pool.acquire(bytes);
            EXPECT_TRUE(theirs.data() == data || more.data() == data);
            EXPECT_NE(theirs.data(), more.data());
        }).join();
        EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
        pool.acquire(bytes).release();
    }
}

TEST_F(Hand, WhatAnotherThreadReleasedIsNotLentHereToo) {
    pool.acquire(bytes).release();
    Buffer lent = pool.acquire(bytes);
    ASSERT_NE(with_hand_for(bytes), nullptr);
    std::optional<Buffer> theirs;
    void* const data = lent.data();
    std::thread([&] {
        lent.release();
        theirs = pool.acquire(bytes);
        EXPECT_EQ(theirs->data(), data);
        const Buffer ours_meanwhile = pool.acquire(bytes);
        EXPECT_NE(ours_meanwhile.data(), data);
    }).join();
    const Buffer ours = pool.acquire(bytes);
    EXPECT_NE(ours.data(), data);
    theirs.reset();
}

TEST_F(Hand, RefusesAStaleBuffer) {
    Buffer lent = pool.acquire(bytes);
    Twin twin(lent);
    lent.release();
    const PoolStats before = pool.stats();
    EXPECT_THROW(pool.release(std::move(twin.get())), InvalidArgument);
    twin.destroy();
    EXPECT_EQ(pool.stats(), before);

    const Buffer next = pool.acquire(bytes);
    EXPECT_THROW(pool.release(std::move(twin.get())), InvalidArgument);
    twin.destroy();
    EXPECT_EQ(pool.stats().lent_buffers.now, 1u);
}

TEST_F(Hand, ReleaseChecksWhoseItIs) {
    Pool other{Memory::simulated()};
    Buffer lent = pool.acquire(bytes);
    EXPECT_THROW(other.release(std::move(lent)), InvalidArgument);
    EXPECT_FALSE(lent.empty());
    pool.release(std::move(lent));
    EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
}

TEST_F(Hand, WhatItLentCanGrow) {
    Buffer lent = pool.acquire(bytes);
    pool.grow(lent, 64_KiB);
    EXPECT_EQ(lent.size(), 64_KiB);
    EXPECT_EQ(pool.stats().waste_bytes.now, lent.capacity() - 64_KiB);
    lent.release();
    EXPECT_EQ(pool.stats().lent_bytes.now, 0u);
}

TEST_F(Hand, ABufferMayOutliveItsPool) {
    Buffer lent = pool.acquire(bytes);
    pool = Pool{Memory::simulated()};
    lent.release();
}

TEST_F(Hand, SurvivesAFork) {
    const Buffer lent = pool.acquire(bytes);
    Pool idle{Memory::simulated()};
    idle.acquire(bytes).release();
    const Ending ending = in_child([&] {
        Buffer theirs = pool.acquire(bytes);
        const bool apart = theirs.data() != lent.data();
        theirs.release();
        const bool counts = pool.stats().lent_buffers.now == 1;
        const bool serves = !idle.acquire(bytes).empty() && idle.stats().misses == 1;
        return apart && counts && serves ? 0 : 1;
    });
    EXPECT_TRUE(ending.exited);
    EXPECT_EQ(ending.code, 0);
    EXPECT_EQ(idle.stats().idle_bytes.now, block);
}

}  // namespace cistern::test
