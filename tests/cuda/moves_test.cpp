// Segments that move to where a pool grows: the host does not wait, and what streams still do at the old place comes
// before what is done at the new one.

#include <random>

#include "gpu.hpp"
#include "support/reconcile.hpp"
#include "support/scale.hpp"
#include "support/threads.hpp"

namespace cistern::test {
namespace {

using Moved = Gpu;
using MovedCalls = StandIn;

/// Leaves 64 idle MiB that nothing of more bytes can use, unless they move.
template <class From>
Buffer leave_a_gap(From& from) {
    Buffer gap = from.acquire(64_MiB), after_it = from.acquire(2_MiB);
    gap.release();
    return after_it;
}

TEST_F(MovedCalls, SegmentsCostNoWaitAndNoNewHandle) {
    Pool pool{Memory::device()};
    const Buffer after_gap = leave_a_gap(pool);
    const auto created = calls("cuMemCreate"), unmapped = calls("cuMemUnmap"), waits = host_waits();
    const std::size_t used = in_use();

    const Buffer larger = pool.acquire(66_MiB);

    EXPECT_EQ(pool.stats().moves, 1u);
    EXPECT_EQ(pool.stats().moved_bytes, 64_MiB);
    EXPECT_EQ(pool.stats().held_bytes.now, 68_MiB);
    EXPECT_LE(calls("cuMemCreate") - created, 1u) << "for the two MiB that there were not";
    EXPECT_EQ(calls("cuMemUnmap"), unmapped);
    EXPECT_EQ(host_waits(), waits);
    EXPECT_EQ(in_use(), used + 2_MiB);
}

TEST_F(MovedCalls, SegmentsOfTheLargestHoleGoFirstSoThatFewHandlesMoveAndSmallerHolesStay) {
    Pool pool{Memory::device()};
    Buffer older = pool.acquire(12_MiB);
    const Buffer after_older = pool.acquire(2_MiB);
    Buffer largest = pool.acquire(48_MiB);
    const Buffer after_largest = pool.acquire(2_MiB);
    older.release();
    largest.release();
    const auto mapped = calls("cuMemMap");

    const Buffer larger = pool.acquire(50_MiB);
    const Buffer fits_older = pool.acquire(10_MiB);

    EXPECT_EQ(pool.stats().moved_bytes, 50_MiB);
    EXPECT_LE(calls("cuMemMap") - mapped, 7u) << "six of 8 MiB, one of 2 MiB";
    EXPECT_EQ(pool.stats().held_bytes.now, 64_MiB) << "all that there was";
}

TEST_F(MovedCalls, SegmentsThatAreLargeGoFirstEvenIfTheirHoleIsNotTheLargest) {
    Pool pool{Memory::device()};
    std::vector<Buffer> small(3);
    for (Buffer& each : small) each = pool.acquire(12_MiB);  // six handles each
    const Buffer after_small = pool.acquire(2_MiB);
    Buffer large = pool.acquire(24_MiB);  // six handles, too
    const Buffer after_large = pool.acquire(2_MiB);
    small.clear();
    large.release();
    const auto mapped = calls("cuMemMap");

    const Buffer larger = pool.acquire(38_MiB);

    EXPECT_EQ(pool.stats().moved_bytes, 38_MiB);
    EXPECT_LE(calls("cuMemMap") - mapped, 13u) << "six of 4 MiB, seven of 2 MiB";
}

TEST_F(Moved, BytesAreWrittenAfterWhatIsDoneAtTheOldPlace) {
    for (const bool crosses : {false, true}) {
        SCOPED_TRACE(crosses ? "on another stream" : "on the same stream");
        Pool pool{Memory::device()};
        const cuda::Stream first = make_stream(), second = crosses ? make_stream() : first;
        StreamPool on_first = pool.on(first), on_second = pool.on(second);
        Buffer gap = on_first.acquire(64_MiB);
        const Buffer after_it = on_first.acquire(2_MiB);
        fill(first, gap, 1, late);
        check(first, gap, 1, late);
        gap.release();

        const Buffer larger = on_second.acquire(66_MiB);
        fill(second, larger, 2);
        check(second, larger, 2);

        EXPECT_EQ(pool.stats().moves, 1u);
        EXPECT_EQ(mismatches(), 0u);
    }
}

TEST_F(MovedCalls, BytesOfAnotherStreamMakeNoHostWait) {
    Pool pool{Memory::device()};
    StreamPool on_first = pool.on(make_stream()), on_second = pool.on(make_stream());
    const Buffer after_gap = leave_a_gap(on_first);
    const auto waits = host_waits();

    const Buffer larger = on_second.acquire(66_MiB);

    EXPECT_EQ(pool.stats().moves, 1u);
    EXPECT_EQ(host_waits(), waits);
}

TEST_F(MovedCalls, BytesGoBackWithAllTheirPlaces) {
    const std::size_t used = in_use();
    Pool pool{Memory::device()};
    Buffer after_gap = leave_a_gap(pool), larger = pool.acquire(66_MiB);
    ASSERT_EQ(pool.stats().moves, 1u);
    after_gap.release();
    larger.release();

    EXPECT_EQ(pool.trim(0), 68_MiB);

    EXPECT_EQ(pool.stats().held_bytes.now, 0u);
    EXPECT_EQ(in_use(), used);
}

TEST_F(MovedCalls, BytesGoBackWithThePoolAndItsLastBuffer) {
    const std::size_t used = in_use();
    const std::size_t ranges = driver.control->ranges();
    Buffer larger;
    {
        Pool pool{Memory::device()};
        const Buffer after_gap = leave_a_gap(pool);
        larger = pool.acquire(66_MiB);
        ASSERT_EQ(pool.stats().moves, 1u);
    }
    fill(nullptr, larger, 3, late);
    larger.release();

    EXPECT_EQ(in_use(), used);
    EXPECT_EQ(driver.control->ranges(), ranges);
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(MovedCalls, BytesLeaveNoStreamBehind) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    {
        StreamPool ordered = pool.on(stream);
        const Buffer after_gap = leave_a_gap(ordered);
        ordered.acquire(66_MiB).release();
        ASSERT_EQ(pool.stats().moves, 1u);
    }
    destroy(stream);
    ASSERT_EQ(mismatches(), 0u);  // all is done
    const auto made = calls("cuEventCreate"), dropped = calls("cuEventDestroy_v2");

    for (int i = 0; i < 3; ++i) static_cast<void>(pool.on(make_stream()));

    EXPECT_EQ(calls("cuEventDestroy_v2") - dropped, calls("cuEventCreate") - made + 1);
}

/// Grows by a little each time, so that all there is has to move.
template <class From>
struct Growing {
    From& from;
    std::size_t bytes;
    Buffer fence = {};

    template <class Use>
    void grow(Use use) {
        Buffer gap = from.acquire(bytes), next_fence = from.acquire(2_MiB);
        use(gap);
        gap.release();
        bytes += 2_MiB;
        use(from.acquire(bytes));
        fence = std::move(next_fence);
    }
    void grow() {
        grow([](const Buffer&) {});
    }
};

TEST_F(MovedCalls, SegmentsMoveWhereverAGrowingBlockEndsSoThatThePoolHoldsNoMoreThanWasLent) {
    Pool pool{Memory::device()};
    Growing<Pool> growing{pool, 64_MiB};

    for (int i = 0; i < 160; ++i) growing.grow();

    // Before and after holes, in places of just their size, with handles of many sizes.
    const PoolStats stats = pool.stats();
    EXPECT_LE(stats.held_bytes.peak, stats.lent_bytes.peak * 11 / 10);
}

/// Replaces one of five large buffers at random; almost nothing that is released fits the next request.
TEST_F(MovedCalls, SegmentsThatNobodyHasPaidForMoveBeforeThePoolGrowsWithoutBounds) {
    Pool pool{Memory::device()};
    std::mt19937 random(1);
    std::vector<Buffer> buffers(5);

    for (int i = 0; i < 3200; ++i) {
        Buffer& one = buffers[random() % buffers.size()];
        one.release();
        one = pool.acquire(20_MiB + random() % 40_MiB);
    }

    EXPECT_LT(pool.stats().held_bytes.peak, pool.stats().lent_bytes.peak * 29 / 20);
}

TEST_F(MovedCalls, OldPlacesAreLeftOneAfterTheOtherIfThereAreMany) {
    const std::size_t used = in_use();
    Pool pool{Memory::device()};
    Growing<Pool> growing{pool, 64_MiB};
    const auto mapped = calls("cuMemMap"), unmapped = calls("cuMemUnmap");
    const auto waits = calls("cuEventSynchronize") + calls("cuStreamSynchronize");
    const std::size_t handles = driver.control->handles();
    const auto grow = [&] {
        growing.grow();
        driver.synchronize();  // all is done
    };
    while (pool.stats().moved_bytes < 4 * 64_MiB) grow();
    EXPECT_EQ(calls("cuMemUnmap"), unmapped) << "few cost nothing but addresses";

    while (pool.stats().moved_bytes < 32 * 64_MiB) {
        const auto mapped_then = calls("cuMemMap"), unmapped_then = calls("cuMemUnmap");
        grow();
        EXPECT_LE(calls("cuMemUnmap") - unmapped_then, 3 * (calls("cuMemMap") - mapped_then) + 8);
    }

    const auto places = (calls("cuMemMap") - mapped) - (calls("cuMemUnmap") - unmapped);
    EXPECT_LE(places, 7 * (driver.control->handles() - handles)) << "one, and six old ones";
    EXPECT_EQ(calls("cuEventSynchronize") + calls("cuStreamSynchronize"), waits);
    EXPECT_EQ(in_use() - used, pool.stats().held_bytes.now);
}

TEST_F(MovedCalls, OldPlacesStayWhileTheirStreamUsesThem) {
    constexpr int not_ready = 600;
    Pool pool{Memory::device()};
    Growing<Pool> growing{pool, 32_MiB};
    driver.control->fail("cuEventQuery", 1, 1000000, not_ready);
    const auto unmapped = calls("cuMemUnmap"), waits = host_waits();

    while (pool.stats().moved_bytes < 8 * 32_MiB) growing.grow();

    EXPECT_EQ(calls("cuMemUnmap"), unmapped);
    EXPECT_EQ(host_waits(), waits);
}

TEST_F(Moved, OldPlacesAreNotLeftBeforeTheLastWorkThereIsDone) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pool.on(stream);
    Growing<StreamPool> growing{ordered, 16_MiB};
    unsigned char value = 0;

    while (pool.stats().moved_bytes < 24 * 16_MiB) {
        growing.grow([&](const Buffer& buffer) {
            fill(stream, buffer, ++value, late);
            check(stream, buffer, value, late);
        });
    }

    EXPECT_EQ(mismatches(), 0u);
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
}

TEST_F(MovedCalls, OldPlacesThatTakeTooManyAddressesAreWaitedFor) {
    constexpr int not_ready = 600;
    std::size_t total = 0;
    ASSERT_EQ(driver.device_total(&total, 0), 0);
    const std::size_t used = in_use();
    Pool pool{Memory::device()};
    Growing<Pool> growing{pool, total / 4};
    driver.control->fail("cuEventQuery", 1, 1000000, not_ready);
    const auto unmapped = calls("cuMemUnmap");
    while (pool.stats().moved_bytes + growing.bytes < total) growing.grow();
    EXPECT_EQ(calls("cuMemUnmap"), unmapped) << "they cost nothing but addresses";

    while (pool.stats().moved_bytes <= total) growing.grow();

    EXPECT_GT(calls("cuMemUnmap"), unmapped);
    EXPECT_EQ(in_use() - used, pool.stats().held_bytes.now);
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
}

TEST_F(MovedCalls, BytesStayWhereTheyWereIfTheDriverRefuses) {
    for (const char* const function : {"cuMemMap", "cuMemSetAccess", "cuMemCreate"}) {
        for (unsigned nth = 1; nth <= 9; ++nth) {
            SCOPED_TRACE(std::string(function) + " " + std::to_string(nth));
            const std::size_t used = in_use();
            {
                Pool pool{Memory::device()};
                const Buffer after_gap = leave_a_gap(pool);
                driver.control->fail(function, nth, 1, 999);
                bool failed = false;
                try {
                    const Buffer larger = pool.acquire(66_MiB);
                } catch (const DeviceError&) {
                    failed = true;
                }
                driver.control->stop_failing();

                EXPECT_EQ(pool.stats().held_bytes.now, failed ? 66_MiB : 68_MiB);
                EXPECT_EQ(pool.stats().moves, failed ? 0u : 1u);
                const Buffer again = pool.acquire(64_MiB);
                fill(nullptr, again, 1);
                check(nullptr, again, 1);
                EXPECT_EQ(pool.stats().misses, failed ? 2u : 3u);
                EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
            }
            EXPECT_EQ(in_use(), used);
        }
    }
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(MovedCalls, BytesStayIfTheirStreamCannotBeWaitedFor) {
    Pool pool{Memory::device()};
    StreamPool on_first = pool.on(make_stream()), on_second = pool.on(make_stream());
    const Buffer after_gap = leave_a_gap(on_first);
    driver.control->fail("cuStreamWaitEvent", 1, 1, 999);

    EXPECT_THROW(static_cast<void>(on_second.acquire(66_MiB)), DeviceError);

    driver.control->stop_failing();
    EXPECT_EQ(pool.stats().held_bytes.now, 66_MiB);
    EXPECT_EQ(pool.stats().idle_bytes.now, 64_MiB);
    EXPECT_FALSE(on_first.acquire(64_MiB).empty());
    EXPECT_EQ(pool.stats().misses, 2u);
}

TEST_F(Moved, BytesKeepTheLimit) {
    Pool pool{Memory::device(), {.max_bytes = 70_MiB}};
    const Buffer after_gap = leave_a_gap(pool);

    const Buffer larger = pool.try_acquire(68_MiB);

    EXPECT_FALSE(larger.empty());
    EXPECT_EQ(pool.stats().moves, 1u);
    EXPECT_LE(pool.stats().held_bytes.peak, 70_MiB);
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
}

TEST_F(Moved, BytesThatAreSharedAreTheSameAtTheNewPlace) {
    Pool pool{Memory::device()};
    const Buffer after_gap = leave_a_gap(pool);
    const Buffer larger = pool.acquire(66_MiB);
    ASSERT_EQ(pool.stats().moves, 1u);
    fill(nullptr, larger, 5);
    ASSERT_EQ(mismatches(), 0u);

    const ImportedBuffer imported(share(larger));

    check(nullptr, imported.data(), imported.size(), 5);
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Moved, BytesThatLimitsLeaveUnheldAreNobodysToOvertake) {
    Pool pool{Memory::device(), {.max_idle_buffers = 8}};  // so that no growth leaves idle bytes
    const cuda::Stream first = make_stream(), second = make_stream(), third = make_stream();
    StreamPool on_first = pool.on(first), on_second = pool.on(second), on_third = pool.on(third);
    Buffer large = on_first.acquire(64_MiB);
    fill(first, large, 1, late);
    check(first, large, 1, late);
    large.release();

    const Buffer small = on_second.acquire(4_KiB), other = on_third.acquire(4_KiB);
    fill(second, small, 2);
    fill(third, other, 3);
    EXPECT_EQ(mismatches(), 0u);  // all is done
    check(second, small, 2);
    check(third, other, 3);

    EXPECT_EQ(mismatches(), 0u);
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
}

TEST_F(MovedCalls, BytesStayWhereTheyWereIfTheDeviceIsFull) {
    constexpr int out_of_memory = 2;
    for (const char* const function : {"cuMemCreate", "cuMemMap"}) {
        SCOPED_TRACE(function);
        Pool pool{Memory::device()};
        const Buffer after_gap = leave_a_gap(pool);
        driver.control->fail(function, 1, 1000, out_of_memory);

        EXPECT_TRUE(pool.try_acquire(66_MiB).empty());

        driver.control->stop_failing();
        EXPECT_EQ(pool.stats().moves, 0u);
        EXPECT_EQ(in_use(), pool.stats().held_bytes.now);
        EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
        EXPECT_FALSE(pool.acquire(66_MiB).empty());
    }
}

TEST_F(MovedCalls, BytesThatMovedTwiceGoBackOnce) {
    const std::size_t used = in_use();
    Pool pool{Memory::device()};
    driver.control->fail("cuEventQuery", 1, 1000000, 600);  // so that all places stay
    Buffer fence = leave_a_gap(pool);
    Buffer larger = pool.acquire(66_MiB), next_fence = pool.acquire(2_MiB);
    larger.release();
    Buffer largest = pool.acquire(70_MiB);
    ASSERT_EQ(pool.stats().moves, 2u);
    const std::size_t held = pool.stats().held_bytes.now;
    EXPECT_EQ(in_use(), used + held);
    largest.release();
    fence.release();
    next_fence.release();

    EXPECT_EQ(pool.trim(0), held);

    EXPECT_EQ(in_use(), used);
}

TEST_F(MovedCalls, BytesCountUntilTheirLastPlaceIsGone) {
    constexpr unsigned blocking = 0;
    const std::size_t used = in_use();
    Pool pool{Memory::device(), {.max_bytes = 70_MiB}};
    StreamPool beside = pool.on(make_stream());
    {
        const Buffer fence = leave_a_gap(pool);
        pool.acquire(66_MiB).release();
        ASSERT_EQ(pool.stats().moves, 1u);
        beside.acquire(66_MiB).release();  // waits for the default stream, which has the old place
    }
    const cuda::Stream captured = make_stream(blocking);
    ASSERT_EQ(driver.begin_capture(captured, capture_relaxed), 0);
    (void)pool.trim(0);

    EXPECT_TRUE(beside.try_acquire(66_MiB).empty());

    EXPECT_LE(in_use(), used + 70_MiB);
    cuda::Graph graph = nullptr;
    EXPECT_EQ(driver.end_capture(captured, &graph), 0) << "the pool has ended it";
    EXPECT_EQ(driver.destroy_graph(graph), 0);
    EXPECT_FALSE(beside.acquire(66_MiB).empty());
    EXPECT_LE(in_use(), used + 70_MiB);
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
}

TEST_F(MovedCalls, BytesCountWhileTheyAreOnTheirWay) {
    constexpr unsigned blocking = 0;
    const std::size_t used = in_use();
    Pool pool{Memory::device(), {.max_bytes = 100_MiB}};
    StreamPool beside = pool.on(make_stream());
    const Buffer lent = pool.acquire(36_MiB);
    pool.acquire(60_MiB).release();
    const cuda::Stream captured = make_stream(blocking);
    ASSERT_EQ(driver.begin_capture(captured, capture_relaxed), 0);
    struct Other {
        const Gpu* test;
        const DriverControl* control;
        Pool* pool;
        Buffer got{};
        std::thread thread{};
        std::atomic<bool> began{false};
        std::size_t in_use_then = 0;
    } other{this, driver.control, &pool};
    driver.control->set_hook(
        [](void* data, const char*) {  // the bytes are apart, and the lock is free
            auto& one = *static_cast<Other*>(data);
            if (one.began.exchange(true)) return;
            one.thread = std::thread([&one] {
                const OnThread on(*one.test);
                one.got = one.pool->try_acquire(30_MiB);
            });
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            one.in_use_then = one.control->bytes_in_use(0);
        },
        &other);

    const Buffer larger = beside.try_acquire(62_MiB);

    driver.control->set_hook(nullptr, nullptr);
    ASSERT_TRUE(other.thread.joinable());
    other.thread.join();
    EXPECT_EQ(other.in_use_then, used + 96_MiB) << "nobody has taken their room";
    cuda::Graph graph = nullptr;
    EXPECT_EQ(driver.end_capture(captured, &graph), 0) << "the pool has ended it";
    EXPECT_EQ(driver.destroy_graph(graph), 0);
}

TEST_F(MovedCalls, BytesOutliveTheirPoolBesideACapture) {
    constexpr unsigned blocking = 0;
    const std::size_t used = in_use();
    const cuda::Stream captured = make_stream(blocking);
    {
        Pool pool{Memory::device()};
        const Buffer fence = leave_a_gap(pool);
        const Buffer larger = pool.acquire(66_MiB);
        ASSERT_EQ(pool.stats().moves, 1u);
        ASSERT_EQ(driver.begin_capture(captured, capture_relaxed), 0);
    }
    cuda::Graph graph = nullptr;
    EXPECT_EQ(driver.end_capture(captured, &graph), 0) << "the pool has ended it";
    EXPECT_EQ(driver.destroy_graph(graph), 0);
    { const Pool next{Memory::device()}; }  // looks for what has waited
    EXPECT_EQ(in_use(), used);
}

TEST_F(MovedCalls, BytesOfAClosedStreamNeedNoWait) {
    Pool pool{Memory::device()};
    Buffer fence;
    {
        const cuda::Stream stream = make_stream();
        StreamPool ordered = pool.on(stream);
        fence = leave_a_gap(ordered);
    }
    ASSERT_EQ(mismatches(), 0u);
    const auto waits = host_waits();

    const Buffer larger = pool.acquire(66_MiB);

    EXPECT_EQ(pool.stats().moves, 1u);
    EXPECT_EQ(host_waits(), waits);
}

TEST_F(Moved, BytesAreTheStreamsOwnFirst) {
    Pool pool{Memory::device()};
    StreamPool on_first = pool.on(make_stream()), on_second = pool.on(make_stream());
    Buffer gap = on_first.acquire(40_MiB);
    const Buffer fence_of_first = on_first.acquire(2_MiB);
    Buffer own = on_second.acquire(40_MiB);
    const Buffer fence_of_second = on_second.acquire(2_MiB);
    Buffer more = on_second.acquire(40_MiB);
    const Buffer last_fence = on_second.acquire(2_MiB);
    const void* const place = gap.data();
    gap.release();
    (void)pool.trim(1024_MiB);  // idle for longer than the others
    own.release();
    more.release();

    const Buffer larger = on_second.acquire(64_MiB);

    EXPECT_EQ(pool.stats().moves, 1u);
    EXPECT_EQ(pool.stats().held_bytes.now, 126_MiB);
    EXPECT_EQ(on_first.acquire(40_MiB).data(), place);
}

/// Threads that each work on a stream with buffers of many sizes, and see that nobody else writes to them.
TEST_F(Moved, BytesOfManyThreadsAreNobodyElses) {
    constexpr std::size_t threads = 4;
    Pool pool{Memory::device(), {.max_bytes = 512_MiB}};
    std::vector<cuda::Stream> streams;
    for (std::size_t i = 0; i < threads; ++i) streams.push_back(make_stream());
    const auto work = [&](std::size_t thread) {
        const OnThread on(*this);
        const cuda::Stream stream = streams[thread];
        StreamPool ordered = pool.on(stream);
        std::mt19937 random(static_cast<unsigned>(thread));
        std::vector<std::pair<Buffer, unsigned char>> live;
        for (std::uint64_t step = 0; step < scaled(200); ++step) {
            if (random() % 3 == 0 && !live.empty()) {
                const std::size_t i = random() % live.size();
                check(stream, live[i].first, live[i].second);
                std::swap(live[i], live.back());
                live.pop_back();
            } else if (live.size() < 6) {
                Buffer buffer = ordered.try_acquire(1 + random() % (1 << (12 + random() % 13)));
                if (buffer.empty()) continue;
                const auto value = static_cast<unsigned char>(random());
                fill(stream, buffer, value);
                live.emplace_back(std::move(buffer), value);
            }
        }
        for (const auto& [buffer, value] : live) check(stream, buffer, value);
    };
    for (int round = 0; round < 20 && pool.stats().moves == 0; ++round) on_threads(threads, work);
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_GT(pool.stats().moves, 0u);
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
}

}  // namespace
}  // namespace cistern::test
