// Where orders meet: lanes that several threads open and close, streams that are gone, bytes that are wiped,
// captured or waited for while others ask for them.

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>

#include "cistern/cistern.h"
#include "gpu.hpp"
#include "support/reconcile.hpp"

namespace cistern::test {
namespace {

constexpr std::size_t some = 1_MiB;

using Borders = Gpu;
using BordersCalls = StandIn;

void on_threads(int count, const std::function<void(int)>& run) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back([&run, i] { run(i); });
}

// --- Lanes that come and go -------------------------------------------------------------------------

TEST_F(Borders, ThreadsOpenAndCloseTheSameStream) {
    for (const Memory& memory : {Memory::device(), Memory::pinned(), Memory::managed()}) {
        Pool pool{memory, {.max_bytes = 64 * some}};
        const cuda::Stream one = make_stream(), two = make_stream();
        on_threads(4, [&](int thread) {
            const OnThread entered(*this);
            for (int i = 0; i < 150; ++i) {
                StreamPool ordered = pool.on((i + thread) % 3 == 0 ? two : one);
                if (i % 4 == 0) continue;  // lends nothing
                const Buffer buffer =
                    ordered.acquire(some + static_cast<std::size_t>(i % 5) * some);
                EXPECT_FALSE(buffer.empty());
            }
        });
        EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
        EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
    }
}

/// The hooks keep a thread's lanes open; the bytes of a pool do not stay for that.
TEST_F(BordersCalls, ADestroyedPoolLeavesNoBytesToItsLanes) {
    const cuda::Stream stream = make_stream();
    const std::size_t before = in_use();
    for (int i = 0; i < 3; ++i) {
        const cistern_pool pool = cistern_pool_create_on(CISTERN_DEVICE, 0, nullptr);
        const cistern_buffer buffer = cistern_acquire_on(pool, 32 * some, stream);
        ASSERT_NE(buffer, 0u) << cistern_last_error();
        EXPECT_EQ(cistern_release(buffer), CISTERN_OK);
        EXPECT_GE(in_use(), before + 32 * some);
        EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
        EXPECT_EQ(in_use(), before);
    }
    // A buffer may be released after its pool, as ever.
    const cistern_pool pool = cistern_pool_create_on(CISTERN_DEVICE, 0, nullptr);
    const cistern_buffer buffer = cistern_acquire_on(pool, some, stream);
    EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
    EXPECT_EQ(cistern_release(buffer), CISTERN_OK);
    EXPECT_EQ(in_use(), before);
}

// --- Wiping -----------------------------------------------------------------------------------------

TEST_F(Borders, WipingWaitsForEveryStreamThatUsesTheBytes) {
    Pool pool{Memory::device(), {.wipe_on_release = true}};
    const cuda::Stream first = make_stream(), second = make_stream();
    StreamPool ordered = pool.on(first);
    for (int i = 0; i < 5; ++i) {
        Buffer buffer = ordered.acquire(2 * some);
        fill(first, buffer, 5);
        EXPECT_EQ(driver.synchronize(), 0);
        also_used_on(buffer, second);
        check(second, buffer, 5, late);
        if (i % 2 == 1) fill(second, buffer, 6, late);  // must not outlive the wiping
        buffer.release();
        const Buffer again = ordered.acquire(2 * some);
        check(first, again, 0, late);
    }
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Borders, WipingPageLockedBytesWaitsForTheCopiesFromThem) {
    Pool pool{Memory::pinned(), {.wipe_on_release = true}};
    const cuda::Stream stream = make_stream();
    for (int i = 0; i < 5; ++i) {
        Buffer buffer = pool.acquire(2 * some);
        std::fill_n(static_cast<unsigned char*>(buffer.data()), buffer.size(), 7);
        also_used_on(buffer, stream);
        check(stream, buffer, 7, late);
        buffer.release();
    }
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Borders, WipingWaitsForAStreamWhoseLaneIsClosed) {
    Pool pool{Memory::device(), {.wipe_on_release = true}};
    const cuda::Stream stream = make_stream();
    for (int i = 0; i < 5; ++i) {
        Buffer buffer = pool.on(stream).acquire(2 * some);
        fill(stream, buffer, 5);
        check(stream, buffer, 5, late);
        buffer.release();
        const Buffer again = pool.acquire(2 * some);
        check(nullptr, again, 0);
    }
    EXPECT_EQ(mismatches(), 0u);
}

// --- Limits -----------------------------------------------------------------------------------------

/// A hook that makes every call of one function take a while.
void slow_down(const Library& driver, const char* function) {
    driver.control->set_hook(
        [](void* slow, const char* called) {
            if (std::string_view(called) == static_cast<const char*>(slow)) {
                std::this_thread::sleep_for(std::chrono::milliseconds(30));
            }
        },
        const_cast<char*>(function));
}

TEST_F(BordersCalls, TwoThreadsStayWithinOneLimit) {
    Pool pool{Memory::managed(), {.max_bytes = 64 * some}};
    slow_down(driver, "cuMemAllocManaged");
    std::atomic<int> failed{0}, done{0};
    on_threads(2, [&](int) {
        const OnThread entered(*this);
        const Buffer buffer = pool.try_acquire(40 * some);
        (buffer.empty() ? failed : done)++;
        EXPECT_TRUE(soon([&] { return failed + done == 2; }));
    });
    EXPECT_EQ(failed, 1);
    EXPECT_EQ(pool.stats().held_bytes.peak, 40 * some);
    EXPECT_GE(calls("cuMemAllocManaged"), 1u);
}

TEST_F(Borders, WhoIsAtTheLimitWaitsForBytesThatAnotherBrings) {
    Pool pool{Memory::pinned(), {.max_bytes = 8 * some, .max_idle_bytes = 8 * some}};
    const cuda::Stream stream = make_stream();
    for (int i = 0; i < 5; ++i) {
        for (int half = 0; half < 2; ++half) {
            Buffer buffer = pool.acquire(4 * some);
            also_used_on(buffer, stream);
            check(stream, buffer.data(), 1, *static_cast<unsigned char*>(buffer.data()), late);
            buffer.release();
        }
        on_threads(2, [&](int) {
            const OnThread entered(*this);
            EXPECT_FALSE(pool.try_acquire(4 * some).empty()) << "it only has to wait";
        });
    }
}

/// What the default stream does with bytes of a stream that is not named any more, that stream does not wait for.
TEST_F(Borders, AnOldPlaceIsNotLentBeforeItsCopyIsMade) {
    const cuda::Stream stream = make_stream();
    Pool pool{Memory::device()}, other{Memory::device()};
    const Buffer slow = other.acquire(some);
    for (int i = 0; i < 5; ++i) {
        Buffer buffer = pool.on(stream).acquire(2 * some);
        fill(stream, buffer, 5);
        const Buffer next = pool.on(stream).acquire(2 * some);  // in the way
        fill(nullptr, slow, 1, late);
        pool.grow(buffer, 32 * some);
        StreamPool ordered = pool.on(stream);
        const Buffer again = ordered.acquire(2 * some);
        fill(stream, again, 9);
        check(nullptr, buffer.data(), 2 * some, 5);
        EXPECT_EQ(mismatches(), 0u);
    }
}

TEST_F(Borders, BytesAreLentAfterTheirWiping) {
    const cuda::Stream stream = make_stream();
    Pool pool{Memory::device(), {.wipe_on_release = true}};
    for (int i = 0; i < 20; ++i) {
        Buffer buffer = pool.on(stream).acquire(2 * some);
        buffer.release();
        StreamPool ordered = pool.on(stream);
        const Buffer again = ordered.acquire(2 * some);
        fill(stream, again, 9);
        check(stream, again, 9, late);
    }
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Borders, BytesOfAThreadsDefaultStreamAreWipedInItsOrder) {
    const auto per_thread = reinterpret_cast<cuda::Stream>(std::uintptr_t{2});
    Pool pool{Memory::device(), {.max_bytes = 8 * some, .wipe_on_release = true}};
    Buffer buffer;
    std::optional<StreamPool> ordered;
    std::thread([&] {
        const OnThread entered(*this);
        ordered.emplace(pool.on(per_thread));
        buffer = ordered->acquire(6 * some);
        fill(per_thread, buffer, 7, late);
    }).join();
    buffer.release();  // here that handle is another stream
    EXPECT_THAT(read(pool.acquire(6 * some)), testing::Each(0));
}

TEST_F(Borders, BytesOfAStreamThatIsCapturedNowAreWipedBesideIt) {
    for (const Memory& memory : {Memory::device(), Memory::pinned()}) {
        Pool pool{memory, {.max_bytes = 8 * some, .wipe_on_release = true}};
        const cuda::Stream captured = make_stream(), reader = make_stream(), stream = make_stream();
        StreamPool ordered = pool.on(captured);
        for (const bool also_used : {false, true}) {
            Buffer buffer = ordered.acquire(6 * some);
            fill(captured, buffer, 7);
            EXPECT_EQ(driver.stream_synchronize(captured), 0);
            if (also_used) also_used_on(buffer, reader);
            check(also_used ? reader : captured, buffer, 7, late);
            ASSERT_EQ(driver.begin_capture(captured, capture_relaxed), 0);
            buffer.release();
            cuda::Graph graph = nullptr, instance = nullptr;
            ASSERT_EQ(driver.end_capture(captured, &graph), 0) << "the pool has ended it";
            ASSERT_EQ(driver.instantiate(&instance, graph, 0), 0);
            Buffer again = pool.acquire(6 * some);
            EXPECT_THAT(read(again), testing::Each(0));
            fill(nullptr, again, 5);
            EXPECT_EQ(driver.synchronize(), 0);
            EXPECT_EQ(driver.launch_graph(instance, stream), 0);
            EXPECT_EQ(driver.synchronize(), 0);
            check(nullptr, again, 5);
            EXPECT_EQ(mismatches(), 0u) << "the graph has part in it";
            EXPECT_EQ(driver.destroy_instance(instance), 0);
            EXPECT_EQ(driver.destroy_graph(graph), 0);
        }
    }
}

TEST_F(Borders, AdoptedBytesAreWipedBeforeTheyGo) {
    cuda::Address data = 0;
    ASSERT_EQ(driver.allocate(&data, 2 * some), 0);
    std::vector<unsigned char> last(2 * some, 1);
    {
        Pool pool{Memory::device(), {.wipe_on_release = true}};
        pool.adopt(reinterpret_cast<void*>(data), 2 * some, [&](void* bytes) {
            const auto to = reinterpret_cast<cuda::Address>(last.data());
            EXPECT_EQ(driver.copy(to, reinterpret_cast<cuda::Address>(bytes), last.size()), 0);
        });
        const cuda::Stream stream = make_stream();
        Buffer buffer = pool.on(stream).acquire(2 * some);
        ASSERT_EQ(buffer.data(), reinterpret_cast<void*>(data));
        fill(stream, buffer, 7, late);
        Limits limits = limits_of(pool.options());
        limits.max_idle_bytes = 0;
        pool.set_limits(limits);
        buffer.release();
    }
    EXPECT_THAT(last, testing::Each(0));
    EXPECT_EQ(driver.free(data), 0);
}

TEST_F(Borders, BytesOfAGraphAreWipedWhenItIsGone) {
    Pool pool{Memory::device(), {.max_bytes = 8 * some, .wipe_on_release = true}};
    const cuda::Stream captured = make_stream(), stream = make_stream();
    ASSERT_EQ(driver.begin_capture(captured, capture_relaxed), 0);
    Buffer buffer = pool.on(captured).acquire(6 * some);
    fill(captured, buffer, 7);
    cuda::Graph graph = nullptr, instance = nullptr;
    ASSERT_EQ(driver.end_capture(captured, &graph), 0);
    destroy(captured);
    buffer.release();
    ASSERT_EQ(driver.instantiate(&instance, graph, 0), 0);
    EXPECT_EQ(driver.launch_graph(instance, stream), 0);
    EXPECT_TRUE(pool.try_acquire(6 * some).empty()) << "it is the graph's";
    EXPECT_EQ(driver.stream_synchronize(stream), 0);
    EXPECT_EQ(driver.destroy_instance(instance), 0);
    EXPECT_EQ(driver.destroy_graph(graph), 0);
    const Buffer again = acquired_soon(pool, 6 * some);
    ASSERT_FALSE(again.empty());
    EXPECT_THAT(read(again), testing::Each(0));
}

// --- Captures ---------------------------------------------------------------------------------------

TEST_F(Borders, APoolLeavesTheCaptureOfABlockingStreamAlone) {
    constexpr unsigned blocking = 0;
    const std::size_t before = driver.is_stand_in() ? driver.control->bytes_in_use(0) : 0;
    Pool pool{Memory::device()};
    const cuda::Stream captured = make_stream(blocking), beside = make_stream();
    StreamPool ordered = pool.on(beside);
    { const Buffer idle = pool.acquire(8 * some); }  // of the legacy stream
    ASSERT_EQ(driver.begin_capture(captured, capture_relaxed), 0);
    {
        const Buffer buffer = ordered.acquire(6 * some);  // would cross, and now may not
        fill(beside, buffer, 3);
        check(beside, buffer, 3);
        EXPECT_GE(pool.trim(), 8 * some);
    }
    cuda::Graph graph = nullptr;
    EXPECT_EQ(driver.end_capture(captured, &graph), 0) << "the pool has ended it";
    EXPECT_EQ(driver.destroy_graph(graph), 0);
    EXPECT_EQ(mismatches(), 0u);
    (void)pool.stats();  // what had to wait goes with the next look
    if (driver.is_stand_in()) {
        EXPECT_LE(driver.control->bytes_in_use(0), before + 8 * some);
    }
}

TEST_F(BordersCalls, WhatACaptureHeldBackServesAfterIt) {
    constexpr unsigned blocking = 0;
    const cuda::Stream captured = make_stream(blocking), stream = make_stream();
    std::size_t total = 0;
    ASSERT_EQ(driver.device_total(&total, 0), 0);
    Pool pool{Memory::device()};
    const std::size_t most = (total - in_use()) / 4 * 3 / some * some;
    { const Buffer large = pool.acquire(most); }  // of the legacy stream, which cannot be asked
    ASSERT_EQ(driver.begin_capture(captured, capture_relaxed), 0);
    EXPECT_GE(pool.trim(), most);
    EXPECT_GE(in_use(), most) << "it waits for the end of the capture";
    cuda::Graph graph = nullptr;
    ASSERT_EQ(driver.end_capture(captured, &graph), 0);
    EXPECT_EQ(driver.destroy_graph(graph), 0);
    EXPECT_FALSE(pool.on(stream).try_acquire(most).empty()) << "and is there again";
}

TEST_F(Borders, ALimitIsOneOfParkedBytesToo) {
    Pool pool{Memory::pinned()};
    const cuda::Stream stream = make_stream();
    Buffer buffer = pool.acquire(8 * some);
    also_used_on(buffer, stream);
    fill(stream, buffer, 1, late);
    buffer.release();
    Limits limits = limits_of(pool.options());
    limits.max_bytes = limits.max_idle_bytes = 4 * some;
    pool.set_limits(limits);
    EXPECT_LE(pool.stats().held_bytes.now, 4 * some);
    EXPECT_TRUE(pool.try_acquire(64 * some).empty());
    EXPECT_FALSE(pool.try_acquire(4 * some).empty());
}

TEST_F(Borders, WhatIsNoStreamsIsFreedByTheHooksToo) {
    Pool host;
    PoolAllocator<unsigned char> allocator{host};
    unsigned char* const data = allocator.allocate(1000);
    cistern_cuda_free(data, 1000, 0, make_stream());
    EXPECT_EQ(host.stats().lent_buffers.now, 0u);
}

TEST_F(Borders, ACaptureTakesNoMoreThanItAsksFor) {
    Pool pool{Memory::device(), {.max_bytes = 64 * some, .max_idle_bytes = 64 * some}};
    const cuda::Stream stream = make_stream(), other = make_stream();
    StreamPool outside = pool.on(other);
    std::optional<Buffer> first = outside.acquire(16 * some);
    const Buffer between = outside.acquire(16 * some);
    std::optional<Buffer> second = outside.acquire(16 * some);
    const Buffer last = outside.acquire(16 * some);
    first.reset();
    second.reset();  // two holes of 16, nothing else
    ASSERT_EQ(driver.begin_capture(stream, capture_relaxed), 0);
    {
        StreamPool inside = pool.on(stream);
        const Buffer large = inside.try_acquire(32 * some);
        EXPECT_FALSE(large.empty()) << "the idle bytes can be given up for it";
    }
    cuda::Graph graph = nullptr;
    EXPECT_EQ(driver.end_capture(stream, &graph), 0);
    EXPECT_EQ(driver.destroy_graph(graph), 0);
}

TEST_F(BordersCalls, HooksAskNothingAboutTheDefaultStream) {
    const auto pair = [] {
        cistern_cuda_free(cistern_cuda_malloc(2 * some, 0, nullptr), 0, 0, nullptr);
    };
    for (int i = 0; i < 3; ++i) pair();
    int called = 0;
    driver.control->set_hook([](void* count, const char*) { ++*static_cast<int*>(count); },
                             &called);
    for (int i = 0; i < 100; ++i) pair();
    driver.control->set_hook(nullptr, nullptr);
    EXPECT_EQ(called, 0);
}

// --- Streams that others name -----------------------------------------------------------------------

TEST_F(Borders, ASecondStreamOfAHookMayBeGoneBeforeTheRelease) {
    const cuda::Stream stream = make_stream();
    for (int i = 0; i < 5; ++i) {
        void* const data = cistern_cuda_malloc(2 * some, 0, stream);
        ASSERT_NE(data, nullptr) << cistern_last_error();
        EXPECT_EQ(driver.synchronize(), 0);
        const cuda::Stream side = make_stream();
        fill(side, data, 2 * some, 4);
        check(side, data, 2 * some, 4, late);
        cistern_cuda_used_on(data, side);
        destroy(side);
        cistern_cuda_free(data, 2 * some, 0, stream);
        void* const again = cistern_cuda_malloc(2 * some, 0, stream);
        fill(stream, again, 2 * some, 9);
        cistern_cuda_free(again, 2 * some, 0, stream);
    }
    EXPECT_EQ(mismatches(), 0u);
    (void)default_pool(MemoryKind::device).trim();
    EXPECT_EQ(default_pool(MemoryKind::device).stats().idle_bytes.now, 0u);
}

TEST_F(Borders, BytesFreedOnAnotherStreamAreLentAfterItsWork) {
    const cuda::Stream first = make_stream(), second = make_stream();
    for (int i = 0; i < 5; ++i) {
        void* const data = cistern_cuda_malloc(2 * some, 0, first);
        ASSERT_NE(data, nullptr) << cistern_last_error();
        EXPECT_EQ(driver.synchronize(), 0);
        fill(second, data, 2 * some, 4);
        check(second, data, 2 * some, 4, late);
        cistern_cuda_free(data, 2 * some, 0, second);
        void* const again = cistern_cuda_malloc(2 * some, 0, first);
        fill(first, again, 2 * some, 9);
        cistern_cuda_free(again, 2 * some, 0, first);
    }
    EXPECT_EQ(mismatches(), 0u);
    unsigned char ours = 0;
    cistern_cuda_free(&ours, 1, 0, first);
    EXPECT_EQ(cistern_last_error_code(), CISTERN_INVALID_ARGUMENT);
    (void)default_pool(MemoryKind::device).trim();
    EXPECT_EQ(default_pool(MemoryKind::device).stats().idle_bytes.now, 0u);
}

TEST_F(Borders, ACopyOnAStreamWaitsForTheLastBorrower) {
    UnifiedPool buffers{{.max_pool_size = 0, .device = Memory::device()}};
    const cuda::Stream stream = make_stream();
    for (int i = 0; i < 5; ++i) {
        auto last = buffers.acquire<unsigned char>(2 * some);
        fill(nullptr, last->device(), 2 * some, 1,
             late);  // still at work when the bytes are lent again
        buffers.release(std::move(last));
        auto next = buffers.acquire<unsigned char>(2 * some);
        std::ranges::fill(next->host_writable(), static_cast<unsigned char>(8));
        next->sync_to_device(stream);
        EXPECT_EQ(driver.synchronize(), 0);
        check(stream, next->device(), 2 * some, 8);
        EXPECT_EQ(driver.synchronize(), 0);
    }
    EXPECT_EQ(mismatches(), 0u);
}

}  // namespace
}  // namespace cistern::test
