// Bytes that a user gives to a pool: lent like any others, and let go through the user's deleter,
// exactly once.

#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <vector>

#include "contract/contract.hpp"

namespace cistern::test {

namespace {

/// Bytes of the user's, and how often they were let go.
class Gift {
public:
    explicit Gift(std::size_t bytes = block_bytes)
        : data_(::operator new (bytes, std::align_val_t{4_KiB})) {}
    ~Gift() { ::operator delete (data_, std::align_val_t{4_KiB}); }
    Gift(const Gift&) = delete;
    Gift& operator=(const Gift&) = delete;

    [[nodiscard]] void* data() const { return data_; }
    [[nodiscard]] int times_deleted() const { return times_deleted_; }
    std::function<void(void*)> deleter() {
        return [this](void* data) {
            EXPECT_EQ(data, data_);
            ++times_deleted_;
        };
    }

private:
    void* data_;
    int times_deleted_ = 0;
};

}  // namespace

TEST_P(PoolContract, LendsAdoptedBytes) {
    Gift gift;
    {
        Pool pool = make_pool();
        pool.adopt(gift.data(), block_bytes, gift.deleter());
        EXPECT_EQ(pool.stats().idle_bytes.now, block_bytes);
        EXPECT_EQ(pool.stats().idle_buffers.now, 1u);

        const Buffer buffer = pool.acquire(block_bytes);

        EXPECT_EQ(buffer.data(), gift.data());
        EXPECT_EQ(pool.stats().hits, 1u);
        EXPECT_EQ(pool.stats().misses, 0u);
        EXPECT_EQ(gift.times_deleted(), 0);
        expect_reconciled(pool);
    }
    EXPECT_EQ(gift.times_deleted(), 1);
}

TEST_P(PoolContract, TakesAdoptedBytesBackAndLendsThemAgain) {
    Gift gift;
    Pool pool = make_pool();
    pool.adopt(gift.data(), block_bytes, gift.deleter());

    for (int i = 0; i < 5; ++i) EXPECT_EQ(pool.acquire(block_bytes).data(), gift.data());

    EXPECT_EQ(pool.stats().hits, 5u);
    EXPECT_EQ(gift.times_deleted(), 0);
    pool.trim();
    EXPECT_EQ(gift.times_deleted(), 1);
}

TEST_P(PoolContract, TrimLetsAdoptedBytesGo) {
    Gift gift;
    Pool pool = make_pool();
    pool.adopt(gift.data(), block_bytes, gift.deleter());

    EXPECT_EQ(pool.trim(), block_bytes);

    EXPECT_EQ(gift.times_deleted(), 1);
    EXPECT_EQ(pool.stats().held_bytes.now, 0u);
    EXPECT_FALSE(hits(pool, block_bytes));
}

TEST_P(PoolContract, ALimitLetsAdoptedBytesGo) {
    Gift gift;
    Pool pool = make_pool();
    pool.adopt(gift.data(), block_bytes, gift.deleter());

    pool.set_limits({.max_idle_bytes = 0});

    EXPECT_EQ(gift.times_deleted(), 1);
    EXPECT_EQ(pool.stats().evictions_by_limit.max_idle_bytes, 1u);
}

TEST_P(PoolContract, AdoptedBytesThatALimitForbidsGoAtOnce) {
    Gift gift;
    Pool pool = make_pool({.max_idle_bytes = 0});

    pool.adopt(gift.data(), block_bytes, gift.deleter());

    EXPECT_EQ(gift.times_deleted(), 1);
    EXPECT_EQ(pool.stats().held_bytes, (Gauge{0, 0}));
    expect_reconciled(pool);
}

TEST_P(PoolContract, AdoptedBytesCountUnderMaxBytes) {
    Gift gift;
    Pool pool = make_pool({.max_bytes = 2 * block_bytes});
    const Buffer a = pool.acquire(block_bytes);
    const Buffer b = pool.acquire(block_bytes);

    pool.adopt(gift.data(), block_bytes, gift.deleter());

    EXPECT_EQ(gift.times_deleted(), 1);
    EXPECT_EQ(pool.stats().held_bytes, (Gauge{2 * block_bytes, 2 * block_bytes}));
    expect_reconciled(pool);
}

TEST_P(AnySizeContract, AdoptedBytesMakeRoomUnderMaxBytes) {
    Gift gift;
    Pool pool = make_pool({.max_bytes = 2 * block_bytes});
    pool.adopt(gift.data(), block_bytes, gift.deleter());

    EXPECT_FALSE(pool.try_acquire(2 * block_bytes).empty());

    EXPECT_EQ(gift.times_deleted(), 1);
    expect_reconciled(pool);
}

TEST_P(PoolContract, AdoptedBytesOutliveThePoolWhileTheyAreLent) {
    Gift gift;
    std::optional<Pool> pool = make_pool();
    pool->adopt(gift.data(), block_bytes, gift.deleter());
    Buffer buffer = pool->acquire(block_bytes);

    pool.reset();
    EXPECT_EQ(gift.times_deleted(), 0);
    buffer.release();

    EXPECT_EQ(gift.times_deleted(), 1);
}

TEST_P(PoolContract, AdoptedBytesAreLentAsZeroesWhenAskedFor) {
    if (!has_bytes()) GTEST_SKIP() << "this memory has addresses and no bytes";
    Gift gift;
    Pool pool = make_pool();
    write_pattern(gift.data(), block_bytes, 3);
    pool.adopt(gift.data(), block_bytes, gift.deleter());

    const Buffer buffer = pool.acquire_zeroed(block_bytes);

    EXPECT_EQ(buffer.data(), gift.data());
    EXPECT_TRUE(all_zero(buffer.data(), buffer.size()));
}

TEST_P(PoolContract, RefusedBytesRemainTheCallers) {
    Gift gift;
    Pool pool = make_pool();
    auto* const data = static_cast<std::byte*>(gift.data());

    EXPECT_THROW(pool.adopt(nullptr, block_bytes, gift.deleter()), InvalidArgument);
    EXPECT_THROW(pool.adopt(data + 8, block_bytes, gift.deleter()), InvalidArgument);
    EXPECT_THROW(pool.adopt(data, block_bytes - 8, gift.deleter()), InvalidArgument);
    EXPECT_THROW(pool.adopt(data, 0, gift.deleter()), InvalidArgument);

    EXPECT_EQ(gift.times_deleted(), 0);
    EXPECT_EQ(pool.stats(), PoolStats{});
}

TEST_P(PoolContract, AdoptsOnlyWhatIsAlignedAsItsOptionsSay) {
    Gift gift(8_KiB + block_bytes);
    Pool pool = make_pool({.alignment = 4_KiB});
    auto* const data = static_cast<std::byte*>(gift.data());

    EXPECT_THROW(pool.adopt(data + 1_KiB, block_bytes, gift.deleter()), InvalidArgument);
    EXPECT_THROW(pool.adopt(data, 1_KiB, gift.deleter()), InvalidArgument);

    EXPECT_EQ(gift.times_deleted(), 0);
}

TEST_P(PoolContract, RefusesBytesWithoutADeleter) {
    Gift gift;
    Pool pool = make_pool();

    EXPECT_THROW(pool.adopt(gift.data(), block_bytes, nullptr), InvalidArgument);

    EXPECT_EQ(pool.stats().held_bytes.now, 0u);
}

TEST_P(PoolContract, EachAdoptedBlockIsLetGoOnce) {
    std::vector<Gift> gifts(6);
    {
        Pool pool = make_pool({.max_idle_bytes = 4 * block_bytes});
        for (Gift& gift : gifts) pool.adopt(gift.data(), block_bytes, gift.deleter());
        {
            const Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes);
            const Buffer c = pool.acquire(block_bytes);
        }
        EXPECT_EQ(pool.stats().hits, 3u);
        EXPECT_EQ(pool.stats().idle_bytes.now, 4 * block_bytes);
        expect_reconciled(pool);
        pool.trim(block_bytes);
    }

    for (const Gift& gift : gifts) EXPECT_EQ(gift.times_deleted(), 1);
}

TEST(FixedBlockPool, AdoptsOnlyBlocksOfItsSize) {
    Gift gift(128_KiB);
    Pool pool{Memory::host(), {.fit = FixedBlock{64_KiB}}};

    EXPECT_THROW(pool.adopt(gift.data(), 128_KiB, gift.deleter()), InvalidArgument);
    EXPECT_THROW(pool.adopt(gift.data(), 32_KiB, gift.deleter()), InvalidArgument);

    EXPECT_EQ(gift.times_deleted(), 0);
    EXPECT_EQ(pool.stats().held_bytes.now, 0u);
}

}  // namespace cistern::test
