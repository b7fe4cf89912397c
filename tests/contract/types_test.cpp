// Idle bytes kept apart by element type, and idle bytes wiped.

#include <complex>
#include <cstdint>
#include <vector>

#include "contract/contract.hpp"

namespace cistern::test {

namespace {

constexpr std::size_t floats = block_bytes / sizeof(float);
constexpr std::size_t doubles = block_bytes / sizeof(double);

}  // namespace

TEST_P(PoolContract, BytesOfOneTypeServeAnother) {
    Pool pool = make_pool();
    { const auto released = pool.array<float>(floats); }

    const auto served = pool.array<double>(doubles);

    EXPECT_EQ(pool.stats().hits, 1u);
}

TEST_P(PoolContract, SeparateTypesNeverServeEachOther) {
    Pool pool = make_pool({.separate_types = true});
    { const auto released = pool.array<float>(floats); }

    const auto other_type = pool.array<double>(doubles);
    const Buffer no_type = pool.acquire(block_bytes);

    EXPECT_EQ(pool.stats().hits, 0u);
    EXPECT_EQ(pool.stats().misses, 3u);
    EXPECT_EQ(pool.stats().idle_bytes.now, block_bytes);
    const auto same_type = pool.array<float>(floats);
    EXPECT_EQ(pool.stats().hits, 1u);
    expect_reconciled(pool);
}

TEST_P(PoolContract, SeparateTypesServeThemselvesAgain) {
    Pool pool = make_pool({.separate_types = true});
    for (int round = 0; round < 3; ++round) {
        const auto a = pool.array<float>(floats);
        const auto b = pool.array<double>(doubles);
        const auto c = pool.zeros<std::complex<float>>(doubles);
        const Buffer d = pool.acquire(block_bytes);
        const auto e = pool.vector<std::int32_t>(floats);
    }

    EXPECT_EQ(pool.stats().misses, 5u);
    EXPECT_EQ(pool.stats().hits, 10u);
    EXPECT_EQ(pool.stats().held_bytes.peak, 5 * block_bytes);
    expect_reconciled(pool);
}

TEST_P(PoolContract, SeparateTypesShareTheirLimits) {
    Pool pool = make_pool({.max_bytes = 2 * block_bytes, .separate_types = true});
    { const auto a = pool.array<float>(floats), b = pool.array<float>(floats); }

    const auto needs_room = pool.array<double>(doubles);

    EXPECT_EQ(pool.stats().misses, 3u);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_bytes, pool.stats().evictions);
    EXPECT_GE(pool.stats().evictions, 1u);
    EXPECT_LE(pool.stats().held_bytes.peak, 2 * block_bytes);
    expect_reconciled(pool);
}

TEST_P(WholeBlockContract, SeparateTypesAreEvictedInOneOrder) {
    Pool pool = make_pool({.max_idle_bytes = 2 * block_bytes, .separate_types = true});
    auto a = pool.array<float>(floats);
    auto b = pool.array<double>(doubles);
    auto c = pool.array<std::int64_t>(doubles);
    b.take_buffer().release();
    a.take_buffer().release();

    c.take_buffer().release();

    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_bytes, 1u);
    { const auto again = pool.array<float>(floats); }
    { const auto again = pool.array<std::int64_t>(doubles); }
    EXPECT_EQ(pool.stats().hits, 2u);
    { const auto gone = pool.array<double>(doubles); }
    EXPECT_EQ(pool.stats().misses, 4u);
}

TEST_P(PoolContract, WipesWhatAUserGivesBack) {
    if (!has_bytes()) GTEST_SKIP() << "this memory has addresses and no bytes";
    Pool pool = make_pool({.wipe_on_release = true});
    {
        const Buffer secret = pool.acquire(block_bytes);
        write_pattern(secret.data(), secret.size(), 11);
    }

    const Buffer next = pool.acquire(block_bytes);

    EXPECT_EQ(pool.stats().hits, 1u);
    EXPECT_TRUE(all_zero(next.data(), next.size()));
}

TEST_P(PoolContract, WipesEveryTime) {
    if (!has_bytes()) GTEST_SKIP() << "this memory has addresses and no bytes";
    Pool pool = make_pool({.wipe_on_release = true});

    for (std::uint64_t round = 0; round < 20; ++round) {
        const Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes / 2);
        ASSERT_TRUE(round == 0 || all_zero(a.data(), a.size())) << round;
        ASSERT_TRUE(round == 0 || all_zero(b.data(), b.size())) << round;
        write_pattern(a.data(), a.size(), round);
        write_pattern(b.data(), b.size(), round);
    }

    EXPECT_EQ(pool.stats().misses, 2u);
    expect_reconciled(pool);
}

TEST_P(PoolContract, WipesBytesThatAreKeptByType) {
    if (!has_bytes()) GTEST_SKIP() << "this memory has addresses and no bytes";
    Pool pool = make_pool({.separate_types = true, .wipe_on_release = true});
    {
        const auto secret = pool.array<std::uint64_t>(doubles);
        secret.fill(0xdeadbeef);
    }

    const auto next = pool.array<std::uint64_t>(doubles);

    EXPECT_EQ(pool.stats().hits, 1u);
    EXPECT_TRUE(all_zero(next.data(), next.size_bytes()));
}

}  // namespace cistern::test
