// KeyedPool: one test per row of what a keyed pool of its kind does, and what Cistern does instead.

#include "cistern/keyed.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <latch>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "support/literals.hpp"
#include "support/patterns.hpp"
#include "support/sanitizers.hpp"

namespace cistern::test {

TEST(Keyed, ReturnsAnArrayOfTheRequestedShapeAndType) {
    KeyedPool pool;
    const ArrayView<double, 2> first = pool.get<double>("coeff", 10, 20);
    EXPECT_EQ(first.shape(), (std::array<std::size_t, 2>{10, 20}));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.data()) % 64, 0u);

    const ArrayView<float, 3> other = pool.get<float>("coeff", 2, 3, 4);

    EXPECT_EQ(other.shape(), (std::array<std::size_t, 3>{2, 3, 4}));
    EXPECT_EQ(static_cast<void*>(other.data()), static_cast<void*>(first.data()));
}

TEST(Keyed, CountsTheFirstRequestAsAMissOneThatFitsAsAHitOneThatDoesNotAsAGrow) {
    KeyedPool pool;
    (void)pool.get<double>("a", 10);
    (void)pool.get<double>("a", 5);
    (void)pool.get<double>("a", 10);
    (void)pool.get<double>("a", 11);
    (void)pool.get<double>("b", 1);

    EXPECT_EQ(pool.stats("a"), (KeyStats{.hits = 2, .misses = 1, .grows = 1}));
    EXPECT_EQ(pool.stats("b"), (KeyStats{.hits = 0, .misses = 1, .grows = 0}));
    EXPECT_EQ(pool.stats("never asked for"), KeyStats{});
    EXPECT_EQ(pool.keys(), (std::vector<std::string>{"a", "b"}));
    auto copy = pool.stats();
    copy["a"].hits = 99;
    EXPECT_EQ(pool.stats("a").hits, 2u);
}

TEST(Keyed, FitsIfTheBytesFitAndIsNeverLargerThanTheLargestRequest) {
    KeyedPool pool;
    (void)pool.get<double>("a", 4, 3);
    (void)pool.get<double>("a", 3, 4);
    EXPECT_EQ(pool.stats("a").hits, 1u);
    (void)pool.get<double>("a", 100, 1);
    (void)pool.get<double>("a", 1, 100);
    EXPECT_EQ(pool.stats("a").grows, 1u);
    EXPECT_EQ(pool.memory_bytes("a"), 100 * sizeof(double));
}

TEST(Keyed, EveryViewIsContiguous) {
    KeyedPool pool;
    (void)pool.get<double>("a", 100, 50);
    const auto small = pool.get<double>("a", 40, 20);
    EXPECT_EQ(&small(1, 0), small.data() + 20);
    EXPECT_EQ(&small(39, 19), small.data() + 799);
}

TEST(Keyed, RefusesANegativeExtentAndCountsNothing) {
    KeyedPool pool;
    EXPECT_THROW((void)pool.get<double>("a", -1), InvalidArgument);
    EXPECT_TRUE(pool.stats().empty());
    (void)pool.get<double>("a", 10);
    EXPECT_THROW((void)pool.get<double>("a", 3, -4), InvalidArgument);
    EXPECT_THROW((void)pool.get<double>("a", PTRDIFF_MAX, 4), InvalidArgument);
    EXPECT_EQ(pool.stats("a"), (KeyStats{.hits = 0, .misses = 1, .grows = 0}));
}

TEST(Keyed, AnIntIsOneDimensionalAndNoExtentIsZeroDimensional) {
    KeyedPool pool;
    EXPECT_EQ((pool.get<float>("a", 7).rank()), 1u);
    const ArrayView<std::complex<double>, 0> scalar = pool.get<std::complex<double>>("s");
    EXPECT_EQ(scalar.size(), 1u);
    scalar() = {1, 2};
    EXPECT_EQ(pool.get<std::complex<double>>("s")(), (std::complex<double>{1, 2}));
}

TEST(Keyed, EarlierArraysOfAKeyThatGrewStayValidWhileTheyAreHeld) {
    KeyedPool pool;
    const auto held = pool.get_shared<double>("a", 1000);
    held.fill(3.0);

    const auto grown = pool.get_shared<double>("a", 100'000);
    grown.fill(4.0);
    EXPECT_NE(grown.data(), held.data());
    pool.clear();

    for (const double value : held) ASSERT_EQ(value, 3.0);
    for (const double value : grown) ASSERT_EQ(value, 4.0);
    EXPECT_EQ(pool.memory_bytes(), 0u);
    EXPECT_EQ(pool.pool().stats().lent_buffers.now, 2u);
}

TEST(Keyed, ClearFreesBuffersAndCounters) {
    KeyedPool pool;
    (void)pool.get<double>("a", 1000);
    (void)pool.get<double>("b", 500);
    EXPECT_EQ(pool.memory_bytes(), 12'000u);
    EXPECT_EQ(pool.memory_bytes("b"), 4000u);
    EXPECT_EQ(pool.memory_bytes("c"), 0u);

    pool.clear();

    EXPECT_EQ(pool.memory_bytes(), 0u);
    EXPECT_TRUE(pool.stats().empty());
    EXPECT_EQ(pool.pool().stats().lent_buffers.now, 0u);
    (void)pool.get<double>("a", 10);
    EXPECT_EQ(pool.stats("a"), (KeyStats{.hits = 0, .misses = 1, .grows = 0}));
}

TEST(Keyed, ExplainNamesWhoAskedForWhatIsLent) {
    KeyedPool pool(Pool(Memory::host(), {.name = "cells"}), {.same_key = SameKey::own_buffer});
    (void)pool.get<double>("E_tilda_lm", 1000);
    (void)pool.get<double>("coeff", 2000);
    (void)pool.get<double>("nothing", 0);
    std::thread([&] { (void)pool.get<double>("coeff", 3000); }).join();

    const Explanation e = pool.explain();

    ASSERT_EQ(e.keys.size(), 3u);
    EXPECT_EQ(e.keys[0].key, "coeff");
    EXPECT_EQ(e.keys[0].lent_buffers, 2u);
    EXPECT_GE(e.keys[0].lent_bytes, 5000 * sizeof(double));
    EXPECT_EQ(e.keys[1].key, "E_tilda_lm");
    EXPECT_EQ(e.keys[2].lent_buffers, 0u);
    EXPECT_EQ(e.keys[0].lent_bytes + e.keys[1].lent_bytes, e.lent_bytes);
    EXPECT_EQ(e.lent_bytes, pool.pool().stats().lent_bytes.now);
    std::ostringstream printed;
    printed << e;
    EXPECT_NE(printed.str().find("  key 'coeff': 2 buffers, 40 KiB\n"), std::string::npos)
        << printed.str();
    EXPECT_NE(e.json().find("\"keys\":[{\"key\":\"coeff\",\"lent_buffers\":2,\"lent_bytes\":"),
              std::string::npos)
        << e.json();
    EXPECT_TRUE(pool.pool().explain().keys.empty()) << "the pool itself knows no keys";
}

namespace {

long page_faults() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

}  // namespace

TEST(Keyed, GrowingKeepsThePages) {
    if (under_asan || under_tsan) GTEST_SKIP() << "the tool's own memory faults too";
    KeyedPool pool(Pool(Memory::host({.huge_pages = false})));
    constexpr std::size_t before = 64_MiB, more = 6_MiB;
    const auto old = pool.get<std::byte>("a", before);
    write_pattern(old.data(), before, 1);
    write_pattern(pool.get<std::byte>("in the way", 1_MiB).data(), 1_MiB, 2);
    const long then = page_faults();

    const auto grown = pool.get<std::byte>("a", before + more);
    EXPECT_TRUE(has_pattern(grown.data(), before, 1));
    std::memset(grown.data(), 1, grown.size());

    const long new_pages = static_cast<long>(more / 4096);
    EXPECT_LE(page_faults() - then, new_pages + 16);
    EXPECT_EQ(pool.pool().stats().grows, 1u);
}

TEST(Keyed, ASecondThreadGetsAnErrorOrItsOwnBufferNeverSilentSharing) {
    KeyedPool strict, lenient(Pool{}, {.same_key = SameKey::own_buffer});
    const auto mine = lenient.get<double>("a", 100);
    (void)strict.get<double>("a", 100);

    std::thread([&] {
        EXPECT_THROW((void)strict.get<double>("a", 100), InvalidArgument);
        EXPECT_NO_THROW((void)strict.get<double>("b", 100));
        const auto other = lenient.get<double>("a", 100);
        EXPECT_NE(other.data(), mine.data());
        EXPECT_EQ(lenient.get<double>("a", 50).data(), other.data());
    }).join();

    EXPECT_EQ(strict.stats("a"), (KeyStats{.hits = 0, .misses = 1, .grows = 0}));
    EXPECT_EQ(lenient.stats("a"), (KeyStats{.hits = 1, .misses = 2, .grows = 0}));
    EXPECT_EQ(lenient.memory_bytes("a"), 1600u);
    EXPECT_NO_THROW((void)strict.get<double>("b", 100)) << "its thread has ended";
}

TEST(Keyed, ServesManyThreadsAtOnce) {
    KeyedPool pool(Pool{}, {.same_key = SameKey::own_buffer});
    std::vector<std::thread> threads;
    std::latch start(4);
    for (std::uint64_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            start.arrive_and_wait();
            for (std::uint64_t i = 0; i < 500; ++i) {
                const std::size_t bytes = 1 + scrambled(i + t) % 50'000;
                const auto array = pool.get<char>(i % 2 == 0 ? "even" : "odd", bytes);
                write_marks(array.data(), bytes, i + t);
                ASSERT_TRUE(has_marks(array.data(), bytes, i + t));
                if (i % 100 == 0) (void)pool.stats();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    const KeyStats even = pool.stats("even"), odd = pool.stats("odd");
    EXPECT_EQ(even.hits + even.misses + even.grows, 1000u);
    EXPECT_EQ(odd.hits + odd.misses + odd.grows, 1000u);
}

TEST(Keyed, LeavesEverythingAsItWasWhenMemoryRunsOut) {
    KeyedPool pool(Pool(Memory::host(), {.max_bytes = 1_MiB, .max_idle_bytes = 0}));
    const auto array = pool.get<std::byte>("a", 300'000);
    write_marks(array.data(), array.size(), 5);

    EXPECT_THROW((void)pool.get<std::byte>("a", 2_MiB), OutOfMemory);
    EXPECT_THROW((void)pool.get<std::byte>("b", 2_MiB), OutOfMemory);

    EXPECT_EQ(pool.stats("a"), (KeyStats{.hits = 0, .misses = 1, .grows = 0}));
    EXPECT_EQ(pool.stats("b"), KeyStats{});
    EXPECT_TRUE(has_marks(array.data(), array.size(), 5));
    EXPECT_EQ(pool.get<std::byte>("a", 300'000).data(), array.data());
}

TEST(Keyed, WorksOnWholeBlocks) {
    for (const Fit& fit : {Fit{ExactFit{}}, Fit{BestFit{}}, Fit{FixedBlock{1_MiB}}}) {
        KeyedPool pool(Pool(Memory::host(), {.fit = fit}));
        write_marks(pool.get<std::byte>("a", 1000).data(), 1000, 7);
        const auto grown = pool.get<std::byte>("a", 500'000);
        EXPECT_TRUE(has_marks(grown.data(), 1000, 7));
        EXPECT_EQ(pool.stats("a").grows, 1u);
        if (std::holds_alternative<FixedBlock>(fit)) {
            EXPECT_THROW((void)pool.get<std::byte>("a", 2_MiB), InvalidArgument);
        }
    }
}

}  // namespace cistern::test
