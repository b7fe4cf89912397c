// Options that make no sense are refused with the value in the text; those that do are kept.

#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "contract/contract.hpp"
#include "support/text.hpp"

namespace cistern::test {

namespace {

using std::chrono::milliseconds;

std::string refusal(const PoolOptions& options) {
    return text_of<InvalidArgument>([&] { Pool(Memory::host(), options); });
}

}  // namespace

TEST(PoolOptions, RefuseAnAlignmentThatIsNoPowerOfTwo) {
    for (const std::size_t alignment :
         {std::size_t{0}, std::size_t{3}, std::size_t{48}, std::size_t{96}, 64_KiB + 1}) {
        const std::string text = refusal({.alignment = alignment});

        EXPECT_TRUE(mentions(text, "alignment")) << text;
        EXPECT_TRUE(mentions(text, std::to_string(alignment))) << text;
    }
}

TEST(PoolOptions, RefuseAnAlignmentAboveTwoMebibytes) {
    EXPECT_TRUE(mentions(refusal({.alignment = 4_MiB}), "alignment"));
    EXPECT_NO_THROW(Pool(Memory::host(), {.alignment = 2_MiB}));
}

TEST(PoolOptions, RefuseAWasteThatIsNoShare) {
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double waste : {-0.1, 1.5, infinity, -infinity, std::nan("")}) {
        const std::string text = refusal({.fit = BestFit{.max_waste = waste}});

        EXPECT_TRUE(mentions(text, "max_waste")) << text;
    }
    EXPECT_TRUE(mentions(refusal({.fit = BestFit{.max_waste = 1.5}}), "1.5"));
    EXPECT_NO_THROW(Pool(Memory::host(), {.fit = BestFit{.max_waste = 0}}));
    EXPECT_NO_THROW(Pool(Memory::host(), {.fit = BestFit{.max_waste = 1}}));
}

TEST(PoolOptions, RefuseToKeepMoreThanTheyMayHold) {
    const std::string text = refusal({.max_bytes = 64_KiB, .max_idle_bytes = 128_KiB});

    EXPECT_TRUE(mentions(text, "max_idle_bytes")) << text;
    EXPECT_TRUE(mentions(text, "max_bytes")) << text;
    EXPECT_TRUE(mentions_bytes(text, 128_KiB)) << text;
    EXPECT_TRUE(mentions_bytes(text, 64_KiB)) << text;
}

TEST(PoolOptions, MayKeepAllTheyHold) {
    EXPECT_NO_THROW(Pool(Memory::host(), {.max_bytes = 64_KiB, .max_idle_bytes = 64_KiB}));
    EXPECT_NO_THROW(Pool(Memory::host(), {.max_bytes = 64_KiB}));
    EXPECT_NO_THROW(Pool(Memory::host(), {.max_bytes = 64_KiB, .max_idle_bytes = no_limit}));
}

TEST(PoolOptions, RefuseFixedBlocksLargerThanALimit) {
    const std::string by_max_bytes = refusal({.fit = FixedBlock{128_KiB}, .max_bytes = 64_KiB});
    const std::string by_max_buffer_bytes =
        refusal({.fit = FixedBlock{128_KiB}, .max_buffer_bytes = 64_KiB});

    EXPECT_TRUE(mentions(by_max_bytes, "max_bytes")) << by_max_bytes;
    EXPECT_TRUE(mentions(by_max_buffer_bytes, "max_buffer_bytes")) << by_max_buffer_bytes;
    EXPECT_TRUE(mentions_bytes(by_max_bytes, 128_KiB)) << by_max_bytes;
}

TEST(PoolOptions, RefuseFixedBlocksThatCannotBeCounted) {
    EXPECT_THROW(Pool(Memory::host(), {.fit = FixedBlock{no_limit}}), InvalidArgument);
}

TEST(PoolOptions, RefuseANegativeAge) {
    const std::string text = refusal({.max_idle_age = milliseconds(-5)});

    EXPECT_TRUE(mentions(text, "max_idle_age")) << text;
    EXPECT_TRUE(mentions(text, "-5")) << text;
}

TEST(PoolOptions, RefuseAnEvictionOrderThatDoesNotExist) {
    EXPECT_THROW(Pool(Memory::host(), {.evict = static_cast<Evict>(17)}), InvalidArgument);
}

TEST(PoolOptions, AreKeptAsGiven) {
    const Pool pool{Memory::simulated(),
                    {.name = "kept",
                     .fit = BestFit{.max_waste = 0.125},
                     .alignment = 4_KiB,
                     .max_bytes = 9_MiB,
                     .max_idle_bytes = 8_MiB,
                     .max_idle_buffers = 7,
                     .max_buffer_bytes = 6_MiB,
                     .max_idle_age = milliseconds(5000),
                     .evict = Evict::largest,
                     .separate_types = true,
                     .wipe_on_release = true}};

    const PoolOptions options = pool.options();

    EXPECT_EQ(options.name, "kept");
    EXPECT_EQ(std::get<BestFit>(options.fit).max_waste, 0.125);
    EXPECT_EQ(options.alignment, 4_KiB);
    EXPECT_EQ(options.max_bytes, 9_MiB);
    EXPECT_EQ(options.max_idle_bytes, 8_MiB);
    EXPECT_EQ(options.max_idle_buffers, 7u);
    EXPECT_EQ(options.max_buffer_bytes, 6_MiB);
    EXPECT_EQ(options.max_idle_age, milliseconds(5000));
    EXPECT_EQ(options.evict, Evict::largest);
    EXPECT_TRUE(options.separate_types);
    EXPECT_TRUE(options.wipe_on_release);
}

TEST(PoolOptions, ShowTheLimitsNowInForce) {
    Pool pool{Memory::simulated(), {.name = "kept", .evict = Evict::smallest}};

    pool.set_limits({.max_bytes = 5_MiB,
                     .max_idle_bytes = 4_MiB,
                     .max_idle_buffers = 3,
                     .max_buffer_bytes = 2_MiB,
                     .max_idle_age = milliseconds(1000)});

    const PoolOptions options = pool.options();
    EXPECT_EQ(options.name, "kept");
    EXPECT_EQ(options.evict, Evict::smallest);
    EXPECT_EQ(options.max_bytes, 5_MiB);
    EXPECT_EQ(options.max_idle_bytes, 4_MiB);
    EXPECT_EQ(options.max_idle_buffers, 3u);
    EXPECT_EQ(options.max_buffer_bytes, 2_MiB);
    EXPECT_EQ(options.max_idle_age, milliseconds(1000));
}

TEST(FixedBlockPool, RefusesLimitsBelowItsBlocks) {
    Pool pool{Memory::simulated(), {.fit = FixedBlock{64_KiB}}};

    EXPECT_THROW(pool.set_limits({.max_bytes = 32_KiB}), InvalidArgument);
    EXPECT_THROW(pool.set_limits({.max_buffer_bytes = 32_KiB}), InvalidArgument);

    EXPECT_EQ(pool.options().max_bytes, no_limit);
    EXPECT_NO_THROW((void)pool.acquire(64_KiB));
}

TEST(PoolHandle, SharesOnePoolAmongCopies) {
    Pool pool{Memory::simulated()};
    const Pool copy = pool;

    const Buffer buffer = pool.acquire(64_KiB);

    EXPECT_EQ(copy, pool);
    EXPECT_EQ(copy.stats().lent_bytes.now, 64_KiB);
    EXPECT_NE(copy, Pool{Memory::simulated()});
}

TEST(PoolHandle, StaysUsableWhenMovedFrom) {
    std::optional<Pool> pool = Pool{Memory::simulated()};
    Pool original = *pool;
    pool.reset();

    { const Pool taken = std::move(original); }

    // A handle that was moved from still names its pool: a container may use its allocator again.
    EXPECT_NO_THROW((void)original.acquire(64_KiB));  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(original.stats().acquires, 1u);
}

TEST(PoolHandle, MayBeAssigned) {
    const Pool first{Memory::simulated()};
    Pool second{Memory::simulated()};
    const Buffer of_second = second.acquire(64_KiB);

    second = first;

    EXPECT_EQ(second, first);
    EXPECT_EQ(of_second.size(), 64_KiB);
    EXPECT_EQ(second.stats().lent_bytes.now, 0u);
}

TEST(PoolHandle, KnowsItsMemory) {
    const Memory memory = Memory::simulated();

    EXPECT_EQ(Pool{memory}.memory(), memory);
    EXPECT_EQ(Pool{}.memory().kind(), MemoryKind::host);
}

TEST(DefaultPool, IsOneForTheProcess) {
    EXPECT_EQ(&default_pool(), &default_pool());
    EXPECT_EQ(default_pool(), default_pool(MemoryKind::host));
    EXPECT_EQ(default_pool().memory().kind(), MemoryKind::host);
    EXPECT_NO_THROW((void)default_pool().acquire(64_KiB));
}

TEST(DefaultPool, OfAKindThatDoesNotExistHereIsUnavailable) {
    if (cuda_available()) GTEST_SKIP() << "they exist here";
    for (const MemoryKind kind : {MemoryKind::pinned, MemoryKind::device, MemoryKind::managed}) {
        EXPECT_THROW((void)default_pool(kind), Unavailable);
    }
}

TEST(Pools, OnOneMemoryKeepTheirBytesApart) {
    const Memory memory = Memory::host();
    Pool a{memory, {.name = "a"}}, b{memory, {.name = "b"}};
    { const Buffer idle = a.acquire(64_KiB); }

    const Buffer fresh = b.acquire(64_KiB);

    EXPECT_EQ(b.stats().misses, 1u);
    EXPECT_EQ(a.stats().idle_bytes.now, 64_KiB);
}

}  // namespace cistern::test
