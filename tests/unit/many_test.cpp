// More pools than a thread has slots, more threads than a visit counts.

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "cistern/cistern.hpp"
#include "memory/barrier.hpp"
#include "support/hand.hpp"
#include "support/literals.hpp"
#include "support/reconcile.hpp"

namespace cistern::test {

namespace {

constexpr std::size_t many = 3 * detail::slot_count + 1;

/// Pools of which each has its own usual request, so that their hands can be told apart.
struct Numbered {
    std::vector<Pool> pools;

    explicit Numbered(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) pools.emplace_back(Memory::simulated());
    }
    static std::size_t bytes(std::size_t i) { return 10'001 + i; }
    void use(std::size_t i) { pools[i].acquire(bytes(i)).release(); }
    void expect_at_rest(std::size_t i, std::uint64_t acquires) const {
        const PoolStats stats = pools[i].stats();
        EXPECT_EQ(contradictions_at_rest(stats, limits_of(pools[i].options())), "");
        EXPECT_EQ(stats.acquires, acquires);
        EXPECT_EQ(stats.misses, 1u);
        EXPECT_EQ(stats.lent_buffers.now, 0u);
        EXPECT_EQ(stats.idle_buffers.now, 1u);
    }
};

class ManyPools : public testing::Test {
protected:
    void SetUp() override {
        if (!barrier_available()) GTEST_SKIP() << "this system has no fast path";
    }
};

/// Threads that have done something and sleep until they are woken, to do something else and end.
class Sleepers {
public:
    template <class First, class Last>
    Sleepers(std::size_t count, First first, Last last) : awake_(count) {
        for (std::size_t i = 0; i < count; ++i) {
            threads_.emplace_back([this, first, last]() mutable {
                auto kept = first();
                std::unique_lock hold(lock_);
                --awake_;
                changed_.notify_all();
                changed_.wait(hold, [&] { return woken_; });
                hold.unlock();
                last(kept);
            });
        }
        std::unique_lock hold(lock_);
        changed_.wait(hold, [&] { return awake_ == 0; });
    }
    void end() {
        {
            const std::scoped_lock hold(lock_);
            woken_ = true;
        }
        changed_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

private:
    std::mutex lock_;
    std::condition_variable changed_;
    std::size_t awake_;
    bool woken_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace

TEST_F(ManyPools, AllGetTheFastPath) {
    Numbered numbered(many);
    for (std::size_t i = 0; i < many; ++i) {
        numbered.use(i);
        EXPECT_NE(with_hand_for(Numbered::bytes(i)), nullptr) << "pool " << i;
    }
    for (std::size_t i = 0; i < many; ++i) {
        for (int k = 0; k < 10; ++k) numbered.use(i);
        numbered.expect_at_rest(i, 11);
    }
}

TEST_F(ManyPools, ThatShareASlotKeepTheirBuffersApart) {
    Numbered numbered(many);
    for (std::uint64_t round = 1; round <= 5; ++round) {
        std::vector<Buffer> lent;
        for (std::size_t i = 0; i < many; ++i) {
            lent.push_back(numbered.pools[i].acquire(Numbered::bytes(i)));
        }
        for (std::size_t i = 0; i < many; ++i) {
            const std::size_t next = i * 7 % many;  // each once, out of order
            EXPECT_EQ(numbered.pools[next].stats().lent_buffers.now, 1u);
            lent[next].release();
            EXPECT_EQ(numbered.pools[next].stats().lent_buffers.now, 0u);
            if (i % 2 == 0) numbered.use(next);
        }
        for (std::size_t i = 0; i < many; ++i) numbered.pools[i].trim(round % 2 == 0 ? 0 : 1_MiB);
    }
    for (const Pool& pool : numbered.pools) {
        const PoolStats stats = pool.stats();
        EXPECT_EQ(contradictions_at_rest(stats, limits_of(pool.options())), "");
        EXPECT_EQ(stats.lent_buffers.now, 0u);
    }
}

TEST_F(ManyPools, ThatAreGoneLeaveTheirSlots) {
    constexpr std::size_t few = detail::slot_count - 8;  // others live in this process
    for (std::size_t i = 0; i < 10 * many; ++i) Pool{Memory::simulated()}.acquire(1_KiB).release();
    Numbered numbered(few);
    for (std::size_t i = 0; i < few; ++i) numbered.use(i);
    for (std::size_t i = 0; i < few; ++i) {
        EXPECT_NE(with_hand_for(Numbered::bytes(i)), nullptr) << "pool " << i << " shares a slot";
    }
}

TEST(ManyThreads, AreAllCounted) {
    constexpr std::size_t count = 30;
    Pool pool{Memory::simulated()};
    Sleepers sleepers(
        count,
        [&] {
            std::vector<Buffer> kept;
            for (int i = 0; i < 3; ++i) kept.push_back(pool.acquire(10'000));
            for (int i = 0; i < 50; ++i) pool.acquire(10'000).release();
            kept.resize(1);
            return kept;
        },
        [](std::vector<Buffer>& kept) { kept.clear(); });
    const PoolStats stats = pool.stats();
    EXPECT_EQ(contradictions_at_rest(stats, limits_of(pool.options())), "");
    EXPECT_EQ(stats.acquires, 53 * count);
    EXPECT_EQ(stats.lent_buffers.now, count);
    EXPECT_GT(stats.idle_buffers.now, 0u);
    sleepers.end();
    EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
    EXPECT_EQ(pool.stats().acquires, pool.stats().releases);
}

class SeveralThreads : public testing::TestWithParam<std::size_t> {
protected:
    std::size_t count = GetParam();
};
INSTANTIATE_TEST_SUITE_P(Of, SeveralThreads, testing::Values(2, 5, 30));

/// What threads had at different times was never lent at once.
TEST_P(SeveralThreads, ThatTakeTurnsMakeNoPeakTogether) {
    constexpr std::size_t each = 60;
    Pool pool{Memory::simulated()};
    std::mutex turn;
    Sleepers sleepers(
        count,
        [&] {
            const std::scoped_lock hold(turn);
            for (int round = 0; round < 5; ++round) {
                std::vector<Buffer> lent;
                for (std::size_t i = 0; i < each; ++i) lent.push_back(pool.acquire(100));
            }
            return 0;
        },
        [](int) {});
    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.lent_buffers.peak, each);
    EXPECT_EQ(stats.lent_bytes.peak, each * 128);
    EXPECT_EQ(stats.waste_bytes.peak, each * 28);
    EXPECT_LE(stats.idle_buffers.peak, count * each);
    sleepers.end();
}

/// The same where nothing has to grow, before which all are counted; and less than threads may go beyond a peak.
TEST_P(SeveralThreads, ThatTakeTurnsWithWhatIsIdleMakeNoPeakTogether) {
    constexpr std::size_t each = 60;
    Pool pool{Memory::simulated()};
    std::thread([&] { pool.acquire(1_MiB).release(); }).join();
    std::mutex turn;
    Sleepers sleepers(
        count,
        [&] {
            const std::scoped_lock hold(turn);
            std::vector<Buffer> lent;
            for (std::size_t i = 0; i < each; ++i) lent.push_back(pool.acquire(100));
            return 0;
        },
        [](int) {});
    EXPECT_EQ(pool.stats().lent_buffers.peak, each);
    sleepers.end();
}

/// What they take from their magazines, up to the peak that each of them knows, is seen after some visits of another.
TEST_P(SeveralThreads, AreCountedWhileAnotherWorks) {
    constexpr std::size_t before = 400, later = 300, turn_of_each = 64, seen_after = 8;
    Pool pool{Memory::simulated()};
    std::thread([&] { pool.acquire(16_MiB).release(); }).join();  // so that nothing has to grow
    const auto lend = [&](std::size_t buffers) {
        std::vector<Buffer> lent;
        for (std::size_t i = 0; i < buffers; ++i) lent.push_back(pool.acquire(128));
        return lent;
    };
    std::mutex turn;
    Sleepers sleepers(
        count,
        [&] {
            const std::scoped_lock hold(turn);
            lend(before);
            pool.acquire(5_KiB).release();  // the pool sees what is idle here
            return lend(later);
        },
        [](std::vector<Buffer>& kept) { kept.clear(); });
    lend(turn_of_each * count);
    sleepers.end();

    const std::size_t truth = count * later + turn_of_each * count;
    ASSERT_GT(truth, (count - 1) * later + before);
    EXPECT_GE(pool.stats().lent_buffers.peak, truth - seen_after);
    EXPECT_LE(pool.stats().lent_buffers.peak, truth);
}

TEST_P(SeveralThreads, HideNoWasteInTheirHands) {
    Pool pool{Memory::simulated()};
    Sleepers sleepers(
        count,
        [&] {
            pool.acquire(10'000).release();
            return 0;
        },
        [](int) {});
    std::size_t waste = 0;
    {
        const Buffer buffer = pool.acquire(1_MiB + 1);
        waste = buffer.capacity() - buffer.size();
    }
    EXPECT_EQ(pool.stats().waste_bytes.peak, waste);
    sleepers.end();
}

TEST_P(SeveralThreads, CountForPeaksThoughTheySleep) {
    constexpr std::size_t more = 100;
    Pool pool{Memory::simulated()};
    Sleepers sleepers(
        count,
        [&] {
            std::vector<Buffer> kept;
            for (int i = 0; i < 4; ++i) kept.push_back(pool.acquire(1_MiB));
            kept.resize(2);
            return kept;
        },
        [](std::vector<Buffer>& kept) { kept.clear(); });
    {
        std::vector<Buffer> lent;
        for (std::size_t i = 0; i < more; ++i) lent.push_back(pool.acquire(2_MiB));
    }
    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.lent_bytes.peak, count * 2_MiB + more * 2_MiB);
    EXPECT_EQ(stats.lent_buffers.peak, 2 * count + more);
    EXPECT_GE(stats.idle_bytes.peak, more * 2_MiB);
    EXPECT_LE(stats.idle_bytes.peak, stats.held_bytes.peak - count * 2_MiB);
    sleepers.end();
}

}  // namespace cistern::test
