// Extents: counted with care, refused by name.

#include <gtest/gtest.h>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "cistern/vector.hpp"
#include "support/text.hpp"

namespace cistern::test {

namespace {

constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
constexpr auto most_signed = std::numeric_limits<std::ptrdiff_t>::max();

}  // namespace

TEST(Shape, CountsElementsAndBytes) {
    const auto s = shape<double>(3, 4, 5);

    EXPECT_EQ(s.elements(), 60u);
    EXPECT_EQ(s.bytes(), 480u);
    EXPECT_EQ(s.extents(), (std::array<std::size_t, 3>{3, 4, 5}));
}

TEST(Shape, OfNoDimensionsIsOneElement) {
    const auto s = shape<float>();

    EXPECT_EQ(s.elements(), 1u);
    EXPECT_EQ(s.bytes(), sizeof(float));
}

TEST(Shape, WithAZeroExtentIsEmpty) {
    EXPECT_EQ(shape<double>(0).elements(), 0u);
    EXPECT_EQ(shape<double>(7, 0, 9).elements(), 0u);
    EXPECT_EQ(shape<double>(7, 0, 9).bytes(), 0u);
}

TEST(Shape, WithAZeroExtentNeverOverflows) {
    EXPECT_EQ(shape<double>(most, most, 0).elements(), 0u);
    EXPECT_EQ(shape<double>(0, most, most).bytes(), 0u);
}

TEST(Shape, TakesIntegersOfEveryWidth) {
    const auto s = shape<char>(std::int8_t{2}, std::uint16_t{3}, 4, 5l, std::size_t{6});

    EXPECT_EQ(s.elements(), 720u);
}

TEST(Shape, IsKnownAtCompileTime) {
    static_assert(shape<double>(3, 4).bytes() == 96);
    SUCCEED();
}

TEST(Shape, RefusesANegativeExtentByName) {
    EXPECT_THROW((void)shape<double>(-1), InvalidArgument);
    EXPECT_THROW((void)shape<double>(3, -2), InvalidArgument);
    EXPECT_THROW((void)shape<double>(0, -2), InvalidArgument);
    EXPECT_THROW((void)shape<double>(std::int8_t{-128}), InvalidArgument);
    EXPECT_THROW((void)shape<double>(std::numeric_limits<std::int64_t>::min()), InvalidArgument);

    const std::string text = text_of<InvalidArgument>([] { (void)shape<double>(3, -27); });

    EXPECT_TRUE(mentions(text, "-27")) << text;
    EXPECT_TRUE(mentions(text, "negative")) << text;
}

TEST(Shape, RefusesMoreBytesThanCanBeCounted) {
    EXPECT_THROW((void)shape<double>(most), InvalidArgument);
    EXPECT_THROW((void)shape<char>(most), InvalidArgument);
    EXPECT_THROW((void)shape<double>(most / 8 + 1), InvalidArgument);
    EXPECT_THROW((void)shape<char>(most / 2, 3), InvalidArgument);
    EXPECT_THROW((void)shape<double>(1ll << 32, 1ll << 32), InvalidArgument);
    EXPECT_THROW((void)shape<std::complex<double>>(most_signed / 8), InvalidArgument);
}

TEST(Shape, NamesTheExtentsThatOverflow) {
    const std::string text =
        text_of<InvalidArgument>([] { (void)shape<double>(4294967296, 4294967297); });

    EXPECT_TRUE(mentions(text, "4294967296")) << text;
    EXPECT_TRUE(mentions(text, "4294967297")) << text;
}

TEST(Shape, AllowsUpToTheLargestDifferenceOfPointers) {
    EXPECT_EQ(shape<char>(most_signed).bytes(), static_cast<std::size_t>(most_signed));
    EXPECT_THROW((void)shape<char>(static_cast<std::size_t>(most_signed) + 1), InvalidArgument);
}

TEST(PoolArray, OfABadShapeChangesNothing) {
    Pool pool{Memory::simulated()};

    EXPECT_THROW((void)pool.array<double>(-1, 4), InvalidArgument);
    EXPECT_THROW((void)pool.zeros<double>(4, -1), InvalidArgument);
    EXPECT_THROW((void)pool.array<double>(most, most), InvalidArgument);
    EXPECT_THROW((void)pool.vector<double>(most / 4), InvalidArgument);
    EXPECT_THROW((void)pool.arrays(shape<double>(4), shape<double>(-4)), InvalidArgument);

    EXPECT_EQ(pool.stats(), PoolStats{});
}

TEST(PoolArray, OfRunTimeExtentsChecksTheirNumber) {
    Pool pool;
    const std::vector<std::ptrdiff_t> extents = {3, 4};

    const auto array = pool.array<double, 2>(extents);

    EXPECT_EQ(array.shape(), (std::array<std::size_t, 2>{3, 4}));
    EXPECT_THROW((void)(pool.array<double, 3>(extents)), InvalidArgument);
    EXPECT_THROW((void)(pool.array<double, 1>(extents)), InvalidArgument);
    EXPECT_THROW((void)(pool.array<double, 0>(extents)), InvalidArgument);
    EXPECT_EQ(pool.stats().acquires, 1u);
}

TEST(PoolArray, OfRunTimeExtentsNamesBothRanks) {
    Pool pool;
    const std::vector<std::ptrdiff_t> extents(7, 1);

    const std::string text =
        text_of<InvalidArgument>([&] { (void)(pool.array<double, 5>(extents)); });

    EXPECT_TRUE(mentions(text, "7")) << text;
    EXPECT_TRUE(mentions(text, "5")) << text;
}

TEST(PoolArray, OfRunTimeExtentsRefusesNegativeOnes) {
    Pool pool;
    const std::vector<std::ptrdiff_t> extents = {3, -4};

    EXPECT_THROW((void)(pool.array<double, 2>(extents)), InvalidArgument);

    EXPECT_EQ(pool.stats(), PoolStats{});
}

}  // namespace cistern::test
