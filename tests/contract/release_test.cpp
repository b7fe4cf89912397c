// Giving buffers back: once, to the pool that lent them, also when that pool's handles are gone.

#include <atomic>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "contract/contract.hpp"
#include "support/text.hpp"
#include "support/twin.hpp"

namespace cistern::test {

TEST_P(PoolContract, ReleaseEmptiesTheBuffer) {
    Pool pool = make_pool();
    Buffer buffer = pool.acquire(block_bytes);

    pool.release(std::move(buffer));

    EXPECT_TRUE(buffer.empty());
    EXPECT_EQ(buffer.data(), nullptr);
    EXPECT_EQ(pool.stats().releases, 1u);
    EXPECT_EQ(pool.stats().idle_bytes.now, block_bytes);
}

TEST_P(PoolContract, RefusesToTakeBackAnEmptyBuffer) {
    Pool pool = make_pool();
    Buffer moved_from = pool.acquire(block_bytes);
    const Buffer owner = std::move(moved_from);
    const PoolStats before = pool.stats();

    EXPECT_THROW(pool.release(Buffer{}), InvalidArgument);
    EXPECT_THROW(pool.release(std::move(moved_from)), InvalidArgument);
    EXPECT_THROW(pool.release(pool.acquire(0)), InvalidArgument);
    const auto release_nothing = [&] { pool.release(Buffer{}); };

    EXPECT_TRUE(mentions(text_of<InvalidArgument>(release_nothing), "empty"));
    EXPECT_EQ(pool.stats(), before);
}

TEST_P(PoolContract, RefusesToTakeBackABufferTwice) {
    Pool pool = make_pool({.name = "twice"});
    Buffer buffer = pool.acquire(block_bytes);
    Twin twin(buffer);
    pool.release(std::move(buffer));
    const PoolStats before = pool.stats();

    const std::string text = text_of<InvalidArgument>([&] { pool.release(std::move(twin.get())); });

    EXPECT_TRUE(mentions(text, "already released")) << text;
    EXPECT_EQ(pool.stats(), before);
}

TEST_P(PoolContract, RefusesAStaleBufferWhoseBytesAreLentAgain) {
    Pool pool = make_pool();
    Buffer buffer = pool.acquire(block_bytes);
    Twin twin(buffer);
    buffer.release();
    const Buffer next_borrower = pool.acquire(block_bytes);
    const PoolStats before = pool.stats();

    const std::string text = text_of<InvalidArgument>([&] { pool.release(std::move(twin.get())); });

    EXPECT_TRUE(mentions(text, "already released")) << text;
    EXPECT_EQ(pool.stats(), before);
    EXPECT_NE(pool.acquire(block_bytes).data(), next_borrower.data());
}

TEST_P(PoolContract, RefusesAStaleBufferWhoseBytesWereTrimmed) {
    Pool pool = make_pool();
    Buffer buffer = pool.acquire(block_bytes);
    Twin twin(buffer);
    buffer.release();
    pool.trim();
    const PoolStats before = pool.stats();

    EXPECT_THROW(pool.release(std::move(twin.get())), InvalidArgument);

    EXPECT_EQ(pool.stats(), before);
}

TEST_P(PoolContract, IgnoresAStaleBufferThatGoesOutOfScope) {
    Pool pool = make_pool();
    Buffer buffer = pool.acquire(block_bytes);
    Twin idle_now(buffer), lent_again(buffer);
    buffer.release();
    const PoolStats before = pool.stats();

    idle_now.destroy();

    EXPECT_EQ(pool.stats(), before);
    const Buffer next_borrower = pool.acquire(block_bytes);
    lent_again.destroy();
    EXPECT_EQ(pool.stats().lent_buffers.now, 1u);
    EXPECT_NE(pool.acquire(block_bytes).data(), next_borrower.data());
    expect_reconciled(pool);
}

TEST_P(PoolContract, RefusesABufferOfAnotherPoolByName) {
    Pool mine = make_pool({.name = "mine"}), theirs = make_pool({.name = "theirs"});
    Buffer foreign = theirs.acquire(block_bytes);
    const PoolStats before = mine.stats(), their_before = theirs.stats();

    const std::string text = text_of<InvalidArgument>([&] { mine.release(std::move(foreign)); });

    EXPECT_TRUE(mentions(text, "belongs to pool 'theirs'")) << text;
    EXPECT_FALSE(foreign.empty());
    EXPECT_EQ(mine.stats(), before);
    EXPECT_EQ(theirs.stats(), their_before);
    EXPECT_NO_THROW(theirs.release(std::move(foreign)));
}

TEST_P(PoolContract, EveryHandleOfOnePoolTakesItsBuffersBack) {
    Pool pool = make_pool();
    Pool copy = pool;
    Buffer buffer = pool.acquire(block_bytes);

    copy.release(std::move(buffer));

    EXPECT_EQ(pool.stats(), copy.stats());
    EXPECT_EQ(pool, copy);
    EXPECT_NE(pool, make_pool());
    EXPECT_TRUE(hits(copy, block_bytes));
}

TEST_P(PoolContract, BuffersOutliveTheirPool) {
    std::optional<Pool> pool = make_pool();
    const Buffer buffer = pool->acquire(block_bytes), other = pool->acquire(block_bytes);
    { const Buffer idle = pool->acquire(block_bytes); }

    pool.reset();

    if (has_bytes()) write_pattern(buffer.data(), buffer.size(), 5);
    EXPECT_TRUE(!has_bytes() || has_pattern(buffer.data(), buffer.size(), 5));
    EXPECT_EQ(buffer.memory(), memory());
    expect_memory_lent_at_most(2 * block_bytes);
}

TEST_P(PoolContract, BuffersOutliveTheirPoolOnOtherThreads) {
    std::vector<Buffer> buffers;
    {
        Pool pool = make_pool();
        for (int i = 0; i < 8; ++i) buffers.push_back(pool.acquire(block_bytes));
        std::thread([pool]() mutable { (void)pool.acquire(block_bytes); }).join();
    }

    std::thread([&buffers] { buffers.resize(4); }).join();
    buffers.clear();

    expect_memory_lent_at_most(0);
}

TEST_P(PoolContract, APoolEndsWhileAThreadThatUsedItRunsOn) {
    std::atomic<int> phase{0};
    std::thread other;
    {
        Pool pool = make_pool();
        other = std::thread([&phase, handle = std::optional<Pool>(pool)]() mutable {
            (void)handle->acquire(block_bytes);
            handle.reset();
            phase = 1;
            while (phase != 2) std::this_thread::yield();
        });
        while (phase != 1) std::this_thread::yield();
    }

    expect_memory_lent_at_most(0);

    Pool next = make_pool();
    EXPECT_FALSE(hits(next, block_bytes));
    phase = 2;
    other.join();
}

TEST_P(PoolContract, EverythingReturnsWhenAnExceptionPasses) {
    Pool pool = make_pool();

    const auto throw_with_two_buffers = [&pool] {
        const Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes);
        throw std::runtime_error("a user's");
    };

    EXPECT_THROW(throw_with_two_buffers(), std::runtime_error);

    EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
    EXPECT_EQ(pool.stats().idle_bytes.now, 2 * block_bytes);
}

TEST_P(PoolContract, AThreadThatEndsAfterThePoolLeavesNothingBehind) {
    std::atomic<int> phase{0};
    std::optional<Pool> pool = make_pool();
    std::thread other([&] {
        Buffer kept = pool->acquire(block_bytes);
        (void)pool->acquire(block_bytes);
        phase = 1;
        while (phase != 2) std::this_thread::yield();
    });
    while (phase != 1) std::this_thread::yield();

    pool.reset();
    phase = 2;
    other.join();

    expect_memory_lent_at_most(0);
}

}  // namespace cistern::test
