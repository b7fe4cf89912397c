// A thread that asks for a few sizes in turn: it soon keeps a block of each, and the pool stays small.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>

#include "cistern/cistern.hpp"
#include "support/literals.hpp"

namespace cistern::test {
namespace {

/// Borrows each size once; returns where.
std::set<void*> rotate(Pool& pool, std::size_t smallest, int sizes) {
    std::set<void*> places;
    for (int i = 0; i < sizes; ++i) places.insert(pool.acquire(smallest << i).data());
    return places;
}

TEST(Rotation, EndsWithABlockForEachSmallSize) {
    Pool pool;
    for (int i = 0; i < 200; ++i) rotate(pool, 4_KiB, 7);
    EXPECT_EQ(rotate(pool, 4_KiB, 7).size(), 7u);
    EXPECT_EQ(rotate(pool, 4_KiB, 7), rotate(pool, 4_KiB, 7));
    EXPECT_LE(pool.stats().held_bytes.peak, 512_KiB);
}

TEST(Rotation, SharesTheBytesFirst) {
    Pool pool;
    for (int i = 0; i < 8; ++i) rotate(pool, 4_KiB, 7);
    EXPECT_LE(pool.stats().held_bytes.peak, 256_KiB);
}

TEST(Rotation, OfLargeSizesAlwaysSharesThem) {
    Pool pool;
    for (int i = 0; i < 500; ++i) rotate(pool, 1_MiB, 5);
    EXPECT_LE(pool.stats().held_bytes.peak, 17_MiB);
}

TEST(Rotation, OfManySizesGrowsByNoMoreThanHalfAMegabyte) {
    Pool pool;
    for (std::size_t i = 0; i < 100'000; ++i) {
        const std::size_t bytes = 1 + i * 2'654'435'761U % (256_KiB);
        const Buffer buffer = pool.acquire(bytes);
        ASSERT_GE(buffer.capacity(), bytes);
    }
    EXPECT_LE(pool.stats().held_bytes.peak, 768_KiB);
}

TEST(Rotation, GrowsWithinItsLimit) {
    Pool pool(Memory::host(), {.max_bytes = 300_KiB});
    for (int i = 0; i < 500; ++i) rotate(pool, 4_KiB, 7);
    EXPECT_LE(pool.stats().held_bytes.peak, 300_KiB);
    EXPECT_EQ(pool.stats().failures, 0u);
}

TEST(Rotation, BeginsAnewAfterTrim) {
    Pool pool;
    for (int round = 0; round < 4; ++round) {
        for (int i = 0; i < 800; ++i) rotate(pool, 4_KiB, 7);
        EXPECT_EQ(rotate(pool, 4_KiB, 7).size(), 7u) << round;
        pool.trim();
    }
}

}  // namespace
}  // namespace cistern::test
