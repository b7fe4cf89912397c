// Each limit, to the byte.

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "contract/contract.hpp"

namespace cistern::test {

using std::chrono::milliseconds;

TEST_P(PoolContract, LendsUpToMaxBytesAndNotMore) {
    Pool pool = make_pool({.max_bytes = 2 * block_bytes});
    Buffer a = pool.acquire(block_bytes);
    const Buffer b = pool.acquire(block_bytes);

    EXPECT_THROW((void)pool.acquire(block_bytes), OutOfMemory);
    EXPECT_THROW((void)pool.acquire(1), OutOfMemory);

    EXPECT_EQ(pool.stats().failures, 2u);
    EXPECT_EQ(pool.stats().acquires, 2u);
    EXPECT_EQ(pool.stats().held_bytes, (Gauge{2 * block_bytes, 2 * block_bytes}));
    a.release();
    EXPECT_TRUE(hits(pool, block_bytes));
    expect_reconciled(pool);
}

TEST_P(AnySizeContract, FreesIdleBlocksBeforeReportingOutOfMemory) {
    Pool pool = make_pool({.max_bytes = 64_KiB});
    { const Buffer idle = pool.acquire(48_KiB); }

    const Buffer fits_once_idle_is_freed = pool.acquire(32_KiB);

    EXPECT_EQ(fits_once_idle_is_freed.capacity(), 32_KiB);
    EXPECT_LE(pool.stats().held_bytes.peak, 64_KiB);
    EXPECT_THROW((void)pool.acquire(48_KiB), OutOfMemory);
    EXPECT_EQ(pool.stats().lent_bytes.now, 32_KiB);
    expect_reconciled(pool);
}

TEST_P(WholeBlocksOfAnySizeContract, CountsWhatMaxBytesThrewOut) {
    Pool pool = make_pool({.max_bytes = 64_KiB});
    { const Buffer idle = pool.acquire(48_KiB); }

    const Buffer larger = pool.acquire(64_KiB);

    EXPECT_EQ(pool.stats().evictions, 1u);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_bytes, 1u);
    EXPECT_EQ(pool.stats().idle_bytes.now, 0u);
    EXPECT_EQ(pool.stats().held_bytes, (Gauge{64_KiB, 64_KiB}));
}

TEST_P(AnySizeContract, UsesTheBytesOfOtherThreadsBeforeReportingOutOfMemory) {
    Pool pool = make_pool({.max_bytes = 1_MiB});
    std::thread([&pool] {
        std::vector<Buffer> lent;
        for (int i = 0; i < 16; ++i) lent.push_back(pool.acquire(64_KiB));
    }).join();

    const Buffer all = pool.acquire(1_MiB);

    EXPECT_EQ(all.capacity(), 1_MiB);
    EXPECT_LE(pool.stats().held_bytes.peak, 1_MiB);
}

TEST_P(WholeBlockContract, KeepsExactlyMaxIdleBytes) {
    Pool pool = make_pool({.max_idle_bytes = 2 * block_bytes});
    {
        const Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes);
        const Buffer c = pool.acquire(block_bytes);
    }

    EXPECT_EQ(pool.stats().idle_bytes, (Gauge{2 * block_bytes, 2 * block_bytes}));
    EXPECT_EQ(pool.stats().idle_buffers.now, 2u);
    EXPECT_EQ(pool.stats().evictions, 1u);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_bytes, 1u);
    expect_reconciled(pool);
}

TEST_P(PoolContract, KeepsAtMostMaxIdleBytes) {
    Pool pool = make_pool({.max_idle_bytes = 2 * block_bytes});
    std::vector<Buffer> lent;
    for (int i = 0; i < 6; ++i) lent.push_back(pool.acquire(block_bytes));

    while (!lent.empty()) {
        lent.pop_back();
        expect_reconciled(pool);
    }

    EXPECT_LE(pool.stats().idle_bytes.peak, 2 * block_bytes);
    EXPECT_GT(pool.stats().evictions_by_limit.max_idle_bytes, 0u);
}

TEST_P(PoolContract, KeepsABlockOfExactlyMaxIdleBytes) {
    Pool pool = make_pool({.max_idle_bytes = block_bytes});

    { const Buffer buffer = pool.acquire(block_bytes); }

    EXPECT_EQ(pool.stats().idle_bytes.now, block_bytes);
    EXPECT_EQ(pool.stats().evictions, 0u);
    EXPECT_TRUE(hits(pool, block_bytes));
}

TEST_P(PoolContract, KeepsNothingIfMaxIdleBytesIsZero) {
    Pool pool = make_pool({.max_idle_bytes = 0});

    for (int i = 0; i < 3; ++i) (void)pool.acquire(block_bytes);

    EXPECT_EQ(pool.stats().idle_bytes, (Gauge{0, 0}));
    EXPECT_EQ(pool.stats().held_bytes, (Gauge{0, block_bytes}));
    EXPECT_EQ(pool.stats().misses, 3u);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_bytes, 3u);
    expect_memory_lent_at_most(0);
}

TEST_P(AnySizeContract, DropsABlockThatCannotFitUnderMaxIdleBytesAlone) {
    Pool pool = make_pool({.max_idle_bytes = 96_KiB, .evict = Evict::smallest});
    Buffer small = pool.acquire(64_KiB), separator = pool.acquire(64_KiB);
    Buffer too_large = pool.acquire(128_KiB);
    small.release();

    too_large.release();

    EXPECT_EQ(pool.stats().idle_bytes.now, 64_KiB);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_bytes, 1u);
    EXPECT_TRUE(hits(pool, 64_KiB));
}

TEST_P(WholeBlockContract, KeepsExactlyMaxIdleBuffers) {
    Pool pool = make_pool({.max_idle_buffers = 3});
    std::vector<Buffer> lent;
    for (int i = 0; i < 5; ++i) lent.push_back(pool.acquire(block_bytes));

    lent.clear();

    EXPECT_EQ(pool.stats().idle_buffers, (Gauge{3, 3}));
    EXPECT_EQ(pool.stats().idle_bytes.now, 3 * block_bytes);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_buffers, 2u);
    expect_reconciled(pool);
}

TEST_P(PoolContract, KeepsAtMostMaxIdleBuffers) {
    Pool pool = make_pool({.max_idle_buffers = 2});
    std::vector<Buffer> lent;
    for (int i = 0; i < 9; ++i) lent.push_back(pool.acquire(block_bytes));

    for (std::size_t i = 0; i < lent.size();
         i += 2) {  // every other one, so that none are neighbours
        lent[i].release();
        expect_reconciled(pool);
    }

    EXPECT_EQ(pool.stats().idle_buffers, (Gauge{2, 2}));
    EXPECT_EQ(pool.stats().idle_bytes.now, 2 * block_bytes);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_buffers, 3u);
}

TEST_P(PoolContract, KeepsNothingIfMaxIdleBuffersIsZero) {
    Pool pool = make_pool({.max_idle_buffers = 0});

    { const Buffer buffer = pool.acquire(block_bytes); }

    EXPECT_EQ(pool.stats().idle_buffers, (Gauge{0, 0}));
    EXPECT_EQ(pool.stats().held_bytes.now, 0u);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_buffers, 1u);
}

TEST_P(AnySizeContract, NeverKeepsABufferLargerThanMaxBufferBytes) {
    Pool pool = make_pool({.max_buffer_bytes = 64_KiB});

    { const Buffer at_the_limit = pool.acquire(64_KiB), above_the_limit = pool.acquire(128_KiB); }

    EXPECT_EQ(pool.stats().idle_bytes.now, 64_KiB);
    EXPECT_EQ(pool.stats().evictions, 1u);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_buffer_bytes, 1u);
    EXPECT_TRUE(hits(pool, 64_KiB));
}

TEST_P(PoolContract, LetsGoWhatWasIdleForMaxIdleAge) {
    Pool pool = make_pool({.max_idle_age = milliseconds(30)});
    { const Buffer buffer = pool.acquire(block_bytes); }

    std::this_thread::sleep_for(milliseconds(60));

    EXPECT_EQ(pool.stats().idle_bytes.now, 0u);
    EXPECT_EQ(pool.stats().held_bytes.now, 0u);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_age, 1u);
    expect_memory_lent_at_most(0);
    EXPECT_FALSE(hits(pool, block_bytes));
}

TEST_P(PoolContract, KeepsWhatIsYoungerThanMaxIdleAge) {
    Pool pool = make_pool({.max_idle_age = std::chrono::hours(1)});

    { const Buffer buffer = pool.acquire(block_bytes); }
    std::this_thread::sleep_for(milliseconds(5));

    EXPECT_EQ(pool.stats().idle_bytes.now, block_bytes);
    EXPECT_TRUE(hits(pool, block_bytes));
    EXPECT_EQ(pool.stats().evictions, 0u);
}

TEST_P(WholeBlockContract, LetsGoOnlyWhatIsOldAndKeepsTheYoung) {
    Pool pool = make_pool({.max_idle_age = milliseconds(400)});
    Buffer old = pool.acquire(block_bytes), young = pool.acquire(block_bytes);
    old.release();
    std::this_thread::sleep_for(milliseconds(300));
    young.release();

    std::this_thread::sleep_for(milliseconds(200));

    EXPECT_EQ(pool.stats().idle_buffers.now, 1u);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_age, 1u);
}

TEST_P(PoolContract, ABufferThatWasLentIsNotOld) {
    Pool pool = make_pool({.max_idle_age = milliseconds(200)});
    { const Buffer buffer = pool.acquire(block_bytes); }
    Buffer long_lent = pool.acquire(block_bytes);
    std::this_thread::sleep_for(milliseconds(250));

    long_lent.release();

    EXPECT_EQ(pool.stats().idle_bytes.now, block_bytes);
    EXPECT_EQ(pool.stats().evictions, 0u);
}

TEST_P(PoolContract, ZeroMaxIdleAgeKeepsNothing) {
    Pool pool = make_pool({.max_idle_age = milliseconds(0)});

    { const Buffer buffer = pool.acquire(block_bytes); }

    EXPECT_EQ(pool.stats().idle_bytes.now, 0u);
}

TEST_P(PoolContract, SetLimitsEvictsAtOnce) {
    Pool pool = make_pool();
    {
        const Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes);
        const Buffer c = pool.acquire(block_bytes);
    }

    pool.set_limits({.max_idle_bytes = block_bytes});

    EXPECT_LE(pool.stats().idle_bytes.now, block_bytes);
    EXPECT_GT(pool.stats().evictions_by_limit.max_idle_bytes, 0u);
    EXPECT_EQ(pool.options().max_idle_bytes, block_bytes);
    expect_memory_lent_at_most(block_bytes);
    expect_reconciled(pool);
}

TEST_P(PoolContract, SetLimitsReachesTheBytesThatOtherThreadsKeep) {
    Pool pool = make_pool();
    std::atomic<int> phase{0};
    std::thread other([&] {
        (void)pool.acquire(block_bytes);
        phase = 1;
        while (phase != 2) std::this_thread::yield();
    });
    while (phase != 1) std::this_thread::yield();

    pool.set_limits({.max_idle_bytes = 0});

    EXPECT_EQ(pool.stats().idle_bytes.now, 0u);
    phase = 2;
    other.join();
}

TEST_P(WholeBlockContract, SetLimitsAppliesEachLimit) {
    Pool pool = make_pool();
    const auto keep_four = [&pool] {
        pool.set_limits({.max_idle_bytes = no_limit});
        const Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes);
        const Buffer c = pool.acquire(block_bytes), d = pool.acquire(block_bytes);
    };
    keep_four();

    pool.set_limits({.max_bytes = 3 * block_bytes});
    EXPECT_EQ(pool.stats().idle_buffers.now, 3u);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_bytes, 1u);

    keep_four();
    pool.set_limits({.max_idle_buffers = 1});
    EXPECT_EQ(pool.stats().idle_buffers.now, 1u);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_buffers, 3u);

    keep_four();
    pool.set_limits({.max_idle_bytes = 0});
    EXPECT_EQ(pool.stats().idle_buffers.now, 0u);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_bytes, 4u);

    keep_four();
    pool.set_limits({.max_idle_age = milliseconds(0)});
    EXPECT_EQ(pool.stats().idle_buffers.now, 0u);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_age, 4u);
}

TEST_P(WholeBlocksOfAnySizeContract, SetLimitsLetsGoOfBuffersThatAreNowTooLarge) {
    Pool pool = make_pool();
    { const Buffer small = pool.acquire(64_KiB), large = pool.acquire(128_KiB); }

    pool.set_limits({.max_buffer_bytes = 64_KiB});

    EXPECT_EQ(pool.stats().idle_bytes.now, 64_KiB);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_buffer_bytes, 1u);
}

TEST_P(PoolContract, SetLimitsMakesRoomForMore) {
    Pool pool = make_pool({.max_bytes = block_bytes});
    const Buffer a = pool.acquire(block_bytes);
    EXPECT_THROW((void)pool.acquire(block_bytes), OutOfMemory);

    pool.set_limits({.max_bytes = 2 * block_bytes});

    EXPECT_NO_THROW((void)pool.acquire(block_bytes));
    EXPECT_THROW(
        {
            const Buffer b = pool.acquire(block_bytes);
            (void)pool.acquire(block_bytes);
        },
        OutOfMemory);
}

TEST_P(PoolContract, SetLimitsToWhatIsLentIsAllowed) {
    Pool pool = make_pool();
    const Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes);
    { const Buffer idle = pool.acquire(block_bytes); }

    pool.set_limits({.max_bytes = 2 * block_bytes});

    EXPECT_EQ(pool.stats().held_bytes.now, 2 * block_bytes);
    EXPECT_EQ(pool.stats().idle_bytes.now, 0u);
}

TEST_P(PoolContract, SetLimitsBelowWhatIsLentIsRefusedAndChangesNothing) {
    Pool pool = make_pool();
    const Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes);
    { const Buffer idle = pool.acquire(block_bytes); }
    const PoolStats before = pool.stats();
    const std::size_t max_idle_bytes = pool.options().max_idle_bytes;

    EXPECT_THROW(pool.set_limits({.max_bytes = 2 * block_bytes - 1, .max_idle_bytes = 0}),
                 InvalidArgument);

    EXPECT_EQ(pool.stats(), before);
    EXPECT_EQ(pool.options().max_bytes, no_limit);
    EXPECT_EQ(pool.options().max_idle_bytes, max_idle_bytes);
}

TEST_P(PoolContract, SetLimitsThatContradictEachOtherAreRefusedAndChangeNothing) {
    Pool pool = make_pool();
    { const Buffer idle = pool.acquire(block_bytes); }
    const PoolStats before = pool.stats();

    EXPECT_THROW(pool.set_limits({.max_bytes = 2 * block_bytes, .max_idle_bytes = 3 * block_bytes}),
                 InvalidArgument);
    EXPECT_THROW(pool.set_limits({.max_idle_bytes = 0, .max_idle_age = milliseconds(-1)}),
                 InvalidArgument);

    EXPECT_EQ(pool.stats(), before);
    EXPECT_TRUE(hits(pool, block_bytes));
}

}  // namespace cistern::test
