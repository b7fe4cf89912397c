// Typed best fit with a retention cap: one test per row of what such a pool does, and what Cistern
// does instead.

#include <gtest/gtest.h>

#include <complex>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "cistern/presets.hpp"
#include "cistern/vector.hpp"
#include "support/literals.hpp"

namespace cistern::test {

namespace {

Pool typed(std::size_t cap = 100_MiB) {
    PoolOptions options = presets::typed_best_fit();
    options.max_idle_bytes = cap;
    return Pool(Memory::host(), options);
}

template <class T>
void leave_idle(Pool& pool, std::initializer_list<std::size_t> counts) {
    std::vector<Array<T, 1>> arrays;
    for (const std::size_t count : counts) arrays.push_back(pool.array<T>(count));
}

}  // namespace

TEST(Typed, KeepsEveryElementTypeApart) {
    Pool pool = typed();
    leave_idle<double>(pool, {1000});
    leave_idle<std::complex<float>>(pool, {1000});
    EXPECT_EQ(pool.stats().misses, 2u);
    leave_idle<std::int64_t>(pool, {1000});
    EXPECT_EQ(pool.stats().misses, 3u);
    leave_idle<double>(pool, {1000});
    leave_idle<std::complex<float>>(pool, {900});
    EXPECT_EQ(pool.stats().hits, 2u);
}

TEST(Typed, TheSmallestCapacityThatIsEnoughServesTheLastOfEquals) {
    Pool pool = typed();
    leave_idle<float>(pool, {100, 300, 200, 200});
    EXPECT_EQ(pool.array<float>(150).buffer().capacity(), 800u);
    EXPECT_EQ(pool.array<float>(100).buffer().capacity(), 400u);
    EXPECT_EQ(pool.array<float>(201).buffer().capacity(), 1200u);

    auto a = pool.array<float>(200), b = pool.array<float>(200);
    void* const last = b.data();
    a = {};
    b = {};
    EXPECT_EQ(pool.array<float>(200).data(), last);
}

TEST(Typed, AMissGetsCapacityEqualToTheLength) {
    Pool pool = typed();
    EXPECT_EQ(pool.array<double>(123).buffer().capacity(), 123 * sizeof(double));
    EXPECT_EQ(pool.array<char>(7).buffer().capacity(), 7u);
}

TEST(Typed, ComesUninitialisedZeroedOrEmptyWithCapacity) {
    Pool pool = typed();
    {
        const auto array = pool.array<int>(1000);
        array.fill(7);
    }
    EXPECT_EQ(pool.array<int>(1000)(999), 7);
    const auto zeros = pool.zeros<int>(1000);
    for (const int value : zeros) ASSERT_EQ(value, 0);
    auto vector = pool.vector<int>(1000);
    EXPECT_EQ(vector.size(), 0u);
    EXPECT_EQ(vector.capacity(), 1000u);
    vector.push_back(3);
    EXPECT_EQ(vector[0], 3);
}

TEST(Typed, ZeroLengthTakesNothingAndItsReleaseIsIgnored) {
    Pool pool = typed();
    leave_idle<double>(pool, {10});
    {
        const auto none = pool.array<double>(0);
        EXPECT_TRUE(none.empty());
        EXPECT_EQ(pool.stats().idle_buffers.now, 1u);
    }
    EXPECT_EQ(pool.stats().idle_buffers.now, 1u);
    EXPECT_EQ(pool.stats().acquires, 1u);
}

TEST(Typed, MemoryFromOutsideMayBeGivenToIt) {
    Pool pool(Memory::host(), {.fit = BestFit{1.0}});
    void* const data = std::aligned_alloc(64, 640);
    int deleted = 0;
    pool.adopt(data, 640, [&deleted](void* bytes) {
        std::free(bytes);
        ++deleted;
    });
    EXPECT_EQ(pool.acquire(600).data(), data);
    EXPECT_EQ(deleted, 0);
    pool.trim();
    EXPECT_EQ(deleted, 1);
}

TEST(Typed, AVectorsBytesMayBeGivenToAnyPool) {
    Pool from, to(Memory::host(), {.fit = BestFit{1.0}});
    auto vector = from.vector<double>(80);
    vector.push_back(1.0);
    double* const data = vector.data();

    give_to(to, std::move(vector));

    EXPECT_TRUE(vector.empty());
    EXPECT_EQ(from.stats().lent_buffers.now, 1u) << "still lent, to the other pool";
    EXPECT_EQ(to.acquire(640).data(), static_cast<void*>(data));
    to.trim();
    EXPECT_EQ(from.stats().lent_buffers.now, 0u);
}

TEST(Typed, AVectorMayBeGivenToItsOwnPool) {
    Pool pool;
    Vector<double> vector = pool.vector<double>(80);

    give_to(pool, std::move(vector));

    EXPECT_TRUE(vector.empty());
    EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
}

TEST(Typed, AVectorThatAPoolCannotAdoptStaysAsItWas) {
    Pool from, fixed{Memory::host(), {.fit = FixedBlock{4096}}};
    Vector<double> vector = from.vector<double>(80);
    vector.push_back(1.5);

    EXPECT_THROW(give_to(fixed, std::move(vector)), InvalidArgument);

    ASSERT_EQ(vector.size(), 1u);
    EXPECT_EQ(vector[0], 1.5);
    EXPECT_GE(vector.capacity(), 80u);
    EXPECT_EQ(fixed.stats().held_bytes.now, 0u);
}

TEST(Typed, RetainedBytesNeverExceedTheCapAndExactlyTheCapIsKept) {
    Pool pool = typed(1000);
    leave_idle<char>(pool, {1000});
    EXPECT_EQ(pool.stats().idle_bytes.now, 1000u);
    leave_idle<char>(pool, {1001});
    EXPECT_EQ(pool.stats().idle_bytes.now, 1000u);
    EXPECT_EQ(pool.stats().idle_bytes.peak, 1000u);
}

TEST(Typed, ACapOfZeroKeepsNothingAndNoLimitKeepsAll) {
    Pool none = typed(0), all = typed(no_limit);
    leave_idle<char>(none, {1, 1000});
    leave_idle<char>(all, {1, 1000, 1'000'000});
    EXPECT_EQ(none.stats().idle_bytes.now, 0u);
    EXPECT_EQ(all.stats().idle_bytes.now, 1'001'001u);
}

TEST(Typed, LoweringTheCapEvictsAtOnce) {
    Pool pool = typed();
    leave_idle<char>(pool, {100, 200, 300});
    pool.set_limits({.max_idle_bytes = 500});
    EXPECT_EQ(pool.stats().idle_bytes.now, 500u) << "the smallest goes first";
    pool.set_limits({.max_idle_bytes = 0});
    EXPECT_EQ(pool.stats().idle_bytes.now, 0u);
}

// Read once per process, so each value gets a process of its own.
TEST(TypedDeathTest, TheEnvironmentSetsTheDefaultCapAndNonsenseFallsBack) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto with = [](const char* text, std::size_t expected) {
        setenv("CISTERN_MAX_IDLE_BYTES", text, 1);
        std::_Exit(PoolOptions{}.max_idle_bytes == expected ? 0 : 1);
    };
    EXPECT_EXIT(with("12345", 12'345), testing::ExitedWithCode(0), "");
    for (const char* nonsense : {"", "-1", "12x", "99999999999999999999999"}) {
        EXPECT_EXIT(with(nonsense, process_memory_limit() / 2), testing::ExitedWithCode(0), "")
            << nonsense;
    }
}

TEST(Typed, ABufferThatCanNeverFitIsDroppedAlone) {
    Pool pool = typed(1000);
    leave_idle<char>(pool, {100, 200, 300});
    leave_idle<char>(pool, {5000});
    EXPECT_EQ(pool.stats().idle_bytes.now, 600u);
    EXPECT_EQ(pool.stats().idle_buffers.now, 3u);
}

TEST(Typed, SmallestFirstStaysAvailable) {
    Pool pool = typed(1000);
    leave_idle<char>(pool, {600, 300, 350});
    EXPECT_EQ(pool.stats().idle_bytes.now, 950u) << "the 300 went";
}

TEST(Typed, StatsShowWhatIsRetainedAndHowOftenItServed) {
    Pool pool = typed();
    leave_idle<double>(pool, {10, 20});
    leave_idle<double>(pool, {10});
    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.idle_buffers.now, 2u);
    EXPECT_EQ(stats.idle_bytes.now, 240u);
    EXPECT_EQ(stats.hits, 1u);
    EXPECT_EQ(stats.misses, 2u);
    pool.trim();
    EXPECT_EQ(pool.stats().idle_buffers.now, 0u);
    std::ostringstream text;
    text << pool;
    EXPECT_NE(text.str().find("max_idle_bytes 100 MiB"), std::string::npos) << text.str();
    EXPECT_NE(text.str().find("idle_buffers"), std::string::npos);
}

}  // namespace cistern::test
