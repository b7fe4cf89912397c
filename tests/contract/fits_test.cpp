// What tells the fits apart: which idle bytes may serve which request.

#include <cstddef>
#include <memory>
#include <set>
#include <vector>

#include "contract/contract.hpp"
#include "support/text.hpp"

namespace cistern::test {

namespace {

Pool with(Fit fit, Memory memory = Memory::simulated()) {
    return Pool{std::move(memory), {.fit = fit, .max_idle_bytes = no_limit}};
}

void leave_idle(Pool& pool, const std::vector<std::size_t>& sizes) {
    std::vector<Buffer> lent;
    for (const std::size_t bytes : sizes) lent.push_back(pool.acquire(bytes));
}

/// Elastic where it can split: on memories that back parts of a range.
class ElasticPool : public testing::TestWithParam<MemoryCase> {
protected:
    Pool make_pool(PoolOptions options = {}) { return Pool{GetParam().make().memory, options}; }
};

}  // namespace

TEST_P(ElasticPool, SplitsAnIdleHoleAndKeepsTheRest) {
    Pool pool = make_pool();
    { const Buffer hole = pool.acquire(48_KiB); }

    const Buffer part = pool.acquire(32_KiB);

    EXPECT_EQ(pool.stats().hits, 1u);
    EXPECT_EQ(pool.stats().lent_bytes.now, 32_KiB);
    EXPECT_EQ(pool.stats().idle_bytes.now, 16_KiB);
    EXPECT_EQ(pool.stats().held_bytes, (Gauge{48_KiB, 48_KiB}));
}

TEST_P(ElasticPool, JoinsNeighboursThatAreIdle) {
    Pool pool = make_pool();
    { const Buffer a = pool.acquire(64_KiB), b = pool.acquire(64_KiB), c = pool.acquire(64_KiB); }

    const Buffer all = pool.acquire(192_KiB);

    EXPECT_EQ(pool.stats().hits, 1u);
    EXPECT_EQ(pool.stats().held_bytes, (Gauge{192_KiB, 192_KiB}));
    EXPECT_EQ(pool.stats().idle_bytes.now, 0u);
}

TEST_P(ElasticPool, ServesSmallRequestsFromALargeHole) {
    Pool pool = make_pool();
    { const Buffer large = pool.acquire(4_MiB); }
    const Gauge held = pool.stats().held_bytes;
    std::vector<Buffer> lent;

    for (int i = 0; i < 64; ++i) lent.push_back(pool.acquire(64_KiB));

    EXPECT_EQ(pool.stats().hits, 64u);
    EXPECT_EQ(pool.stats().held_bytes, held);
    EXPECT_GE(held.now, 4_MiB);
    EXPECT_LE(held.now, 4_MiB + 4_KiB);
}

TEST(LargeArrays, BeginAtDifferentPlacesInTheirPages) {
    constexpr std::size_t page = 4_KiB;
    const auto places = [](Pool pool) {
        std::set<std::uintptr_t> seen;
        std::vector<Buffer> lent;
        for (int i = 0; i < 16; ++i) {
            lent.push_back(pool.acquire(2_MiB));
            seen.insert(reinterpret_cast<std::uintptr_t>(lent.back().data()) % page);
        }
        return seen.size();
    };

    EXPECT_GE(places(Pool{}), 12u);
    // Where bytes are counted or alignment is asked for, a block has what was asked and no more.
    EXPECT_EQ(places(Pool{Memory::host(), {.max_bytes = 32_MiB, .max_idle_bytes = 32_MiB}}), 1u);
    EXPECT_EQ(places(Pool{Memory::host(), {.alignment = page}}), 1u);
}

TEST(LargeArrays, HaveWhatWasAskedOnceALimitCountsBytes) {
    Pool pool;
    pool.set_limits({.max_bytes = 4_MiB, .max_idle_bytes = 4_MiB});
    EXPECT_NO_THROW((void)pool.acquire(4_MiB));
    pool.trim();
    pool.set_limits({.max_buffer_bytes = 1_MiB});
    pool.acquire(1_MiB).release();
    EXPECT_EQ(pool.stats().evictions, 0u);
    EXPECT_EQ(pool.stats().idle_bytes.now, 1_MiB);
}

TEST(LargeArrays, AreServedFromAdoptedBytesOfTheirSize) {
    const auto bytes = std::make_unique<std::byte[]>(2_MiB);
    void* begin = bytes.get();
    std::size_t room = 2_MiB;
    ASSERT_NE(std::align(64, 1_MiB, begin, room), nullptr);
    Pool pool;
    pool.adopt(begin, 1_MiB, [](void*) {});
    EXPECT_EQ(pool.acquire(1_MiB).data(), begin);
    EXPECT_EQ(pool.stats().hits, 1u);
}

TEST(LargeArrays, OfAVectorCanBeGivenToAPoolOfTheirSize) {
    Pool pool, fixed{Memory::host(), {.fit = FixedBlock{1_MiB}}};
    give_to(fixed, pool.vector<char>(1_MiB));
    EXPECT_EQ(fixed.acquire(1_MiB).size(), 1_MiB);
    EXPECT_EQ(fixed.stats().hits, 1u);
}

TEST_P(ElasticPool, MovesPagesOfIdleHolesInsteadOfAskingForNewOnes) {
    Pool pool = make_pool();
    std::vector<Buffer> lent;
    for (int i = 0; i < 8; ++i) lent.push_back(pool.acquire(8_MiB));
    for (std::size_t i = 0; i < lent.size(); i += 2) lent[i].release();

    const Buffer large = pool.acquire(24_MiB);

    EXPECT_GT(pool.stats().moves, 0u);
    EXPECT_GE(pool.stats().moved_bytes, 16_MiB);
    EXPECT_LE(pool.stats().held_bytes.peak, 72_MiB);
    EXPECT_EQ(contradictions(pool.stats()), "");
}

TEST_P(ElasticPool, KeepsAtMostMaxIdleBuffersWhenPagesMove) {
    for (const std::size_t bytes : {1_MiB, 5_MiB, 40_MiB}) {
        Pool pool = make_pool({.max_idle_buffers = 1});
        const Buffer before = pool.acquire(64);
        Buffer hole = pool.acquire(bytes + 128);  // its ends share pages with its neighbours
        const Buffer after = pool.acquire(64);
        hole.release();

        const Buffer larger = pool.acquire(2 * bytes);

        EXPECT_LE(pool.stats().idle_buffers.now, 1u);
    }
}

TEST_P(ElasticPool, HoldsLittleMoreThanIsLentWhileSizesGrow) {
    Pool pool = make_pool();
    std::size_t largest = 0;

    for (std::size_t bytes = 1_MiB; bytes < 40_MiB; bytes += 300_KiB) {
        largest = std::max(largest, pool.acquire(bytes).capacity());
    }

    EXPECT_LE(pool.stats().held_bytes.peak, largest + 4_MiB);
}

TEST_P(ElasticPool, KeepsTheContentsOfLentBuffersWhilePagesMove) {
    const Memory memory = GetParam().make().memory;
    if (!memory.host_accessible()) GTEST_SKIP() << "this memory has addresses and no bytes";
    Pool pool{memory};
    std::vector<Buffer> lent;
    for (std::size_t i = 0; i < 12; ++i) {
        lent.push_back(pool.acquire(4_MiB + i * 4_KiB));
        write_marks(lent[i].data(), lent[i].size(), i);
    }
    for (std::size_t i = 0; i < lent.size(); i += 2) lent[i].release();

    const Buffer large = pool.acquire_zeroed(20_MiB);

    EXPECT_TRUE(all_zero(large.data(), large.size()));
    write_pattern(large.data(), large.size(), 99);
    for (std::size_t i = 1; i < lent.size(); i += 2) {
        EXPECT_TRUE(has_marks(lent[i].data(), lent[i].size(), i)) << i;
    }
    EXPECT_TRUE(has_pattern(large.data(), large.size(), 99));
}

// What was left over of pages that were moved once passed for fresh, and so for zero.
TEST_P(ElasticPool, LendsZeroesBesidePagesThatMoved) {
    const Memory memory = GetParam().make().memory;
    if (!memory.host_accessible()) GTEST_SKIP() << "this memory has addresses and no bytes";
    Pool pool{memory};
    std::vector<Buffer> lent;
    for (std::size_t i = 0; i < 4; ++i) {
        lent.push_back(pool.acquire(2_MiB));
        write_pattern(lent[i].data(), lent[i].size(), i);
    }
    lent[0].release();
    lent[2].release();
    const Buffer over_two_holes = pool.acquire(3_MiB);

    const Buffer zeroes = pool.acquire_zeroed(2_MiB);

    EXPECT_TRUE(all_zero(zeroes.data(), zeroes.size()));
}

// Growing carries pages where the memory can; whatever it does, the bytes stay.
TEST_P(ElasticPool, GrowsInPlaceOrElsewhereAndKeepsTheBytes) {
    const Memory memory = GetParam().make().memory;
    Pool pool{memory};
    for (const std::size_t begin : {std::size_t{100}, 5_KiB, 300_KiB, 5_MiB}) {
        Buffer small = pool.acquire(200);  // so that nothing is aligned to pages
        Buffer growing = pool.acquire(begin);
        Buffer beside;
        const bool has_bytes = memory.host_accessible();
        if (has_bytes) write_marks(growing.data(), growing.size(), begin);
        std::size_t marked = begin;
        for (int i = 0; i < 12; ++i) {
            const std::size_t bytes = growing.size() + growing.size() / 3 + 1;
            if (i % 2 == 1) beside = pool.acquire(begin);  // often in the way
            pool.grow(growing, bytes);
            ASSERT_EQ(growing.size(), bytes);
            if (has_bytes) {
                ASSERT_TRUE(has_marks(growing.data(), marked, begin)) << bytes;
                write_marks(growing.data(), bytes, begin);
                marked = bytes;
            }
            ASSERT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
        }
        EXPECT_EQ(pool.stats().lent_buffers.now, 3u);
    }
    EXPECT_GE(pool.stats().grows, 48u);
    EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
    pool.trim();
    EXPECT_EQ(pool.stats().held_bytes.now, 0u);
}

INSTANTIATE_TEST_SUITE_P(On, ElasticPool,
                         testing::Values(all_memories()[0], all_memories()[1], all_memories()[4]),
                         [](const auto& c) { return std::string(c.param.name); });

TEST(ExactFitPool, ServesOnlyBlocksOfTheSameSize) {
    Pool pool = with(ExactFit{});
    leave_idle(pool, {64_KiB});

    EXPECT_FALSE(hits(pool, 64_KiB - 64));
    EXPECT_FALSE(hits(pool, 64_KiB + 64));
    EXPECT_TRUE(hits(pool, 64_KiB));
}

TEST(ExactFitPool, WastesNothing) {
    Pool pool = with(ExactFit{});

    const Buffer odd = pool.acquire(1000);

    EXPECT_EQ(odd.capacity(), 1000u);
    EXPECT_EQ(pool.stats().waste_bytes.now, 0u);
}

TEST_P(WholeBlocksOfAnySizeContract, NeverBreaksAnIdleBlockUpForALargerRequest) {
    Pool pool = make_pool();
    { const Buffer idle = pool.acquire(64_KiB); }

    { const Buffer larger = pool.acquire(128_KiB); }

    EXPECT_EQ(pool.stats().held_bytes.now, 192_KiB);
    EXPECT_EQ(pool.stats().idle_bytes.now, 192_KiB);
    EXPECT_EQ(pool.stats().idle_buffers.now, 2u);
    EXPECT_TRUE(hits(pool, 64_KiB));
    EXPECT_TRUE(hits(pool, 128_KiB));
}

TEST(BestFitPool, TakesTheSmallestBlockThatFits) {
    Pool pool = with(BestFit{.max_waste = 1.0});
    leave_idle(pool, {256_KiB, 64_KiB, 128_KiB});

    EXPECT_EQ(pool.acquire(100_KiB).capacity(), 128_KiB);
    EXPECT_EQ(pool.acquire(64).capacity(), 64_KiB);
    EXPECT_EQ(pool.acquire(129_KiB).capacity(), 256_KiB);
    EXPECT_EQ(pool.stats().hits, 3u);
}

TEST(BestFitPool, AllowsTheWasteItsOptionsSayAndNoMore) {
    Pool pool = with(BestFit{.max_waste = 0.25});
    leave_idle(pool, {64_KiB});

    EXPECT_TRUE(hits(pool, 48_KiB));
    EXPECT_FALSE(hits(pool, 48_KiB - 64));
}

TEST(BestFitPool, WithNoWasteIsExact) {
    Pool pool = with(BestFit{.max_waste = 0.0});
    leave_idle(pool, {64_KiB});

    EXPECT_FALSE(hits(pool, 64_KiB - 64));
    EXPECT_TRUE(hits(pool, 64_KiB));
}

TEST(BestFitPool, WithAnyWasteLendsALargeBlockForAFewBytes) {
    Pool pool = with(BestFit{.max_waste = 1.0});
    leave_idle(pool, {1_MiB});

    const Buffer few = pool.acquire(8);

    EXPECT_EQ(few.capacity(), 1_MiB);
    EXPECT_EQ(few.size(), 8u);
    EXPECT_EQ(pool.stats().waste_bytes.now, 1_MiB - 8);
}

TEST(BestFitPool, NeverServesFromABlockThatIsTooSmall) {
    Pool pool = with(BestFit{.max_waste = 1.0});
    leave_idle(pool, {64_KiB, 64_KiB, 64_KiB});

    EXPECT_FALSE(hits(pool, 64_KiB + 1));
}

TEST(FixedBlockPool, EveryBlockHasItsSize) {
    Pool pool = with(FixedBlock{64_KiB});

    const Buffer few = pool.acquire(1), all = pool.acquire(64_KiB);

    EXPECT_EQ(few.capacity(), 64_KiB);
    EXPECT_EQ(all.capacity(), 64_KiB);
    EXPECT_EQ(pool.stats().waste_bytes.now, 64_KiB - 1);
}

TEST(FixedBlockPool, AnyBlockServesAnyRequest) {
    Pool pool = with(FixedBlock{64_KiB});
    leave_idle(pool, {1, 64_KiB, 777});

    leave_idle(pool, {64_KiB, 5, 64_KiB});

    EXPECT_EQ(pool.stats().hits, 3u);
    EXPECT_EQ(pool.stats().misses, 3u);
}

TEST(FixedBlockPool, RefusesLargerRequests) {
    Pool pool = with(FixedBlock{64_KiB});

    const std::string text = text_of<InvalidArgument>([&] { (void)pool.acquire(64_KiB + 1); });

    EXPECT_TRUE(mentions_bytes(text, 64_KiB + 1)) << text;
    EXPECT_TRUE(mentions_bytes(text, 64_KiB)) << text;
    EXPECT_THROW((void)pool.try_acquire(64_KiB + 1), InvalidArgument);
    EXPECT_THROW((void)pool.acquire(no_limit), InvalidArgument);
    EXPECT_THROW((void)pool.zeros<double>(100, 100), InvalidArgument);
    EXPECT_EQ(pool.stats(), PoolStats{});
}

TEST(FixedBlockPool, HasBlocksOfAnySize) {
    Pool pool = with(FixedBlock{1000});

    EXPECT_EQ(pool.acquire(1000).size(), 1000u);
    EXPECT_THROW((void)pool.acquire(1001), InvalidArgument);
    EXPECT_TRUE(hits(pool, 1));
}

TEST(FixedBlockPool, OfZeroBytesLendsNothing) {
    Pool pool = with(FixedBlock{0});

    EXPECT_TRUE(pool.acquire(0).empty());
    EXPECT_THROW((void)pool.acquire(1), InvalidArgument);
    EXPECT_EQ(pool.stats(), PoolStats{});
}

TEST(FixedBlockPool, FreshBlocksAreZero) {
    Pool pool = with(FixedBlock{64_KiB}, Memory::host());

    const Buffer fresh = pool.acquire(64_KiB);

    EXPECT_TRUE(all_zero(fresh.data(), fresh.size()));
}

}  // namespace cistern::test
