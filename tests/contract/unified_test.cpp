// Unified buffers and their pool: one test per row of what such a pool does. The device is a second
// host memory that the host may not touch but by copies.

#include "cistern/unified.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/literals.hpp"

namespace cistern::test {

namespace {

/// Stands in for a device: its own bytes, reached by copies, which it counts.
class StandInDevice final : public MemorySource {
public:
    void* allocate(std::size_t bytes, std::size_t alignment) override {
        return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    }
    void deallocate(void* data, std::size_t, std::size_t) noexcept override { std::free(data); }
    [[nodiscard]] std::string name() const override { return "stand-in"; }
    [[nodiscard]] MemoryKind kind() const noexcept override { return MemoryKind::device; }
    [[nodiscard]] int device_id() const noexcept override { return 0; }
    [[nodiscard]] bool host_accessible() const noexcept override { return false; }
    void copy(void* to, const void* from, std::size_t bytes) override {
        std::memcpy(to, from, bytes);
        ++copies;
    }

    std::atomic<int> copies = 0;
};

struct WithDevice {
    std::shared_ptr<StandInDevice> device = std::make_shared<StandInDevice>();
    UnifiedPlaces places{.device = Pool(Memory(device))};
    UnifiedOptions options{.device = Memory(device)};
};

using enum BufferState;

/// What a kernel would do: writes on the device, seen by nobody until it is copied.
void add_on_device(UnifiedBuffer<float>& buffer, float value) {
    float* const data = buffer.device();
    for (std::size_t i = 0; i < buffer.size(); ++i) data[i] += value;
    buffer.mark_device_dirty();
}

}  // namespace

TEST(UnifiedBuffer, KnowsItsShapeBeforeItIsAllocated) {
    UnifiedBuffer<double> buffer({3, 4});
    EXPECT_EQ(buffer.shape(), (std::vector<std::size_t>{3, 4}));
    EXPECT_EQ(buffer.size(), 12u);
    EXPECT_EQ(buffer.bytes(), 96u);
    EXPECT_EQ(buffer.state(), uninitialized);
    EXPECT_FALSE(buffer.is_allocated());
    EXPECT_EQ(UnifiedBuffer<float>(5).shape(), std::vector<std::size_t>{5});
    EXPECT_EQ(UnifiedBuffer<float>(std::vector<std::size_t>{}).size(), 1u);
}

TEST(UnifiedBuffer, StatesAreNumberedFromOneAndNamed) {
    EXPECT_EQ(static_cast<int>(uninitialized), 1);
    EXPECT_EQ(static_cast<int>(device_dirty), 6);
    EXPECT_EQ(to_string(host_only), "HOST_ONLY");
    EXPECT_EQ(to_string(device_dirty), "DEVICE_DIRTY");
}

TEST(UnifiedBuffer, UsedUnallocatedSaysSo) {
    UnifiedBuffer<float> buffer(5);
    EXPECT_THROW((void)buffer.host(), BufferNotAllocated);
    EXPECT_THROW((void)buffer.host_writable(), BufferNotAllocated);
    EXPECT_THROW((void)buffer.device(), BufferNotAllocated);
    EXPECT_THROW(buffer.mark_host_dirty(), BufferNotAllocated);
    EXPECT_THROW(buffer.mark_device_dirty(), BufferNotAllocated);
    EXPECT_THROW(buffer.synchronize(), BufferNotAllocated);
    EXPECT_THROW(buffer.sync_to_device(), BufferNotAllocated);
    EXPECT_THROW(buffer.sync_to_host(), BufferNotAllocated);
    EXPECT_THROW((void)buffer.to_vector(), BufferNotAllocated);
    buffer.allocate().free();
    EXPECT_THROW((void)buffer.host(), BufferNotAllocated);
}

TEST(UnifiedBuffer, WithoutADeviceTheDeviceIsTheHost) {
    UnifiedBuffer<float> buffer({4, 4});
    buffer.fill(2);
    EXPECT_EQ(buffer.state(), host_only);
    EXPECT_EQ(buffer.device(), buffer.host().data());
    buffer.mark_device_dirty();
    buffer.synchronize();
    EXPECT_EQ(buffer.state(), host_only);
    EXPECT_EQ(buffer.host()[15], 2);
}

TEST(UnifiedBuffer, AllocatesEitherSideOrBoth) {
    WithDevice with;
    UnifiedBuffer<float> both(5, with.places), host(5, with.places), device(5, with.places);
    EXPECT_EQ(both.allocate().state(), synchronized);
    EXPECT_EQ(host.allocate(true, false).state(), host_only);
    EXPECT_EQ(device.allocate(false, true).state(), device_only);
    EXPECT_EQ(with.device->copies, 0);
    host.free();
    EXPECT_EQ(host.state(), uninitialized);
}

TEST(UnifiedBuffer, CopiesOnlyWhenTheOtherSideIsNewer) {
    WithDevice with;
    UnifiedBuffer<float> buffer(100, with.places);
    buffer.fill(1);
    EXPECT_EQ(buffer.state(), host_dirty);
    EXPECT_EQ(with.device->copies, 0);

    add_on_device(buffer, 2);
    EXPECT_EQ(with.device->copies, 1);
    EXPECT_EQ(buffer.state(), device_dirty);

    EXPECT_EQ(buffer.host()[99], 3);
    EXPECT_EQ(with.device->copies, 2);
    EXPECT_EQ(buffer.state(), synchronized);
    (void)buffer.host();
    (void)buffer.device();
    buffer.synchronize();
    EXPECT_EQ(with.device->copies, 2);
}

TEST(UnifiedBuffer, EveryTransitionKeepsTheNewerBytes) {
    WithDevice with;
    UnifiedBuffer<float> buffer(8, with.places);
    buffer.allocate(true, false);
    buffer.host_writable()[0] = 1;
    EXPECT_EQ(buffer.state(), host_only);
    buffer.sync_to_device();
    EXPECT_EQ(buffer.state(), synchronized);
    EXPECT_EQ(buffer.device()[0], 1);
    buffer.host_writable()[0] = 2;
    EXPECT_EQ(buffer.state(), host_dirty);
    buffer.synchronize();
    EXPECT_EQ(buffer.device()[0], 2);
    add_on_device(buffer, 5);
    buffer.sync_to_host();
    EXPECT_EQ(buffer.state(), synchronized);
    EXPECT_EQ(buffer.host()[0], 7);

    UnifiedBuffer<float> there(8, with.places);
    there.allocate(false, true);
    there.zeros();
    EXPECT_EQ(there.state(), device_only);
    add_on_device(there, 4);
    EXPECT_EQ(there.state(), device_only);
    EXPECT_EQ(there.host()[7], 4);
    EXPECT_EQ(there.state(), synchronized);
}

TEST(UnifiedBuffer, WritingThroughHostAloneDoesNotMarkHostWritableDoes) {
    WithDevice with;
    UnifiedBuffer<float> buffer(8, with.places);
    buffer.zeros();
    EXPECT_EQ(buffer.state(), synchronized);
    (void)buffer.host();
    EXPECT_EQ(buffer.state(), synchronized);
    (void)buffer.host_writable();
    EXPECT_EQ(buffer.state(), host_dirty);
}

TEST(UnifiedBuffer, CopyFromZerosAndFillAllocateIfNeeded) {
    const std::vector<float> values{1, 2, 3};
    UnifiedBuffer<float> copied(3), zeroed(3), filled(3);
    EXPECT_EQ(copied.copy_from(values).to_vector(), values);
    EXPECT_EQ(zeroed.zeros().to_vector(), (std::vector<float>{0, 0, 0}));
    EXPECT_EQ(filled.fill(7).to_vector(), (std::vector<float>{7, 7, 7}));
    std::vector<float> out(3);
    copied.copy_to(out);
    EXPECT_EQ(out, values);
    EXPECT_THROW(copied.copy_from(std::vector<float>(4)), InvalidArgument);
    EXPECT_THROW(copied.copy_to(std::span<float>(out).first(2)), InvalidArgument);
}

TEST(UnifiedBuffer, WritingAnElementMarksTheHostSide) {
    WithDevice with;
    UnifiedBuffer<float> buffer(8, with.places);
    buffer.zeros();
    const float read = buffer[3];
    EXPECT_EQ(read, 0);
    EXPECT_EQ(buffer.state(), synchronized);
    buffer[3] = 5;
    EXPECT_EQ(buffer.state(), host_dirty);
    EXPECT_EQ(buffer.device()[3], 5);
    EXPECT_THROW((void)buffer[8], InvalidArgument);
}

TEST(UnifiedBuffer, RefusesWhatMakesNoSense) {
    WithDevice with;
    EXPECT_THROW(UnifiedBuffer<float>(-1), InvalidArgument);
    EXPECT_THROW(UnifiedBuffer<float>({2, -3}), InvalidArgument);
    EXPECT_THROW(UnifiedBuffer<double>({PTRDIFF_MAX, 3}), InvalidArgument);
    EXPECT_THROW(UnifiedBuffer<long double>(3, with.places), InvalidArgument)
        << "no device has this type";
    EXPECT_NO_THROW(UnifiedBuffer<long double>(3));
    EXPECT_EQ(UnifiedBuffer<float>({0, 5}).allocate().host().size(), 0u);
}

TEST(UnifiedPool, ReusesTheVeryObjectWhenShapeTypeAndPinningMatch) {
    UnifiedPool pool;
    auto buffer = pool.acquire<float>({10, 20});
    buffer->host_writable()[7] = 3;
    const void* const object = buffer.get();
    pool.release(std::move(buffer));
    EXPECT_EQ(buffer, nullptr);

    EXPECT_NE(static_cast<void*>(pool.acquire<float>({20, 10}).get()), object);
    EXPECT_NE(static_cast<void*>(pool.acquire<int>({10, 20}).get()), object);
    EXPECT_NE(static_cast<void*>(pool.acquire<float>({10, 20}, true).get()), object);
    const auto again = pool.acquire<float>({10, 20});
    EXPECT_EQ(again.get(), object);
    EXPECT_EQ(again->host()[7], 3) << "contents are not cleared";
}

TEST(UnifiedPool, AReacquiredBufferIsAllocatedAndInStep) {
    WithDevice with;
    UnifiedPool plain, two(with.options);
    for (UnifiedPool* pool : {&plain, &two}) {
        auto buffer = pool->acquire<float>(100);
        buffer->fill(1);
        pool->release(std::move(buffer));
        buffer = pool->acquire<float>(100);
        EXPECT_EQ(buffer->state(), pool == &plain ? host_only : synchronized);
        buffer->free();
        pool->release(std::move(buffer));
        EXPECT_TRUE(pool->acquire<float>(100)->is_allocated());
    }
}

TEST(UnifiedPool, CountsWhatItDid) {
    UnifiedPool pool;
    auto a = pool.acquire<float>(10), b = pool.acquire<float>(10);
    pool.release(std::move(a));
    a = pool.acquire<float>(10);
    pool.release(std::move(a));
    pool.release(std::move(b));
    EXPECT_EQ(pool.stats(), (UnifiedStats{.pool_size = 2,
                                          .total_acquired = 3,
                                          .total_released = 3,
                                          .cache_hits = 1,
                                          .cache_misses = 2}));
    EXPECT_EQ(pool.pool_size(), 2u);
    EXPECT_EQ(pool.total_bytes(), 80u);
    pool.clear();
    EXPECT_EQ(pool.pool_size(), 0u);
    EXPECT_EQ(pool.total_bytes(), 0u);
    EXPECT_EQ(pool.stats().total_acquired, 3u) << "clear() keeps the counters";
}

TEST(UnifiedPool, KeepsAtMostSoManyTheOldestGoingFirst) {
    UnifiedPool pool({.max_pool_size = 2});
    auto a = pool.acquire<char>(1), b = pool.acquire<char>(2), c = pool.acquire<char>(3);
    pool.release(std::move(a));
    pool.release(std::move(b));
    pool.release(std::move(c));
    EXPECT_EQ(pool.pool_size(), 2u);
    (void)pool.acquire<char>(2);
    (void)pool.acquire<char>(3);
    EXPECT_EQ(pool.stats().cache_hits, 2u);
    (void)pool.acquire<char>(1);
    EXPECT_EQ(pool.stats().cache_hits, 2u);
}

TEST(UnifiedPool, NeverKeepsABufferAboveItsLimit) {
    UnifiedPool pool({.max_buffer_bytes = 100});
    auto small = pool.acquire<char>(100), large = pool.acquire<char>(101);
    pool.release(std::move(small));
    pool.release(std::move(large));
    EXPECT_EQ(pool.pool_size(), 1u);
    EXPECT_EQ(pool.stats().total_released, 2u);
}

TEST(UnifiedPool, ReleasingTwiceOrToAnotherPoolIsAnErrorAndChangesNothing) {
    UnifiedPool pool, other;
    auto buffer = pool.acquire<float>(10);
    auto copy = buffer;
    const UnifiedStats before = other.stats();
    EXPECT_THROW(other.release(std::move(buffer)), InvalidArgument);
    EXPECT_EQ(other.stats(), before);
    EXPECT_NE(buffer, nullptr);
    pool.release(std::move(buffer));
    const UnifiedStats after = pool.stats();
    EXPECT_THROW(pool.release(std::move(copy)), InvalidArgument);
    EXPECT_THROW(pool.release(std::shared_ptr<UnifiedBuffer<float>>()), InvalidArgument);
    auto own = std::make_shared<UnifiedBuffer<float>>(3);
    EXPECT_THROW(pool.release(std::move(own)), InvalidArgument);
    EXPECT_EQ(pool.stats(), after);
}

TEST(UnifiedPool, ALeaseReleasesAlsoWhenTheBodyThrows) {
    UnifiedPool pool;
    try {
        const auto lease = pool.buffer<float>({3, 3});
        lease->fill(1);
        throw std::runtime_error("no");
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(pool.stats().total_released, 1u);
    EXPECT_EQ(pool.pool_size(), 1u);
}

TEST(UnifiedPool, PinnedFallsBackToHostMemoryAndSaysSoOnce) {
    UnifiedPool pool;
    testing::internal::CaptureStderr();
    auto a = pool.acquire<float>(10, true);
    auto b = pool.acquire<float>(11, true);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(a->pinned());
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST(UnifiedPool, ThereIsOneForTheProcess) {
    EXPECT_EQ(&memory_pool(), &memory_pool());
    const auto buffer = memory_pool().acquire<std::complex<float>>({2, 2});
    EXPECT_EQ(buffer->bytes(), 32u);
}

TEST(UnifiedPool, ServesActorsOnManyThreads) {
    WithDevice with;
    UnifiedPool pool(with.options);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&pool, t] {
            for (int i = 0; i < 300; ++i) {
                auto buffer = pool.acquire<float>({1 + i % 5, 10});
                buffer->fill(static_cast<float>(t));
                add_on_device(*buffer, 1);
                const std::vector<float> values = buffer->to_vector();
                ASSERT_EQ(std::set<float>(values.begin(), values.end()).size(), 1u);
                pool.release(std::move(buffer));
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    const UnifiedStats stats = pool.stats();
    EXPECT_EQ(stats.total_acquired, 1200u);
    EXPECT_EQ(stats.total_released, 1200u);
    EXPECT_EQ(stats.cache_hits + stats.cache_misses, 1200u);
    EXPECT_LE(stats.pool_size, 20u);
}

}  // namespace cistern::test
