// Blocks and scopes: one test per row of what fixed-size blocks and arrays for the length of a call
// do; every memory and fit.

#include "cistern/scope.hpp"

#include <gtest/gtest.h>

#include <array>
#include <complex>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cistern/presets.hpp"
#include "support/literals.hpp"
#include "support/patterns.hpp"
#include "support/sources.hpp"

namespace cistern::test {

namespace {

std::uint64_t lent(const Pool& pool) { return pool.stats().lent_buffers.now; }

Pool fixed(std::size_t bytes) { return Pool(Memory::host(), presets::fixed_blocks(bytes)); }

}  // namespace

TEST(Blocks, EachHasExactlyThatSizeAndALargerRequestIsAnError) {
    Pool pool = fixed(1000);
    EXPECT_EQ(pool.acquire(1).capacity(), 1000u);
    EXPECT_EQ(pool.acquire(1000).capacity(), 1000u);
    EXPECT_THROW((void)pool.acquire(1001), InvalidArgument);
    EXPECT_EQ(lent(pool), 0u);
}

TEST(Blocks, ComeBackLastInFirstOut) {
    Pool pool = fixed(1000);
    Buffer a = pool.acquire(10), b = pool.acquire(10);
    void* const first = a.data();
    void* const second = b.data();
    a.release();
    b.release();
    const Buffer x = pool.acquire(1), y = pool.acquire(1);
    EXPECT_EQ(x.data(), second);
    EXPECT_EQ(y.data(), first);
}

TEST(Blocks, FreshOnesAreZeroReusedOnesAreNot) {
    Pool pool = fixed(1000);
    {
        const Buffer fresh = pool.acquire(1000);
        EXPECT_TRUE(all_zero(fresh.data(), 1000));
        write_pattern(fresh.data(), 1000, 1);
    }
    const Buffer reused = pool.acquire(1000);
    EXPECT_TRUE(has_pattern(reused.data(), 1000, 1));
}

TEST(Blocks, ZeroBytesAreLegal) {
    Pool pool = fixed(0);
    EXPECT_TRUE(pool.acquire(0).empty());
    EXPECT_THROW((void)pool.acquire(1), InvalidArgument);
    EXPECT_EQ(with_arrays([](auto view) { return view.size(); }, pool, shape<double>(0, 5)), 0u);
}

TEST(Blocks, ReleasingTwiceOrToAnotherPoolIsAnError) {
    Pool pool = fixed(100), other = fixed(100);
    Buffer buffer = pool.acquire(10);
    EXPECT_THROW(other.release(std::move(buffer)), InvalidArgument);
    EXPECT_EQ(lent(pool), 1u);
    pool.release(std::move(buffer));
    EXPECT_THROW(pool.release(std::move(buffer)), InvalidArgument);
    EXPECT_EQ(lent(pool), 0u);
}

TEST(Scope, LendsOneBlockPerSpecAndReturnsTheResult) {
    Pool pool = fixed(10'000);
    const double sum = with_arrays(
        [&](ArrayView<float, 2> u, ArrayView<double, 1> v) {
            EXPECT_EQ(lent(pool), 2u);
            u.fill(1.0F);
            v.fill(2.0);
            return static_cast<double>(u(2, 3)) + v(9);
        },
        pool, shape<float>(3, 4), shape<double>(10));
    EXPECT_EQ(sum, 3.0);
    EXPECT_EQ(lent(pool), 0u);
}

TEST(Scope, GivesEverythingBackWhenTheFunctionThrows) {
    Pool pool = fixed(10'000);
    EXPECT_THROW(with_arrays([](auto, auto) { throw std::runtime_error("no"); }, pool,
                             shape<float>(3), shape<double>(10)),
                 std::runtime_error);
    EXPECT_EQ(lent(pool), 0u);
}

TEST(Scope, LeaksNothingWhenASpecIsTooBig) {
    Pool pool = fixed(1000);
    bool called = false;
    EXPECT_THROW(
        with_arrays([&](auto, auto) { called = true; }, pool, shape<float>(3), shape<double>(1000)),
        InvalidArgument);
    EXPECT_THROW(with_arrays([&](auto) { called = true; }, pool,
                             std::tuple{shape<double>(100), shape<double>(100)}),
                 InvalidArgument);
    EXPECT_THROW(with_arrays([&](auto) { called = true; }, pool, shape<float>(-3)),
                 InvalidArgument);
    EXPECT_FALSE(called);
    EXPECT_EQ(lent(pool), 0u);
    EXPECT_EQ(pool.stats().lent_bytes.now, 0u);
}

TEST(Scope, NestedSpecsGiveTheSameNestOfViewsInOneAlignedBlock) {
    Pool pool = fixed(100'000);
    const auto triple = std::array{shape<char>(3), shape<char>(5), shape<char>(7)};
    const std::vector<std::pair<Shape<double, 1>, Shape<std::int16_t, 2>>> pairs{
        {shape<double>(3), shape<std::int16_t>(2, 2)},
        {shape<double>(1), shape<std::int16_t>(1, 3)}};
    with_arrays(
        [&](auto nest) {
            EXPECT_EQ(lent(pool), 1u);
            auto& [bytes, list, scalar] = nest;
            static_assert(std::is_same_v<std::remove_reference_t<decltype(bytes)>,
                                         std::array<ArrayView<char, 1>, 3>>);
            ASSERT_EQ(list.size(), 2u);
            EXPECT_EQ(bytes[2].size(), 7u);
            EXPECT_EQ(list[1].second.shape(), (std::array<std::size_t, 2>{1, 3}));
            // No two overlap, and each is aligned for its type.
            std::uint64_t seed = 0;
            const auto write = [&](auto view) {
                using T = typename decltype(view)::value_type;
                EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data()) % alignof(T), 0u);
                write_pattern(view.data(), view.size_bytes(), ++seed);
            };
            const auto check = [&](auto view) {
                EXPECT_TRUE(has_pattern(view.data(), view.size_bytes(), ++seed));
            };
            const auto all = [&](auto each) {
                seed = 0;
                for (auto view : bytes) each(view);
                for (auto& [d, i] : list) {
                    each(d);
                    each(i);
                }
                each(scalar);
            };
            all(write);
            all(check);
        },
        pool, std::tuple{triple, pairs, shape<std::complex<double>>()});
    EXPECT_EQ(lent(pool), 0u);
}

TEST(Scope, LikeGivesTheTypesAndShapesOfTheGivenArrays) {
    Pool pool;
    const auto field = pool.array<float>(4, 6);
    const std::tuple<ArrayView<double, 1>, std::array<ArrayView<float, 2>, 2>> nest{
        ArrayView<double, 1>(nullptr, {3}, 3), {field.view(), field.view()}};
    const bool same = with_arrays_like(
        [&](ArrayView<float, 2> copy, auto others) {
            auto& [line, pair] = others;
            EXPECT_NE(copy.data(), field.data());
            EXPECT_EQ(pair[1].shape(), field.shape());
            return copy.shape() == field.shape() && line.size() == 3;
        },
        pool, field, nest);
    EXPECT_TRUE(same);

    with_arrays(
        [&](auto views) {
            with_arrays_like(
                [&](auto again) {
                    ASSERT_EQ(again.size(), 2u);
                    EXPECT_EQ(again[1].shape(), views[1].shape());
                    EXPECT_NE(again[1].data(), views[1].data());
                },
                pool, views);
        },
        pool, std::vector{shape<int>(2, 2), shape<int>(3, 1)});
    EXPECT_EQ(lent(pool), 1u);
}

TEST(Scope, AnExtentMayBeAnIndexRange) {
    Pool pool;
    with_arrays(
        [](RangedView<double, 2> ghost, RangedView<float, 1> none) {
            EXPECT_EQ(ghost.shape(), (std::array<std::size_t, 2>{7, 3}));
            ghost.fill(0);
            ghost(-1, 0) = 1;
            ghost(5, 2) = 2;
            EXPECT_EQ(ghost.data()[0], 1);
            EXPECT_EQ(ghost.data()[20], 2);
            EXPECT_EQ(ghost.range(0).begin, -1);
            EXPECT_EQ(ghost.range(0).end, 6);
            EXPECT_TRUE(none.empty());
        },
        pool, shape<double>(range(-1, 6), 3), shape<float>(range(4, 2)));
    EXPECT_THROW((void)shape<char>(range(PTRDIFF_MIN, PTRDIFF_MAX)), InvalidArgument);
}

TEST(Scope, WorksForEveryMemoryAndFit) {
    for (const Fit& fit :
         {Fit{Elastic{}}, Fit{ExactFit{}}, Fit{BestFit{}}, Fit{FixedBlock{1_MiB}}}) {
        for (const Memory& memory : {Memory::host(), Memory::simulated(),
                                     Memory::from(*std::pmr::new_delete_resource())}) {
            for (const bool separate : {false, true}) {
                Pool pool(memory, {.fit = fit, .separate_types = separate});
                for (int i = 0; i < 3; ++i) {
                    with_arrays(
                        [&](auto u, auto nest) {
                            EXPECT_EQ(u.size(), 600u);
                            EXPECT_EQ(std::get<1>(nest).size(), 7u);
                        },
                        pool, shape<float>(20, 30), std::tuple{shape<char>(3), shape<double>(7)});
                }
                EXPECT_EQ(lent(pool), 0u);
                EXPECT_EQ(pool.stats().hits, 4u);
            }
        }
    }
}

TEST(Scope, ReturnsReferencesAndNothing) {
    Pool pool;
    int outside = 1;
    int& same = with_arrays([&](auto) -> int& { return outside; }, pool, shape<int>(3));
    EXPECT_EQ(&same, &outside);
    with_arrays([&](auto view) { outside = static_cast<int>(view.size()); }, pool, shape<int>(3));
    EXPECT_EQ(outside, 3);
    EXPECT_EQ(with_arrays([] { return 7; }, pool), 7);
}

TEST(Scope, StructuredBindingsNeedNoFunction) {
    Pool pool;
    auto [u, v] = pool.arrays(shape<float>(3, 4), shape<double>(5));
    EXPECT_EQ(u.size() + v.size(), 17u);
}

TEST(Scope, ASpecWhoseBytesCannotBeCountedIsAnError) {
    Pool pool;
    const auto half = shape<char>(PTRDIFF_MAX);

    EXPECT_THROW(with_arrays([](const auto&) {}, pool, std::tuple(half, half, half)),
                 InvalidArgument);

    EXPECT_EQ(pool.stats(), PoolStats{});
}

}  // namespace cistern::test
