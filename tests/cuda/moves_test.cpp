// Segments that move to where a pool grows: nobody waits for it, and what streams still do at the old place comes
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

TEST_F(Moved, BytesAreWrittenAfterWhatIsDoneAtTheOldPlace) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pool.on(stream);
    Buffer gap = ordered.acquire(64_MiB);
    const Buffer after_it = ordered.acquire(2_MiB);
    fill(stream, gap, 1, late);
    check(stream, gap, 1, late);
    gap.release();

    const Buffer larger = ordered.acquire(66_MiB);
    fill(stream, larger, 2);
    check(stream, larger, 2);

    EXPECT_EQ(pool.stats().moves, 1u);
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Moved, BytesOfAnotherStreamAreWaitedForByTheNewOne) {
    Pool pool{Memory::device()};
    const cuda::Stream first = make_stream(), second = make_stream();
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
    EXPECT_EQ(calls("cuMemMap"), calls("cuMemUnmap"));
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

TEST_F(MovedCalls, OldPlacesAreNoMoreThanTheDeviceHasBytes) {
    std::size_t total = 0;
    ASSERT_EQ(driver.device_total(&total, 0), 0);
    Pool pool{Memory::device()};
    const auto unmapped = calls("cuMemUnmap");
    std::vector<Buffer> kept;
    std::size_t bytes = 2_MiB;
    while (pool.stats().moved_bytes < 2 * total && bytes < total / 2) {
        Buffer gap = pool.acquire(bytes), fence = pool.acquire(2_MiB);
        gap.release();
        bytes += 2_MiB;
        Buffer larger = pool.acquire(bytes);
        larger.release();
        kept.clear();
        kept.push_back(std::move(fence));
    }
    EXPECT_GT(calls("cuMemUnmap"), unmapped);
    EXPECT_LE(calls("cuMemMap") - calls("cuMemUnmap"), 2 * total / 2_MiB);
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

/// Threads that each work on a stream with buffers of many sizes, and see that nobody else writes to them.
TEST_F(Moved, BytesOfManyThreadsAreNobodyElses) {
    constexpr std::size_t threads = 4;
    Pool pool{Memory::device(), {.max_bytes = 512_MiB}};
    std::vector<cuda::Stream> streams;
    for (std::size_t i = 0; i < threads; ++i) streams.push_back(make_stream());
    on_threads(threads, [&](std::size_t thread) {
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
    });
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_GT(pool.stats().moves, 0u);
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
}

}  // namespace
}  // namespace cistern::test
