// What a growth asks of the driver: how much it maps, in how many pieces, and what it gives back for that.

#include <latch>

#include "gpu.hpp"

namespace cistern::test {
namespace {

using Growth = Gpu;
using GrowthCalls = StandIn;

TEST_F(Growth, OfAFewBytesMapsFewAndLeavesALargeHoleWhole) {
    Pool pool{Memory::device()};
    pool.acquire(256_MiB).release();

    const Buffer small = pool.acquire(4_KiB);  // small ones lie apart

    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.moves, 0u);
    EXPECT_LE(stats.held_bytes.peak, 264_MiB);
    EXPECT_EQ(pool.acquire(256_MiB).size(), 256_MiB);
    EXPECT_EQ(pool.stats().misses, 2u);
}

TEST_F(Growth, KeepsTheHoleThatItExtends) {
    Pool pool{Memory::device()};
    pool.acquire(64_MiB).release();

    const Buffer larger = pool.acquire(96_MiB);

    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.moves, 0u);
    EXPECT_EQ(stats.held_bytes.now, 96_MiB);
}

TEST_F(Growth, GivesBackAsMuchAsItMaps) {
    Pool pool{Memory::device()};
    Buffer first = pool.acquire(64_MiB);
    const Buffer between = pool.acquire(2_MiB);
    Buffer last = pool.acquire(32_MiB);
    first.release();
    last.release();

    const Buffer larger = pool.acquire(80_MiB);  // where the last one was, and 48 MiB more

    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.moves, 1u);
    EXPECT_EQ(stats.held_bytes.now, 98_MiB);
    EXPECT_EQ(stats.held_bytes.peak, 98_MiB);
}

TEST_F(Growth, GivesBackAHoleThatItDoesNotReach) {
    Pool pool{Memory::device()};
    const Buffer first = pool.acquire(64_MiB);
    Buffer gap = pool.acquire(200_MiB), after_it = pool.acquire(90_MiB);
    const Buffer last = pool.acquire(2_MiB);
    gap.release();
    const Buffer larger = pool.acquire(220_MiB);  // its bytes were the gap's
    ASSERT_EQ(pool.stats().held_bytes.now, 376_MiB);
    after_it.release();

    const Buffer in_the_gap = pool.acquire(100_MiB);

    EXPECT_LE(pool.stats().held_bytes.now, 386_MiB);
}

TEST_F(Growth, IsWhereItsSegmentsWereMeantToGo) {
    Pool pool{Memory::device()};
    Buffer by_a_gap = pool.acquire(62_MiB), gap = pool.acquire(2_MiB);
    Buffer after_gap = pool.acquire(52_MiB);
    std::vector<Buffer> largest, between;
    between.push_back(pool.acquire(2_MiB));
    gap.release();
    pool.trim(0);
    for (int i = 0; i < 7; ++i) {
        largest.push_back(pool.acquire(66_MiB));
        between.push_back(pool.acquire(8_MiB));
    }
    Buffer last = pool.acquire(100_MiB);  // beside free addresses
    for (Buffer* each : {&by_a_gap, &after_gap, &last}) each->release();
    largest
        .clear();  // one of them gives segments, and is then smaller than the hole before the gap
    const std::uint64_t held = pool.stats().held_bytes.now;

    const Buffer larger = pool.acquire(104_MiB);

    EXPECT_EQ(pool.stats().held_bytes.now, held);
}

/// The shortest of three growths of a pool that has many holes of 2 KiB, and some of 4 MiB. Each takes what lies
/// idle, if that is enough.
std::chrono::nanoseconds growth_beside_small_holes(const Memory& memory, std::size_t large_holes,
                                                   std::size_t small_holes) {
    Pool pool{memory};
    std::vector<Buffer> small(2 * small_holes), large(2 * large_holes);
    for (Buffer& each : small) each = pool.acquire(2_KiB);
    for (Buffer& each : large) each = pool.acquire(4_MiB);
    for (std::size_t i = 0; i < small.size(); i += 2) small[i].release();
    for (std::size_t i = 0; i < large.size(); i += 2) large[i].release();
    pool.trim(SIZE_MAX - 1);  // magazines, too
    std::vector<Buffer> larger(3);
    std::chrono::nanoseconds shortest = std::chrono::hours(1);
    for (std::size_t i = 0; i < larger.size(); ++i) {
        const auto begin = std::chrono::steady_clock::now();
        larger[i] = pool.acquire((48 + 2 * i) * 1_MiB);
        shortest =
            std::min<std::chrono::nanoseconds>(shortest, std::chrono::steady_clock::now() - begin);
    }
    if (large_holes != 0) {
        EXPECT_GE(pool.stats().moves, memory.kind() == MemoryKind::device ? 3u : 1u);
    }
    return shortest;
}

TEST_F(GrowthCalls, TakesNoLongerBesideManySmallHoles) {
    for (const Memory& memory : {Memory::device(), Memory::managed()}) {
        for (const std::size_t large_holes : {50U, 0U}) {
            const auto few = growth_beside_small_holes(memory, large_holes, 6000);
            const auto many = growth_beside_small_holes(memory, large_holes, 120000);
            EXPECT_LT(many, 5 * few) << memory.name() << ", " << large_holes << " holes of 4 MiB";
        }
    }
}

/// Two threads of a stream, one of which releases two blocks side by side.
void expect_joined_for_the_other_thread(std::size_t kept_before) {
    Pool pool{Memory::device()};
    std::latch kept{1}, acquired{1}, released{1}, measured{1};
    Buffer first, second;
    std::thread other([&] {
        for (int i = 0; i < 12; ++i) {  // until it may keep so much
            std::vector<Buffer> small(kept_before / 32_KiB);
            for (Buffer& each : small) each = pool.acquire(32_KiB);
        }
        kept.count_down();
        acquired.wait();
        first.release();
        second.release();
        released.count_down();
        measured.wait();  // else they would be everybody's
    });
    kept.wait();
    pool.acquire(2_MiB).release();
    pool.trim(0);
    first = pool.acquire(8_MiB);
    second = pool.acquire(8_MiB);
    const Buffer after_them = pool.acquire(2_MiB);
    Buffer larger = pool.acquire(20_MiB);
    const Buffer after_larger = pool.acquire(2_MiB);
    const PoolStats before = pool.stats();
    acquired.count_down();
    released.wait();
    larger.release();

    const Buffer kept_long = pool.acquire(8_MiB);
    const Buffer as_large = pool.acquire(20_MiB);

    EXPECT_EQ(pool.stats().held_bytes.now, before.held_bytes.now);
    EXPECT_EQ(pool.stats().moves, before.moves);
    measured.count_down();
    other.join();
}

TEST_F(Growth, IsNotForWhatAnotherThreadKeepsSideBySide) { expect_joined_for_the_other_thread(0); }
TEST_F(Growth, IsNotForWhatAnotherThreadKeepsIfItKeptMuchBefore) {
    expect_joined_for_the_other_thread(24_MiB);
}

TEST_F(Growth, OfAFewPinnedBytesKeepsWhatIsRegistered) {
    Pool pool{Memory::pinned()};
    pool.acquire(64_MiB).release();

    const Buffer small = pool.acquire(4_KiB);

    EXPECT_EQ(pool.stats().moves, 0u);
    EXPECT_GE(pool.stats().idle_bytes.now, 64_MiB);
}

TEST_F(Growth, BeyondTheLimitGivesNothingBack) {
    Pool pool{Memory::device(), {.max_bytes = 300_MiB}};
    Buffer first = pool.acquire(128_MiB);
    const Buffer between = pool.acquire(2_MiB);
    first.release();

    EXPECT_TRUE(pool.try_acquire(299_MiB).empty());

    EXPECT_EQ(pool.stats().idle_bytes.now, 128_MiB);
}

TEST_F(Growth, GoesBackByWholeSegmentsAndNoMore) {
    Pool pool{Memory::device()};
    pool.acquire(192_MiB).release();

    EXPECT_EQ(pool.trim(186_MiB), 32_MiB);
    EXPECT_EQ(pool.stats().held_bytes.now, 160_MiB);
}

TEST_F(Growth, IntoWhatIsMappedAlreadyGivesNothingBack) {
    Pool pool{Memory::device(), {.max_idle_buffers = 8}};  // so that no growth leaves idle bytes
    const Buffer large = pool.acquire(256_MiB);
    const Buffer small = pool.acquire(4_KiB);  // leaves the rest of a page, mapped
    pool.acquire(10_MiB).release();

    const Buffer next = pool.acquire(4_KiB);

    EXPECT_EQ(pool.stats().moves, 0u);
    EXPECT_EQ(pool.stats().idle_bytes.now, 10_MiB);
}

TEST_F(GrowthCalls, KeepsTheLimitThatOthersReachMeanwhile) {
    for (const Fit& fit : {Fit{Elastic{}}, Fit{ExactFit{}}}) {
        struct Other {
            Pool pool;
            Buffer got{};
            bool began = false;
        } other{Pool{Memory::device(), {.fit = fit, .max_bytes = 48_MiB}}};
        driver.control->set_hook(
            [](void* data, const char* function) {
                auto& one = *static_cast<Other*>(data);
                if (std::string(function) != "cuMemAddressReserve" || one.began) return;
                one.began = true;
                one.got = one.pool.try_acquire(40_MiB);
            },
            &other);

        const Buffer buffer = other.pool.try_acquire(20_MiB);

        driver.control->set_hook(nullptr, nullptr);
        EXPECT_FALSE(other.got.empty());
        EXPECT_TRUE(buffer.empty());
        EXPECT_LE(other.pool.stats().held_bytes.peak, 48_MiB);
    }
}

TEST_F(GrowthCalls, OfASmallPoolMapsHandlesThatCanGoOneByOne) {
    Pool pool{Memory::device()};
    const auto before = calls("cuMemCreate");

    const Buffer buffer = pool.acquire(12_MiB);

    EXPECT_EQ(calls("cuMemCreate") - before, 6u);
}

}  // namespace
}  // namespace cistern::test
