// A vector grows through its pool and keeps its elements.

#include "cistern/vector.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <type_traits>
#include <vector>

#include "support/literals.hpp"
#include "support/text.hpp"

namespace cistern::test {

static_assert(!std::is_copy_constructible_v<Vector<int>>);
static_assert(std::is_nothrow_move_constructible_v<Vector<int>>);
static_assert(std::is_nothrow_move_assignable_v<Vector<int>>);

namespace {

class VectorTest : public testing::Test {
protected:
    static std::vector<int> contents(const Vector<int>& v) { return {v.begin(), v.end()}; }

    Pool pool;
};

}  // namespace

TEST_F(VectorTest, StartsEmptyWithRoom) {
    const auto v = pool.vector<double>(100);

    EXPECT_TRUE(v.empty());
    EXPECT_EQ(v.size(), 0u);
    EXPECT_GE(v.capacity(), 100u);
    EXPECT_EQ(v.begin(), v.end());
    EXPECT_EQ(pool.stats().lent_buffers.now, 1u);
}

TEST_F(VectorTest, OfNoCapacityTakesNothing) {
    const auto v = pool.vector<double>(0);

    EXPECT_EQ(v.capacity(), 0u);
    EXPECT_EQ(pool.stats(), PoolStats{});
}

TEST_F(VectorTest, FillsItsCapacityWithoutAskingAgain) {
    auto v = pool.vector<double>(1000);
    const double* const data = v.data();
    const std::size_t capacity = v.capacity();

    for (std::size_t i = 0; i < capacity; ++i) v.push_back(static_cast<double>(i));

    EXPECT_EQ(v.data(), data);
    EXPECT_EQ(v.size(), capacity);
    EXPECT_EQ(pool.stats().acquires, 1u);
    EXPECT_EQ(v[capacity - 1], static_cast<double>(capacity - 1));
}

TEST_F(VectorTest, KeepsItsElementsWhileItGrows) {
    auto v = pool.vector<int>(0);

    for (int i = 0; i < 100'000; ++i) v.push_back(i);

    ASSERT_EQ(v.size(), 100'000u);
    for (std::size_t i = 0; i < v.size(); ++i) ASSERT_EQ(v[i], static_cast<int>(i));
    EXPECT_EQ(pool.stats().lent_buffers.now, 1u);
    EXPECT_LT(pool.stats().acquires, 40u);
}

TEST_F(VectorTest, AppendsManyAtOnce) {
    auto v = pool.vector<int>(2);
    const std::vector<int> more = {1, 2, 3, 4, 5};

    v.append(more);
    v.append(more);
    v.append({});

    EXPECT_EQ(contents(v), (std::vector<int>{1, 2, 3, 4, 5, 1, 2, 3, 4, 5}));
}

TEST_F(VectorTest, AppendsItsOwnElements) {
    auto v = pool.vector<int>(1);
    v.append(std::vector<int>{1, 2, 3});

    for (int i = 0; i < 12; ++i) v.append(v.span());  // through several growths

    ASSERT_EQ(v.size(), 3u << 12);
    for (std::size_t i = 0; i < v.size(); ++i) ASSERT_EQ(v[i], static_cast<int>(i % 3) + 1);
}

TEST_F(VectorTest, PushesItsOwnElementWhileItGrows) {
    auto v = pool.vector<int>(0);
    v.push_back(42);

    for (int i = 0; i < 1000; ++i) v.push_back(v[0]);

    EXPECT_EQ(std::accumulate(v.begin(), v.end(), 0), 42 * 1001);
}

TEST_F(VectorTest, ReservesOnceForMany) {
    auto v = pool.vector<int>(0);
    v.push_back(7);

    v.reserve(5000);

    EXPECT_GE(v.capacity(), 5000u);
    EXPECT_EQ(v[0], 7);
    EXPECT_EQ(v.size(), 1u);
    const std::uint64_t acquires = pool.stats().acquires;
    v.reserve(10);
    EXPECT_EQ(pool.stats().acquires, acquires);
}

TEST_F(VectorTest, ClearKeepsItsCapacity) {
    auto v = pool.vector<int>(100);
    v.append(std::vector<int>(100, 1));
    const std::size_t capacity = v.capacity();

    v.clear();

    EXPECT_TRUE(v.empty());
    EXPECT_EQ(v.capacity(), capacity);
}

TEST_F(VectorTest, ChecksAnIndexWhenAsked) {
    auto v = pool.vector<int>(4);
    v.append(std::vector<int>{10, 20});

    EXPECT_EQ(v.at(1), 20);
    EXPECT_THROW((void)v.at(2), InvalidArgument);
    const std::string text = text_of<InvalidArgument>([&] { (void)v.at(77); });
    EXPECT_TRUE(mentions(text, "77")) << text;
    EXPECT_TRUE(mentions(text, "2")) << text;
}

TEST_F(VectorTest, MoveHandsItsElementsOver) {
    auto from = pool.vector<int>(4);
    from.append(std::vector<int>{1, 2, 3});

    auto to = std::move(from);

    EXPECT_EQ(contents(to), (std::vector<int>{1, 2, 3}));
    EXPECT_TRUE(from.empty());  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(from.capacity(), 0u);
    from.push_back(9);
    EXPECT_EQ(contents(from), (std::vector<int>{9}));
    EXPECT_EQ(to.size(), 3u);
}

TEST_F(VectorTest, MoveAssignmentReplacesElementsAndPool) {
    Pool other;
    auto from = other.vector<int>(4);
    from.append(std::vector<int>{1, 2, 3});
    auto to = pool.vector<int>(100);

    to = std::move(from);

    EXPECT_EQ(contents(to), (std::vector<int>{1, 2, 3}));
    EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
    to.reserve(5000);
    EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
    EXPECT_EQ(other.stats().lent_buffers.now, 1u);
}

TEST_F(VectorTest, MovedToItselfKeepsItsElements) {
    auto v = pool.vector<int>(4);
    v.append(std::vector<int>{1, 2, 3});
    auto& same = v;

    v = std::move(same);

    EXPECT_EQ(contents(v), (std::vector<int>{1, 2, 3}));
}

TEST_F(VectorTest, KeepsItsElementsWhenItCannotGrow) {
    Pool small{Memory::host(), {.max_bytes = 8_KiB}};
    auto v = small.vector<int>(1000);
    while (v.size() < v.capacity()) v.push_back(static_cast<int>(v.size()));

    EXPECT_THROW(v.push_back(-1), OutOfMemory);
    EXPECT_THROW(v.append(std::vector<int>(5000)), OutOfMemory);
    EXPECT_THROW(v.reserve(no_limit), InvalidArgument);

    EXPECT_EQ(v.size(), v.capacity());
    EXPECT_EQ(v[999], 999);
    EXPECT_EQ(small.stats().lent_buffers.now, 1u);
}

TEST_F(VectorTest, OutlivesThePoolsOtherHandlesAndStillGrows) {
    std::optional<Pool> local = Pool{};
    auto v = local->vector<int>(1);
    local.reset();

    for (int i = 0; i < 1000; ++i) v.push_back(i);

    EXPECT_EQ(v[999], 999);
}

TEST_F(VectorTest, OutlivesItsPoolEntirelyWhenMovedOut) {
    std::optional<Vector<int>> survivor;
    {
        Pool local;
        survivor.emplace(local, 10);
        survivor->push_back(1);
    }

    survivor->push_back(2);

    EXPECT_EQ(contents(*survivor), (std::vector<int>{1, 2}));
}

}  // namespace cistern::test
