// A buffer moves, and returns itself once.

#include "cistern/buffer.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "cistern/pool.hpp"
#include "support/literals.hpp"

namespace cistern::test {

static_assert(!std::is_copy_constructible_v<Buffer>);
static_assert(!std::is_copy_assignable_v<Buffer>);
static_assert(std::is_nothrow_move_constructible_v<Buffer>);
static_assert(std::is_nothrow_move_assignable_v<Buffer>);
static_assert(std::is_nothrow_destructible_v<Buffer>);

namespace {

class BufferTest : public testing::Test {
protected:
    [[nodiscard]] std::uint64_t lent() const { return pool.stats().lent_buffers.now; }

    Pool pool{Memory::host(), {.name = "buffers"}};
};

void move_to_itself(Buffer& buffer) {
    Buffer& same = buffer;
    buffer = std::move(same);
}

}  // namespace

TEST_F(BufferTest, MadeOfNothingIsEmpty) {
    const Buffer buffer;

    EXPECT_TRUE(buffer.empty());
    EXPECT_EQ(buffer.data(), nullptr);
    EXPECT_EQ(buffer.size(), 0u);
    EXPECT_EQ(buffer.capacity(), 0u);
}

TEST_F(BufferTest, HasNoMemoryWhenEmpty) {
    EXPECT_THROW((void)Buffer{}.memory(), InvalidArgument);
    EXPECT_EQ(pool.acquire(64).memory(), pool.memory());
}

TEST_F(BufferTest, MoveConstructionHandsTheBytesOver) {
    Buffer from = pool.acquire(1_KiB);
    void* const data = from.data();

    const Buffer to = std::move(from);

    EXPECT_EQ(to.data(), data);
    EXPECT_EQ(to.size(), 1_KiB);
    EXPECT_TRUE(from.empty());  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(from.data(), nullptr);
    EXPECT_EQ(from.size(), 0u);
    EXPECT_EQ(lent(), 1u);
}

TEST_F(BufferTest, MoveAssignmentReleasesWhatWasThere) {
    Buffer from = pool.acquire(1_KiB), to = pool.acquire(2_KiB);
    void* const data = from.data();

    to = std::move(from);

    EXPECT_EQ(to.data(), data);
    EXPECT_EQ(to.size(), 1_KiB);
    EXPECT_TRUE(from.empty());  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(lent(), 1u);
    EXPECT_EQ(pool.stats().releases, 1u);
}

TEST_F(BufferTest, MovedToItselfKeepsItsBytes) {
    Buffer buffer = pool.acquire(1_KiB);
    void* const data = buffer.data();

    move_to_itself(buffer);

    EXPECT_EQ(buffer.data(), data);
    EXPECT_EQ(buffer.size(), 1_KiB);
    EXPECT_EQ(lent(), 1u);
}

TEST_F(BufferTest, AssignedAnEmptyOneReleasesItsBytes) {
    Buffer buffer = pool.acquire(1_KiB);

    buffer = Buffer{};

    EXPECT_TRUE(buffer.empty());
    EXPECT_EQ(lent(), 0u);
}

TEST_F(BufferTest, SwapsWithAnother) {
    Buffer a = pool.acquire(1_KiB), b = pool.acquire(2_KiB);
    void* const data_of_a = a.data();
    void* const data_of_b = b.data();

    a.swap(b);

    EXPECT_EQ(a.data(), data_of_b);
    EXPECT_EQ(a.size(), 2_KiB);
    EXPECT_EQ(b.data(), data_of_a);
    EXPECT_EQ(lent(), 2u);
}

TEST_F(BufferTest, ReleasedTwiceIsReleasedOnce) {
    Buffer buffer = pool.acquire(1_KiB);

    buffer.release();
    buffer.release();

    EXPECT_TRUE(buffer.empty());
    EXPECT_EQ(pool.stats().releases, 1u);
}

TEST_F(BufferTest, LivesInContainers) {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 100; ++i) buffers.push_back(pool.acquire(1_KiB));
    EXPECT_EQ(lent(), 100u);

    buffers.erase(buffers.begin() + 10, buffers.begin() + 60);

    EXPECT_EQ(lent(), 50u);
    buffers.clear();
    EXPECT_EQ(lent(), 0u);
    EXPECT_EQ(pool.stats().releases, 100u);
}

TEST_F(BufferTest, OfAnotherPoolReplacesOne) {
    Pool other;
    Buffer buffer = pool.acquire(1_KiB);

    buffer = other.acquire(2_KiB);

    EXPECT_EQ(lent(), 0u);
    EXPECT_EQ(other.stats().lent_buffers.now, 1u);
}

}  // namespace cistern::test
