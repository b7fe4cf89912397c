// Arrays: row-major, contiguous, owned or borrowed.

#include "cistern/array.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <numeric>
#include <type_traits>

#include "cistern/pool.hpp"
#include "support/literals.hpp"
#include "support/patterns.hpp"

namespace cistern::test {

static_assert(!std::is_copy_constructible_v<Array<double, 2>>);
static_assert(std::is_nothrow_move_constructible_v<Array<double, 2>>);
static_assert(std::is_nothrow_move_assignable_v<Array<double, 2>>);
static_assert(std::is_trivially_copyable_v<ArrayView<double, 2>>);
static_assert(Element<std::complex<float>> && Element<std::uint8_t> && !Element<std::string>);
static_assert(!Element<const double> && !Element<double&> && !Element<void>);

namespace {

struct Particle {
    float x, y, z;
    std::uint32_t id;
    friend bool operator==(const Particle&, const Particle&) = default;
};

struct alignas(256) WideVector {
    float lanes[64];
};

class ArrayTest : public testing::Test {
protected:
    Pool pool;
};

}  // namespace

TEST_F(ArrayTest, HasTheShapeAskedFor) {
    const auto a = pool.array<double>(3, 4, 5);

    EXPECT_EQ(a.rank(), 3u);
    EXPECT_EQ(a.size(), 60u);
    EXPECT_EQ(a.size_bytes(), 480u);
    EXPECT_FALSE(a.empty());
    EXPECT_EQ(a.shape(), (std::array<std::size_t, 3>{3, 4, 5}));
    EXPECT_EQ(a.extent(0), 3u);
    EXPECT_EQ(a.extent(2), 5u);
    EXPECT_EQ(a.buffer().size(), 480u);
}

TEST_F(ArrayTest, IsRowMajorAndContiguous) {
    const auto a = pool.array<int>(3, 4);
    std::iota(a.begin(), a.end(), 0);

    EXPECT_EQ(a(0, 0), 0);
    EXPECT_EQ(a(0, 3), 3);
    EXPECT_EQ(a(1, 0), 4);
    EXPECT_EQ(a(2, 3), 11);
    EXPECT_EQ(&a(2, 1), a.data() + 9);
    EXPECT_EQ(a.end() - a.begin(), 12);
    EXPECT_EQ(a.span().size(), 12u);
    EXPECT_EQ(a.span().data(), a.data());
}

TEST_F(ArrayTest, WritesThroughItsIndices) {
    const auto a = pool.zeros<double>(2, 3, 4);

    a(1, 2, 3) = 7.5;
    a(0u, 1l, short{2}) = 2.5;

    EXPECT_EQ(a.data()[23], 7.5);
    EXPECT_EQ(a.data()[6], 2.5);
    EXPECT_EQ(std::accumulate(a.begin(), a.end(), 0.0), 10.0);
}

TEST_F(ArrayTest, IsAlignedForVectorInstructions) {
    const auto a = pool.array<float>(3), b = pool.array<float>(1000);

    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % 64, 0u);
}

TEST_F(ArrayTest, FillsWithOneValue) {
    const auto a = pool.array<std::complex<double>>(10, 10);

    a.fill({1.0, -2.0});

    EXPECT_TRUE(std::all_of(a.begin(), a.end(),
                            [](auto z) { return z == std::complex<double>(1.0, -2.0); }));
}

TEST_F(ArrayTest, HoldsSmallStructs) {
    const auto particles = pool.zeros<Particle>(100);
    EXPECT_EQ(particles(99), (Particle{0, 0, 0, 0}));

    particles(42) = {1, 2, 3, 42};

    EXPECT_EQ(particles.span()[42], (Particle{1, 2, 3, 42}));
}

TEST_F(ArrayTest, OfNoDimensionsIsOneElement) {
    const auto scalar = pool.array<double>();

    scalar() = 3.5;

    EXPECT_EQ(scalar.rank(), 0u);
    EXPECT_EQ(scalar.size(), 1u);
    EXPECT_EQ(*scalar.data(), 3.5);
}

TEST_F(ArrayTest, WithAZeroExtentIsEmptyAndKeepsItsShape) {
    const auto a = pool.array<double>(3, 0, 5);

    EXPECT_TRUE(a.empty());
    EXPECT_EQ(a.size(), 0u);
    EXPECT_EQ(a.begin(), a.end());
    EXPECT_EQ(a.shape(), (std::array<std::size_t, 3>{3, 0, 5}));
    EXPECT_TRUE(a.buffer().empty());
    a.fill(1.0);
    EXPECT_EQ(pool.stats(), PoolStats{});
}

TEST_F(ArrayTest, OfZeroesIsZeroAlsoWhenItsBytesWereUsed) {
    { pool.array<std::uint64_t>(64, 64).fill(~std::uint64_t{0}); }

    const auto zeros = pool.zeros<std::uint64_t>(64, 64);

    EXPECT_TRUE(all_zero(zeros.data(), zeros.size_bytes()));
    EXPECT_EQ(pool.stats().hits, 1u);
}

TEST_F(ArrayTest, MoveHandsEverythingOver) {
    auto from = pool.array<int>(2, 3);
    from.fill(9);

    const auto to = std::move(from);

    EXPECT_EQ(to.size(), 6u);
    EXPECT_EQ(to(1, 2), 9);
    EXPECT_TRUE(from.empty());  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(from.data(), nullptr);
    EXPECT_EQ(from.shape(), (std::array<std::size_t, 2>{0, 0}));
    EXPECT_EQ(pool.stats().lent_buffers.now, 1u);
}

TEST_F(ArrayTest, MoveAssignmentReleasesWhatWasThere) {
    auto from = pool.array<int>(2, 3), to = pool.array<int>(10, 10);

    to = std::move(from);

    EXPECT_EQ(to.shape(), (std::array<std::size_t, 2>{2, 3}));
    EXPECT_EQ(pool.stats().lent_buffers.now, 1u);
}

TEST_F(ArrayTest, MovedToItselfKeepsEverything) {
    auto a = pool.array<int>(2, 3);
    a.fill(4);
    auto& same = a;

    a = std::move(same);

    EXPECT_EQ(a.size(), 6u);
    EXPECT_EQ(a(1, 1), 4);
    EXPECT_EQ(pool.stats().lent_buffers.now, 1u);
}

TEST_F(ArrayTest, GivesItsBufferAway) {
    auto a = pool.array<int>(2, 3);
    void* const data = a.data();

    const Buffer buffer = a.take_buffer();

    EXPECT_EQ(buffer.data(), data);
    EXPECT_EQ(buffer.size(), 24u);
    EXPECT_TRUE(a.empty());
    EXPECT_EQ(a.data(), nullptr);
}

TEST_F(ArrayTest, IsSeenThroughViews) {
    const auto a = pool.array<int>(2, 3);
    a.fill(1);

    const ArrayView<int, 2> view = a;
    const ArrayView<int, 2> copy = view;
    copy(1, 2) = 5;
    view.fill(6);

    EXPECT_EQ(a(1, 2), 6);
    EXPECT_EQ(view.data(), a.data());
    EXPECT_EQ(view.shape(), a.shape());
    EXPECT_EQ(view.extent(1), 3u);
    EXPECT_EQ(view.size_bytes(), 24u);
    EXPECT_EQ(view.rank(), 2u);
    EXPECT_EQ(view.span().size(), 6u);
    EXPECT_FALSE(view.empty());
    EXPECT_EQ(a.view().data(), a.data());
    EXPECT_TRUE((ArrayView<int, 2>{}.empty()));
}

TEST_F(ArrayTest, ComeTogetherWithStructuredBindings) {
    auto [u, v, w] = pool.arrays(shape<float>(3, 4), shape<double>(7), shape<std::int8_t>());

    static_assert(std::is_same_v<decltype(u), Array<float, 2>>);
    static_assert(std::is_same_v<decltype(v), Array<double, 1>>);
    EXPECT_EQ(u.size(), 12u);
    EXPECT_EQ(v.size(), 7u);
    EXPECT_EQ(w.size(), 1u);
    EXPECT_EQ(pool.stats().lent_buffers.now, 3u);
}

TEST_F(ArrayTest, ComeTogetherOrNotAtAll) {
    Pool small{Memory::host(), {.max_bytes = 64_KiB}};

    EXPECT_THROW((void)small.arrays(shape<char>(32_KiB), shape<char>(32_KiB), shape<char>(1)),
                 OutOfMemory);

    EXPECT_EQ(small.stats().lent_bytes.now, 0u);
    EXPECT_NO_THROW((void)small.arrays(shape<char>(32_KiB), shape<char>(32_KiB)));
}

TEST_F(ArrayTest, OutliveTheirPool) {
    Array<double, 1> survivor;
    {
        Pool local;
        survivor = local.array<double>(1000);
    }

    survivor.fill(2.0);

    EXPECT_EQ(std::accumulate(survivor.begin(), survivor.end(), 0.0), 2000.0);
}

TEST_F(ArrayTest, OfOverAlignedElementsAreAlignedOrRefused) {
    for (int i = 0; i < 8; ++i) {
        const Buffer shift = pool.acquire(64);
        try {
            const auto wide = pool.array<WideVector>(1);
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(wide.data()) % alignof(WideVector), 0u);
        } catch (const InvalidArgument&) {
            SUCCEED() << "refused, naming the alignment";
        }
    }
}

TEST_F(ArrayTest, OfOverAlignedElementsWorkInAPoolThatAlignsEnough) {
    Pool aligned{Memory::host(), {.alignment = alignof(WideVector)}};

    const auto a = aligned.array<WideVector>(3), b = aligned.array<WideVector>(5);

    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % alignof(WideVector), 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % alignof(WideVector), 0u);
}

}  // namespace cistern::test
