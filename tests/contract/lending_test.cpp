// What a borrower gets: enough bytes, aligned, its own, and the same ones again.

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "contract/contract.hpp"

namespace cistern::test {

namespace {

std::uintptr_t address_of(const Buffer& buffer) {
    return reinterpret_cast<std::uintptr_t>(buffer.data());
}

/// Fails if two buffers share a byte.
void expect_apart(const std::vector<Buffer>& buffers) {
    std::vector<const Buffer*> by_address;
    for (const Buffer& buffer : buffers) by_address.push_back(&buffer);
    std::sort(by_address.begin(), by_address.end(),
              [](const Buffer* a, const Buffer* b) { return address_of(*a) < address_of(*b); });
    for (std::size_t i = 1; i < by_address.size(); ++i) {
        const Buffer& left = *by_address[i - 1];
        EXPECT_LE(address_of(left) + left.capacity(), address_of(*by_address[i]));
    }
}

const std::vector<std::size_t> many_sizes = {
    1,      8,      63,         64,     65,    1000,      4095,    4096,      4097,
    16_KiB, 32_KiB, 32_KiB + 1, 100000, 1_MiB, 1_MiB + 1, 3000000, 5_MiB + 77};

}  // namespace

TEST_P(PoolContract, LendsTheBytesAskedFor) {
    Pool pool = make_pool();

    const Buffer buffer = pool.acquire(block_bytes);

    EXPECT_FALSE(buffer.empty());
    EXPECT_NE(buffer.data(), nullptr);
    EXPECT_EQ(buffer.size(), block_bytes);
    EXPECT_EQ(buffer.capacity(), block_bytes);
    EXPECT_EQ(buffer.memory(), memory());
}

TEST_P(PoolContract, CountsTheFirstRequestAsAMiss) {
    Pool pool = make_pool();

    const Buffer buffer = pool.acquire(block_bytes);

    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.acquires, 1u);
    EXPECT_EQ(stats.misses, 1u);
    EXPECT_EQ(stats.hits, 0u);
    EXPECT_EQ(stats.releases, 0u);
    EXPECT_EQ(stats.lent_buffers.now, 1u);
    EXPECT_EQ(stats.lent_bytes.now, block_bytes);
    EXPECT_EQ(stats.idle_bytes.now, 0u);
    EXPECT_EQ(stats.held_bytes.now, block_bytes);
    EXPECT_EQ(stats.waste_bytes.now, 0u);
}

TEST_P(PoolContract, KeepsReleasedBytesIdle) {
    Pool pool = make_pool();

    { const Buffer buffer = pool.acquire(block_bytes); }

    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.releases, 1u);
    EXPECT_EQ(stats.lent_buffers.now, 0u);
    EXPECT_EQ(stats.lent_bytes.now, 0u);
    EXPECT_EQ(stats.idle_buffers.now, 1u);
    EXPECT_EQ(stats.idle_bytes.now, block_bytes);
    EXPECT_EQ(stats.held_bytes.now, block_bytes);
}

TEST_P(PoolContract, LendsTheSameBytesAgain) {
    Pool pool = make_pool();
    const void* first = nullptr;
    {
        const Buffer buffer = pool.acquire(block_bytes);
        first = buffer.data();
    }

    const Buffer again = pool.acquire(block_bytes);

    EXPECT_EQ(again.data(), first);
    EXPECT_EQ(pool.stats().hits, 1u);
    EXPECT_EQ(pool.stats().misses, 1u);
    EXPECT_EQ(pool.stats().held_bytes.now, block_bytes);
}

TEST_P(WholeBlockContract, LendsTheLastReleasedBlockFirst) {
    Pool pool = make_pool();
    Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes);
    Buffer c = pool.acquire(block_bytes);
    const void* const first = a.data();
    const void* const second = b.data();
    const void* const third = c.data();
    b.release();
    c.release();
    a.release();

    const Buffer x = pool.acquire(block_bytes), y = pool.acquire(block_bytes);
    const Buffer z = pool.acquire(block_bytes);

    EXPECT_EQ(x.data(), first);
    EXPECT_EQ(y.data(), third);
    EXPECT_EQ(z.data(), second);
    EXPECT_EQ(pool.stats().hits, 3u);
}

TEST_P(PoolContract, KeepsManyIdleBlocksForManyBorrowers) {
    Pool pool = make_pool();
    for (int round = 0; round < 3; ++round) {
        std::vector<Buffer> lent;
        for (int i = 0; i < 40; ++i) lent.push_back(pool.acquire(block_bytes));
    }

    EXPECT_EQ(pool.stats().misses, 40u);
    EXPECT_EQ(pool.stats().hits, 80u);
    EXPECT_EQ(pool.stats().held_bytes.peak, 40 * block_bytes);
    expect_reconciled(pool);
}

TEST_P(PoolContract, AlignsEveryBufferAsItsOptionsSay) {
    for (const std::size_t alignment : {1_KiB, 4_KiB, 64_KiB}) {
        Pool pool = make_pool({.alignment = alignment});
        std::vector<Buffer> buffers;

        for (int i = 0; i < 5; ++i) buffers.push_back(pool.acquire(block_bytes));

        for (const Buffer& buffer : buffers) EXPECT_EQ(address_of(buffer) % alignment, 0u);
    }
}

TEST_P(PoolContract, AlignsToACacheLineAtLeast) {
    for (const std::size_t alignment : {std::size_t{1}, std::size_t{8}, std::size_t{32}}) {
        Pool pool = make_pool({.alignment = alignment});

        const Buffer one = pool.acquire(1), two = pool.acquire(1);

        EXPECT_EQ(address_of(one) % 64, 0u);
        EXPECT_EQ(address_of(two) % 64, 0u);
    }
}

TEST_P(AnySizeContract, AlignsSmallAndLargeBuffersUpToTheLargestAlignment) {
    Pool pool = make_pool({.alignment = 2_MiB});

    const Buffer small = pool.acquire(100), large = pool.acquire(3_MiB);

    EXPECT_EQ(address_of(small) % 2_MiB, 0u);
    EXPECT_EQ(address_of(large) % 2_MiB, 0u);
}

TEST_P(AnySizeContract, WastesLessThanAnEighthOfAnySize) {
    Pool pool = make_pool();
    std::vector<Buffer> lent;
    std::size_t waste = 0;

    for (const std::size_t bytes : many_sizes) lent.push_back(pool.acquire(bytes));

    for (const Buffer& buffer : lent) {
        EXPECT_LE(buffer.capacity() - buffer.size(),
                  std::max(pool.options().alignment - 1, buffer.size() / 8))
            << "for " << buffer.size() << " bytes";
        waste += buffer.capacity() - buffer.size();
    }
    EXPECT_EQ(pool.stats().waste_bytes.now, waste);
    expect_apart(lent);
    expect_reconciled(pool);
}

TEST_P(AnySizeContract, ServesEverySizeAgainFromWhatWasReleased) {
    Pool pool = make_pool();
    for (int round = 0; round < 2; ++round) {
        std::vector<Buffer> lent;
        for (const std::size_t bytes : many_sizes) lent.push_back(pool.acquire(bytes));
    }

    EXPECT_EQ(pool.stats().misses, many_sizes.size());
    EXPECT_EQ(pool.stats().hits, many_sizes.size());
}

TEST_P(PoolContract, NeverLendsOneByteTwice) {
    Pool pool = make_pool();
    std::vector<Buffer> lent;
    for (int i = 0; i < 30; ++i) lent.push_back(pool.acquire(block_bytes));
    for (std::size_t i = 0; i < lent.size(); i += 3) lent[i].release();
    for (std::size_t i = 0; i < lent.size(); i += 3) lent[i] = pool.acquire(block_bytes - i);

    for (int i = 0; i < 5; ++i) lent.push_back(pool.acquire(block_bytes));

    expect_apart(lent);
}

TEST_P(PoolContract, KeepsWhatEachBorrowerWrote) {
    if (!has_bytes()) GTEST_SKIP() << "this memory has addresses and no bytes";
    Pool pool = make_pool();
    std::vector<Buffer> lent;
    for (std::size_t i = 0; i < 24; ++i) {
        lent.push_back(pool.acquire(block_bytes));
        write_pattern(lent[i].data(), lent[i].size(), i);
    }

    for (std::size_t i = 0; i < lent.size(); i += 2) lent[i].release();
    pool.trim(3 * block_bytes);
    for (std::size_t i = 0; i < lent.size(); i += 2) {
        lent[i] = pool.acquire(block_bytes);
        write_pattern(lent[i].data(), lent[i].size(), i);
    }

    for (std::size_t i = 0; i < lent.size(); ++i) {
        EXPECT_TRUE(has_pattern(lent[i].data(), lent[i].size(), i)) << "buffer " << i;
    }
}

TEST_P(AnySizeContract, KeepsWhatEachBorrowerWroteWhileSizesChange) {
    if (!has_bytes()) GTEST_SKIP() << "this memory has addresses and no bytes";
    Pool pool = make_pool();
    std::vector<Buffer> lent(12);

    for (std::size_t step = 0; step < 300; ++step) {
        const std::size_t i = scrambled(step) % lent.size();
        if (!lent[i].empty()) {
            ASSERT_TRUE(has_pattern(lent[i].data(), lent[i].size(), lent[i].size() + i));
        }
        lent[i].release();
        lent[i] = pool.acquire(1 + scrambled(step * 31) % (256_KiB));
        write_pattern(lent[i].data(), lent[i].size(), lent[i].size() + i);
        ASSERT_EQ(contradictions(pool.stats()), "") << "at step " << step;
    }

    for (std::size_t i = 0; i < lent.size(); ++i) {
        if (lent[i].empty()) continue;
        EXPECT_TRUE(has_pattern(lent[i].data(), lent[i].size(), lent[i].size() + i));
    }
}

TEST_P(PoolContract, TakesNothingForZeroBytes) {
    Pool pool = make_pool();

    Buffer nothing = pool.acquire(0);
    const Buffer nothing_either = pool.try_acquire(0), nor_this = pool.acquire_zeroed(0);

    EXPECT_TRUE(nothing.empty());
    EXPECT_EQ(nothing.size(), 0u);
    EXPECT_EQ(nothing.capacity(), 0u);
    EXPECT_EQ(nothing.data(), nullptr);
    EXPECT_TRUE(nothing_either.empty());
    EXPECT_TRUE(nor_this.empty());
    EXPECT_EQ(pool.stats(), PoolStats{});
    nothing.release();
    EXPECT_EQ(pool.stats(), PoolStats{});
}

TEST_P(PoolContract, ReconcilesAfterEveryStep) {
    Pool pool = make_pool({.max_bytes = 10 * block_bytes, .max_idle_bytes = 4 * block_bytes});
    std::vector<Buffer> lent;
    for (int i = 0; i < 10; ++i) {
        lent.push_back(pool.acquire(block_bytes - static_cast<std::size_t>(i)));
        expect_reconciled(pool);
    }
    while (!lent.empty()) {
        lent.pop_back();
        expect_reconciled(pool);
    }
    pool.trim(block_bytes);
    expect_reconciled(pool);

    EXPECT_EQ(pool.stats().acquires, 10u);
    EXPECT_EQ(pool.stats().releases, 10u);
}

TEST_P(PoolContract, RemembersItsPeaks) {
    Pool pool = make_pool();
    std::size_t most_lent = 0, most_wasted = 0;
    {
        const Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes - 100);
        const Buffer c = pool.acquire(block_bytes);
        most_lent = a.capacity() + b.capacity() + c.capacity();
        most_wasted = b.capacity() - b.size();
    }
    const Buffer d = pool.acquire(block_bytes);

    pool.trim();

    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.lent_buffers, (Gauge{1, 3}));
    EXPECT_EQ(stats.lent_bytes, (Gauge{block_bytes, most_lent}));
    EXPECT_EQ(stats.held_bytes, (Gauge{block_bytes, most_lent}));
    EXPECT_EQ(stats.idle_bytes, (Gauge{0, most_lent}));
    EXPECT_EQ(stats.waste_bytes, (Gauge{0, most_wasted}));
}

TEST_P(PoolContract, LendsZeroesWhenAskedForThem) {
    if (!has_bytes()) GTEST_SKIP() << "this memory has addresses and no bytes";
    Pool pool = make_pool();

    const Buffer fresh = pool.acquire_zeroed(block_bytes);

    EXPECT_TRUE(all_zero(fresh.data(), fresh.size()));
}

TEST_P(PoolContract, LendsZeroesFromBytesThatWereUsedBefore) {
    if (!has_bytes()) GTEST_SKIP() << "this memory has addresses and no bytes";
    Pool pool = make_pool();
    {
        const Buffer used = pool.acquire(block_bytes), zeroed = pool.acquire_zeroed(block_bytes);
        write_pattern(used.data(), used.size(), 1);
        write_pattern(zeroed.data(), zeroed.size(), 2);
    }

    const Buffer first = pool.acquire_zeroed(block_bytes),
                 second = pool.acquire_zeroed(block_bytes);

    EXPECT_EQ(pool.stats().hits, 2u);
    EXPECT_TRUE(all_zero(first.data(), first.size()));
    EXPECT_TRUE(all_zero(second.data(), second.size()));
}

TEST_P(PoolContract, LendsZeroesAfterTrimming) {
    if (!has_bytes()) GTEST_SKIP() << "this memory has addresses and no bytes";
    Pool pool = make_pool();
    {
        const Buffer used = pool.acquire(block_bytes);
        write_pattern(used.data(), used.size(), 1);
    }
    pool.trim();

    const auto zeros = pool.zeros<std::uint32_t>(128, 128);

    EXPECT_TRUE(all_zero(zeros.data(), zeros.size_bytes()));
}

TEST_P(AnySizeContract, LendsZeroesOfEverySizeFromUsedBytes) {
    if (!has_bytes()) GTEST_SKIP() << "this memory has addresses and no bytes";
    Pool pool = make_pool();
    {
        std::vector<Buffer> used;
        for (const std::size_t bytes : many_sizes) {
            used.push_back(pool.acquire(bytes));
            write_pattern(used.back().data(), bytes, bytes);
        }
    }
    std::vector<Buffer> zeroed;

    for (const std::size_t bytes : many_sizes) zeroed.push_back(pool.acquire_zeroed(bytes));

    for (const Buffer& buffer : zeroed) EXPECT_TRUE(all_zero(buffer.data(), buffer.size()));
}

TEST_P(PoolContract, TakesBackOnOneThreadWhatItLentOnAnother) {
    Pool pool = make_pool();
    Buffer buffer = pool.acquire(block_bytes);
    const void* const data = buffer.data();

    std::thread([&buffer] { buffer.release(); }).join();

    EXPECT_EQ(pool.stats().releases, 1u);
    EXPECT_EQ(pool.stats().idle_bytes.now, block_bytes);
    const Buffer again = pool.acquire(block_bytes);
    EXPECT_EQ(again.data(), data);
    EXPECT_EQ(pool.stats().hits, 1u);
    expect_reconciled(pool);
}

TEST_P(PoolContract, KeepsTheBytesOfAThreadThatEnded) {
    Pool pool = make_pool();

    std::thread([&pool] {
        for (int i = 0; i < 100; ++i) (void)pool.acquire(block_bytes);
    }).join();

    EXPECT_EQ(pool.stats().acquires, 100u);
    EXPECT_EQ(pool.stats().misses, 1u);
    EXPECT_TRUE(hits(pool, block_bytes));
    expect_reconciled(pool);
}

}  // namespace cistern::test
