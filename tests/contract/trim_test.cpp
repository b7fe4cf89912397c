// Giving idle bytes back: on demand, and in the order that the options name.

#include <atomic>
#include <thread>
#include <vector>

#include "contract/contract.hpp"

namespace cistern::test {

TEST_P(PoolContract, TrimGivesBackAllIdleBytes) {
    Pool pool = make_pool();
    {
        const Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes);
        const Buffer c = pool.acquire(block_bytes);
    }

    EXPECT_EQ(pool.trim(), 3 * block_bytes);

    EXPECT_EQ(pool.stats().idle_bytes.now, 0u);
    EXPECT_EQ(pool.stats().idle_buffers.now, 0u);
    EXPECT_EQ(pool.stats().held_bytes.now, 0u);
    expect_memory_lent_at_most(0);
    EXPECT_FALSE(hits(pool, block_bytes));
}

TEST_P(PoolContract, TrimIsNoEviction) {
    Pool pool = make_pool();
    { const Buffer buffer = pool.acquire(block_bytes); }

    pool.trim();

    EXPECT_EQ(pool.stats().evictions, 0u);
}

TEST_P(PoolContract, TrimOfNothingGivesBackNothing) {
    Pool pool = make_pool();
    const Buffer lent = pool.acquire(block_bytes);

    EXPECT_EQ(pool.trim(), 0u);
    EXPECT_EQ(pool.stats().held_bytes.now, block_bytes);
}

TEST_P(PoolContract, TrimLeavesWhatIsLentAlone) {
    Pool pool = make_pool();
    const Buffer lent = pool.acquire(block_bytes);
    if (has_bytes()) write_pattern(lent.data(), lent.size(), 7);
    { const Buffer idle = pool.acquire(block_bytes); }

    EXPECT_EQ(pool.trim(), block_bytes);

    EXPECT_EQ(pool.stats().held_bytes.now, block_bytes);
    EXPECT_TRUE(!has_bytes() || has_pattern(lent.data(), lent.size(), 7));
}

TEST_P(WholeBlockContract, TrimKeepsAsMuchAsItMay) {
    Pool pool = make_pool();
    {
        const Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes);
        const Buffer c = pool.acquire(block_bytes);
    }

    EXPECT_EQ(pool.trim(3 * block_bytes), 0u);
    EXPECT_EQ(pool.trim(2 * block_bytes), block_bytes);
    EXPECT_EQ(pool.trim(2 * block_bytes - 1), block_bytes);

    EXPECT_EQ(pool.stats().idle_bytes.now, block_bytes);
}

TEST_P(PoolContract, TrimReturnsWhatHeldBytesFellBy) {
    Pool pool = make_pool();
    std::vector<Buffer> lent;
    for (int i = 0; i < 9; ++i) lent.push_back(pool.acquire(block_bytes));
    for (std::size_t i = 0; i < lent.size(); i += 2) lent[i].release();

    for (const std::size_t keep : {4 * block_bytes, 2 * block_bytes + 5, std::size_t{1}}) {
        const std::size_t before = pool.stats().held_bytes.now;

        const std::size_t given_back = pool.trim(keep);

        EXPECT_LE(pool.stats().idle_bytes.now, keep);
        EXPECT_EQ(given_back, before - pool.stats().held_bytes.now);
        expect_reconciled(pool);
    }
}

TEST_P(PoolContract, TrimReachesTheBytesThatOtherThreadsKeep) {
    Pool pool = make_pool();
    std::atomic<int> phase{0};
    std::thread other([&] {
        for (int i = 0; i < 10; ++i) (void)pool.acquire(block_bytes);
        phase = 1;
        while (phase != 2) std::this_thread::yield();
        (void)pool.acquire(block_bytes);  // its magazine still works
    });
    while (phase != 1) std::this_thread::yield();

    EXPECT_EQ(pool.trim(), block_bytes);

    EXPECT_EQ(pool.stats().idle_bytes.now, 0u);
    phase = 2;
    other.join();
    EXPECT_EQ(pool.stats().misses, 2u);
    expect_reconciled(pool);
}

namespace {

struct Order {
    const char* name;
    Evict evict;
    std::size_t goes_first;
    friend void PrintTo(const Order& o, std::ostream* out) { *out << o.name; }
};

/// Blocks of 128, 64 and 192 KiB, released in this order; 320 KiB may stay.
class EvictionOrder : public testing::TestWithParam<std::tuple<Order, FitCase>> {
protected:
    static constexpr std::size_t sizes[] = {128_KiB, 64_KiB, 192_KiB};
    static constexpr std::size_t cap = 320_KiB;

    Pool make_pool(std::size_t max_idle_bytes) {
        return Pool{Memory::simulated(),
                    {.fit = std::get<1>(GetParam()).fit,
                     .max_idle_bytes = max_idle_bytes,
                     .evict = std::get<0>(GetParam()).evict}};
    }
    static void release_all(Pool& pool) {
        Buffer a = pool.acquire(sizes[0]), b = pool.acquire(sizes[1]), c = pool.acquire(sizes[2]);
        a.release();
        b.release();
        c.release();
    }
    static void expect_one_gone(Pool& pool) {
        const std::size_t gone = std::get<0>(GetParam()).goes_first;
        EXPECT_EQ(pool.stats().idle_bytes.now, 384_KiB - gone);
        EXPECT_EQ(pool.stats().idle_buffers.now, 2u);
        for (const std::size_t bytes : sizes) {
            if (bytes == gone) continue;
            EXPECT_TRUE(hits(pool, bytes)) << bytes / 1_KiB << " KiB should have stayed";
        }
    }
};

}  // namespace

TEST_P(EvictionOrder, DecidesWhatALimitThrowsOut) {
    Pool pool = make_pool(cap);

    release_all(pool);

    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_bytes, 1u);
    expect_one_gone(pool);
}

TEST_P(EvictionOrder, DecidesWhatALowerLimitThrowsOut) {
    Pool pool = make_pool(no_limit);
    release_all(pool);

    pool.set_limits({.max_idle_bytes = cap});

    expect_one_gone(pool);
}

TEST_P(EvictionOrder, DecidesWhatFewerBuffersThrowOut) {
    Pool pool = make_pool(no_limit);
    release_all(pool);

    pool.set_limits({.max_idle_buffers = 2});

    expect_one_gone(pool);
}

TEST_P(EvictionOrder, DecidesWhatTrimGivesBack) {
    Pool pool = make_pool(no_limit);
    release_all(pool);

    EXPECT_EQ(pool.trim(cap), std::get<0>(GetParam()).goes_first);

    expect_one_gone(pool);
}

INSTANTIATE_TEST_SUITE_P(
    Of, EvictionOrder,
    testing::Combine(testing::Values(Order{"Oldest", Evict::oldest, 128_KiB},
                                     Order{"Smallest", Evict::smallest, 64_KiB},
                                     Order{"Largest", Evict::largest, 192_KiB}),
                     testing::Values(FitCase{"ExactFit", ExactFit{}},
                                     FitCase{"BestFit", BestFit{.max_waste = 0.25}})),
    [](const auto& c) { return name_of(c); });

TEST_P(WholeBlockContract, ReuseMakesABlockYoungAgain) {
    Pool pool = make_pool({.max_idle_buffers = 2, .evict = Evict::oldest});
    Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes);
    Buffer c = pool.acquire(block_bytes);
    const void* const block_of_a = a.data();
    const void* const block_of_c = c.data();
    a.release();
    b.release();
    b = pool.acquire(block_bytes);
    a = pool.acquire(block_bytes);
    b.release();  // now b is idle for longer than a
    a.release();

    c.release();

    const Buffer first = pool.acquire(block_bytes), second = pool.acquire(block_bytes);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_buffers, 1u);
    EXPECT_EQ(first.data(), block_of_c);
    EXPECT_EQ(second.data(), block_of_a);
}

}  // namespace cistern::test
