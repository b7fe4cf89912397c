// Page-locked memory: what the host writes at once and devices copy later.

#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "gpu.hpp"
#include "support/reconcile.hpp"

namespace cistern::test {
namespace {

class Pinned : public Gpu {
protected:
    static cuda::Address at(const Buffer& buffer) {
        return reinterpret_cast<cuda::Address>(buffer.data());
    }
    cuda::Result copy(const Buffer& to, const Buffer& from, cuda::Stream stream) {
        return driver.copy_async(at(to), at(from), from.size(), stream);
    }
};

TEST_F(Pinned, EveryBlockCanBeCopiedInOneGo) {
    Pool pinned{Memory::pinned()}, device{Memory::device()};
    const cuda::Stream stream = make_stream();
    const Buffer target = device.acquire(6_MiB);
    std::minstd_rand random(7);
    std::deque<Buffer> kept;
    for (int i = 0; i < 200; ++i) {
        kept.push_back(pinned.acquire(1 + random() % 5_MiB));
        ASSERT_EQ(copy(target, kept.back(), stream), 0) << "block " << i;
        ASSERT_EQ(driver.stream_synchronize(stream), 0);
        if (kept.size() > 12) kept.erase(kept.begin() + static_cast<int>(random() % 12));
    }
}

TEST_F(Pinned, GrownBlocksToo) {
    Pool pinned{Memory::pinned()}, device{Memory::device()};
    const cuda::Stream stream = make_stream();
    const Buffer target = device.acquire(40_MiB);
    Buffer buffer = pinned.acquire(1_MiB);
    for (const std::size_t bytes : {3_MiB, 9_MiB, 40_MiB}) {
        std::memset(buffer.data(), 3, buffer.size());
        const std::size_t was = buffer.size();
        pinned.grow(buffer, bytes);
        EXPECT_EQ(static_cast<unsigned char*>(buffer.data())[was - 1], 3);
        EXPECT_EQ(copy(target, buffer, stream), 0) << bytes;
        ASSERT_EQ(driver.stream_synchronize(stream), 0);
    }
}

TEST_F(Pinned, SizesAreNotRoundedToPowersOfTwo) {
    for (const std::size_t bytes : {129_MiB + 512_KiB, 17_MiB + 512_KiB}) {
        Pool pool{Memory::pinned()};
        const Buffer buffer = pool.acquire(bytes);
        EXPECT_LE(pool.stats().held_bytes.now, bytes + bytes / 8);
    }
}

TEST_F(Pinned, ABufferOfAStreamIsLentAgainOnlyWhenItsWorkIsDone) {
    constexpr std::size_t bytes = 1_MiB;
    Pool pinned{Memory::pinned()}, device{Memory::device()};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pinned.on(stream);
    const Buffer target = device.on(stream).acquire(bytes), busy = device.on(stream).acquire(bytes);
    for (unsigned char i = 0; i < 20; ++i) {
        {
            const Buffer source = ordered.acquire(bytes);
            std::memset(source.data(), i, bytes);
            fill(stream, busy, 0, late);
            ASSERT_EQ(copy(target, source, stream), 0);
            check(stream, target, i);
        }
        const Buffer next = pinned.acquire(bytes);
        std::memset(next.data(), 255, bytes);
    }
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_EQ(contradictions_at_rest(pinned.stats(), limits_of(pinned.options())), "");
}

TEST_F(Pinned, SoIsOneThatAStreamUsesToo) {
    constexpr std::size_t bytes = 1_MiB;
    Pool pinned{Memory::pinned()}, device{Memory::device()};
    const cuda::Stream stream = make_stream();
    const Buffer target = device.on(stream).acquire(bytes), busy = device.on(stream).acquire(bytes);
    for (unsigned char i = 0; i < 20; ++i) {
        {
            Buffer source = pinned.acquire(bytes);
            std::memset(source.data(), i, bytes);
            fill(stream, busy, 0, late);
            ASSERT_EQ(copy(target, source, stream), 0);
            check(stream, target, i);
            also_used_on(source, stream);
        }
        const Buffer next = pinned.acquire(bytes);
        std::memset(next.data(), 255, bytes);
    }
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Pinned, BuffersOfStreamsComeBack) {
    Pool pool{Memory::pinned(), {.max_bytes = 16_MiB}};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pool.on(stream);
    for (int i = 0; i < 20; ++i) {
        const Buffer buffer = ordered.acquire(6_MiB);
        fill(stream, buffer, 1, late);
    }
    EXPECT_LE(pool.stats().held_bytes.peak, 16_MiB);
}

TEST_F(Pinned, IdleBytesGoBackBeforeThePoolGrowsWithoutBoundsThoughNobodyHasPaid) {
    Pool pool{Memory::pinned()};
    std::vector<Buffer> kept(140);
    for (Buffer& each : kept) {  // spends what a new pool may
        pool.acquire(8_MiB).release();
        each = pool.acquire(10_MiB);
    }
    EXPECT_GE(pool.stats().moves, 100u);
    kept.resize(70);

    for (std::size_t bytes = 12_MiB; bytes <= 100_MiB; bytes += 4_MiB) {
        Buffer larger = pool.acquire(bytes);  // nothing that is released fits it
    }

    const PoolStats stats = pool.stats();
    EXPECT_LE(stats.held_bytes.peak, stats.lent_bytes.peak * 3 / 2);
}

using PinnedCalls = StandIn;

TEST_F(PinnedCalls, TrimUnregistersWhatWasRegistered) {
    const auto registered = calls("cuMemHostRegister_v2"), freed = calls("cuMemHostUnregister");
    {
        Pool pool{Memory::pinned()};
        { const Buffer one = pool.acquire(20_MiB), two = pool.acquire(3_MiB); }
        EXPECT_GT(calls("cuMemHostRegister_v2"), registered);
        EXPECT_GE(pool.trim(), 23_MiB);
        EXPECT_EQ(calls("cuMemHostUnregister") - freed, calls("cuMemHostRegister_v2") - registered);
        EXPECT_EQ(pool.stats().held_bytes.now, 0u);
        const Buffer again = pool.acquire(20_MiB);
        std::memset(again.data(), 1, again.size());
    }
    EXPECT_EQ(calls("cuMemHostUnregister") - freed, calls("cuMemHostRegister_v2") - registered);
}

}  // namespace
}  // namespace cistern::test
