// A pool in the order of streams. Work that is late, and other work that would overtake it, shows
// whether a stream waits for what it has to.

#include <gmock/gmock.h>

#include <random>

#include "gpu.hpp"
#include "support/reconcile.hpp"
#include "support/scale.hpp"
#include "support/threads.hpp"

namespace cistern::test {
namespace {

constexpr std::size_t some = 1_MiB;

cuda::Stream per_thread_stream() { return reinterpret_cast<cuda::Stream>(std::uintptr_t{2}); }

using Ordered = Gpu;
using OrderedCalls = StandIn;

TEST_F(Ordered, AStreamGetsBackWhatItReleasedWhileWorkOnItGoesOn) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pool.on(stream);
    const void* const first = ordered.acquire(some).data();
    for (int i = 0; i < 50; ++i) {
        const Buffer buffer = ordered.acquire(some);
        EXPECT_EQ(buffer.data(), first);
        fill(stream, buffer, static_cast<unsigned char>(i), i % 10 == 0);
        check(stream, buffer, static_cast<unsigned char>(i));
    }
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_EQ(pool.stats().misses, 1u);
}

TEST_F(OrderedCalls, ReuseOnOneStreamCallsTheDriverNotAtAll) {
    Pool pool{Memory::device()};
    StreamPool ordered = pool.on(make_stream());
    for (int i = 0; i < 3; ++i) ordered.acquire(some).release();
    int called = 0;
    driver.control->set_hook([](void* count, const char*) { ++*static_cast<int*>(count); },
                             &called);
    for (int i = 0; i < 100; ++i) ordered.acquire(some).release();
    driver.control->set_hook(nullptr, nullptr);
    EXPECT_EQ(called, 0);
}

TEST_F(Ordered, MoreStreamsThanAThreadHasSlotsKeepWhatIsTheirs) {
    constexpr std::size_t count = 2 * detail::slot_count;
    Pool pool{Memory::device()};
    std::vector<cuda::Stream> streams;
    std::vector<StreamPool> lanes;
    std::vector<const void*> first(count);
    for (std::size_t i = 0; i < count; ++i) {
        streams.push_back(make_stream());
        lanes.push_back(pool.on(streams.back()));
    }
    for (std::size_t turn = 0; turn < 10 * count; ++turn) {  // until each has what it needs
        first[turn % count] = lanes[turn % count].acquire(some / 16).data();
    }
    const std::uint64_t misses = pool.stats().misses;
    for (std::size_t turn = 0; turn < 10 * count; ++turn) {
        const std::size_t i = turn * 5 % count;
        const Buffer buffer = lanes[i].acquire(some / 16);
        EXPECT_EQ(buffer.data(), first[i]) << "no other stream had to wait";
        fill(streams[i], buffer, static_cast<unsigned char>(i));
        check(streams[i], buffer, static_cast<unsigned char>(i));
    }
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_EQ(pool.stats().misses, misses);
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
}

TEST_F(Ordered, AnotherStreamWaitsForTheWorkOfTheFirst) {
    Pool pool{Memory::device()};
    const cuda::Stream first = make_stream(), second = make_stream();
    StreamPool on_first = pool.on(first), on_second = pool.on(second);
    for (int i = 0; i < 20; ++i) {
        Buffer buffer = on_first.acquire(8 * some);
        fill(first, buffer, 1, late);
        buffer.release();
        buffer = on_second.acquire(8 * some);
        fill(second, buffer, 2);
        check(second, buffer, 2, late);
    }
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_LE(pool.stats().held_bytes.peak, 10 * some) << "idle bytes crossed";
}

TEST_F(OrderedCalls, CrossingCostsOneRecordAndOneWaitAndNoHost) {
    Pool pool{Memory::device()};
    const cuda::Stream first = make_stream(), second = make_stream();
    StreamPool on_first = pool.on(first), on_second = pool.on(second);
    Buffer buffer = on_first.acquire(4 * some);
    fill(first, buffer, 1, late);
    buffer.release();
    const auto records = calls("cuEventRecord"), waits = calls("cuStreamWaitEvent"),
               on_host = host_waits(), created = calls("cuMemCreate");

    buffer = on_second.acquire(4 * some);

    EXPECT_EQ(calls("cuEventRecord"), records + 1);
    EXPECT_EQ(calls("cuStreamWaitEvent"), waits + 1);
    EXPECT_EQ(host_waits(), on_host);
    EXPECT_EQ(calls("cuMemCreate"), created);
}

/// Several threads on several streams, each buffer filled and checked in its stream's order.
TEST_F(Ordered, ThreadsAndStreamsNeverSeeEachOthersBytes) {
    constexpr std::size_t streams = 4, threads = 4;
    Pool pool{Memory::device(), {.max_bytes = 48_MiB}};
    std::vector<cuda::Stream> handles;
    std::vector<StreamPool> lanes;
    for (std::size_t i = 0; i < streams; ++i) {
        handles.push_back(make_stream());
        lanes.push_back(pool.on(handles.back()));
    }
    const std::uint64_t steps = scaled(300);
    on_threads(threads, [&](std::size_t thread) {
        const OnThread entered(*this);
        std::minstd_rand random(static_cast<unsigned>(seed_or(1) + thread));
        std::deque<Buffer> kept;
        for (std::uint64_t step = 0; step < steps; ++step) {
            const std::size_t stream = random() % streams;
            const std::size_t bytes = 1 + random() % (step % 8 == 0 ? 4_MiB : 256_KiB);
            const auto value = static_cast<unsigned char>(random());
            Buffer buffer = lanes[stream].try_acquire(bytes);
            if (buffer.empty()) {
                kept.clear();
                continue;
            }
            fill(handles[stream], buffer, value, random() % 16 == 0);
            check(handles[stream], buffer, value, random() % 16 == 0);
            kept.push_back(std::move(buffer));
            if (kept.size() > 4) kept.pop_front();
            EXPECT_EQ(contradictions_ever(pool.stats(), limits_of(pool.options())), "");
        }
    });
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
}

TEST_F(Ordered, ABufferUsedOnASecondStreamIsNotLentTooEarly) {
    Pool pool{Memory::device()};
    const cuda::Stream first = make_stream(), second = make_stream();
    StreamPool ordered = pool.on(first);
    for (int i = 0; i < 10; ++i) {
        Buffer buffer = ordered.acquire(some);
        fill(first, buffer, 1);
        follow(second, first);
        check(second, buffer, 1, late);
        also_used_on(buffer, second);
        buffer.release();

        const Buffer next = ordered.acquire(some);
        fill(first, next, 2);
        check(first, next, 2);
    }
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Ordered, ABufferUsedOnASecondStreamComesBackInTheEnd) {
    Pool pool{Memory::device()};
    const cuda::Stream first = make_stream(), second = make_stream();
    StreamPool ordered = pool.on(first);
    for (int i = 0; i < 10; ++i) {
        Buffer buffer = ordered.acquire(8 * some);
        also_used_on(buffer, second);
        also_used_on(buffer, second);
        buffer.release();
        ASSERT_EQ(driver.synchronize(), 0);
    }
    EXPECT_LE(pool.stats().held_bytes.peak, 16 * some);
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
}

TEST_F(Ordered, BuffersOfASecondStreamThatIsBehindDoNotPileUp) {
    Pool pool{Memory::device()};
    const cuda::Stream first = make_stream(), second = make_stream();
    StreamPool ordered = pool.on(first);
    for (int i = 0; i < 100; ++i) {
        const auto value = static_cast<unsigned char>(i);
        Buffer buffer = ordered.acquire(4_MiB + static_cast<std::size_t>(i % 5) * some);
        fill(first, buffer, value);
        follow(second, first);
        check(second, buffer, value, i % 4 == 0);
        also_used_on(buffer, second);
    }
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_LE(pool.stats().held_bytes.peak, 6 * pool.stats().lent_bytes.peak);
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
}

TEST_F(OrderedCalls, AtALimitTheStreamWaitsForASecondOneNotTheHost) {
    Pool pool{Memory::device(), {.max_bytes = 8_MiB}};
    const cuda::Stream first = make_stream(), second = make_stream();
    StreamPool ordered = pool.on(first);
    const auto waits = host_waits();
    for (unsigned char i = 0; i < 20; ++i) {
        Buffer buffer = ordered.acquire(5_MiB);
        fill(second, buffer, i, late);
        check(second, buffer, i);
        also_used_on(buffer, second);
        buffer.release();
        const Buffer next = ordered.acquire(5_MiB + some);
        fill(first, next, 99);
        follow(second, first);
    }
    EXPECT_EQ(host_waits(), waits);
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(OrderedCalls, BytesOfASecondStreamComeBackWhereItCannotBeWaitedFor) {
    Pool pool{Memory::device(), {.max_bytes = 8_MiB}};
    const cuda::Stream first = make_stream(), second = make_stream();
    StreamPool ordered = pool.on(first);
    Buffer buffer = ordered.acquire(5_MiB);
    fill(second, buffer, 1, late);
    also_used_on(buffer, second);
    buffer.release();
    driver.control->fail("cuStreamWaitEvent", 1, 1, 999);

    EXPECT_THROW((void)ordered.acquire(6_MiB), DeviceError);

    EXPECT_EQ(contradictions_ever(pool.stats(), limits_of(pool.options())), "");
    EXPECT_FALSE(ordered.acquire(6_MiB).empty());
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Ordered, WhatHasNoStreamsSaysSo) {
    Buffer empty;
    EXPECT_THROW(also_used_on(empty, nullptr), InvalidArgument);
    Pool host;
    Buffer plain = host.acquire(64);
    EXPECT_THROW(also_used_on(plain, nullptr), InvalidArgument);
    EXPECT_THROW((void)host.on(nullptr), InvalidArgument);
}

TEST_F(OrderedCalls, AStreamOfAnotherDeviceIsRefused) {
    cuda::Context other = nullptr, popped = nullptr;
    cuda::Stream stream = nullptr;
    ASSERT_EQ(driver.retain_context(&other, 1), 0);
    ASSERT_EQ(driver.push_context(other), 0);
    ASSERT_EQ(driver.create_stream(&stream, 0), 0);
    ASSERT_EQ(driver.pop_context(&popped), 0);
    Pool pool{Memory::device(0)};

    EXPECT_THROW((void)pool.on(stream), InvalidArgument);
    Buffer buffer = pool.acquire(64);
    EXPECT_THROW(also_used_on(buffer, stream), InvalidArgument);

    EXPECT_EQ(driver.destroy_stream(stream), 0);
}

TEST_F(Ordered, ABufferMayBeReleasedAfterItsStreamIsGone) {
    Pool pool{Memory::device()};
    const cuda::Stream last = make_stream();
    StreamPool on_last = pool.on(last);
    for (int i = 0; i < 10; ++i) {
        const cuda::Stream stream = make_stream();
        Buffer early, after;
        {
            StreamPool ordered = pool.on(stream);
            early = ordered.acquire(4 * some);
            after = ordered.acquire(4 * some);
            fill(stream, early, 1, late);
            fill(stream, after, 1, late);
            early.release();
        }
        destroy(stream);
        after.release();

        const Buffer one = on_last.acquire(4 * some), two = on_last.acquire(4 * some);
        fill(last, one, 2);
        fill(last, two, 3);
        check(last, one, 2, late);
        check(last, two, 3, late);
    }
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_LE(pool.stats().held_bytes.peak, 20 * some) << "nothing is stranded";
}

TEST_F(OrderedCalls, ANewStreamWithAnOldHandleWaitsForTheOldOnesWork) {
    Pool pool{Memory::device()};
    driver.control->set_reuse_streams(true);
    cuda::Stream stream = make_stream();
    for (int i = 0; i < 20; ++i) {
        const auto value = static_cast<unsigned char>(i);
        {
            StreamPool ordered = pool.on(stream);
            const Buffer buffer = ordered.acquire(4 * some);
            fill(stream, buffer, value);
            check(stream, buffer, value, late);
        }
        const cuda::Stream old = stream;
        destroy(old);
        stream = make_stream();
        ASSERT_EQ(stream, old);
    }
    driver.control->set_reuse_streams(false);
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(OrderedCalls, ClosingAStreamPoolDoesNotStopTheHost) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    const auto before = host_waits();
    {
        StreamPool ordered = pool.on(stream);
        fill(stream, ordered.acquire(some), 1, late);
    }
    EXPECT_EQ(host_waits(), before);
}

TEST_F(Ordered, EveryThreadHasItsOwnDefaultStream) {
    Pool pool{Memory::device(), {.max_bytes = 32_MiB}};
    on_threads(4, [&](std::size_t thread) {
        const OnThread entered(*this);
        StreamPool ordered = pool.on(per_thread_stream());
        for (int i = 0; i < 40; ++i) {
            const auto value = static_cast<unsigned char>(thread * 50 + static_cast<unsigned>(i));
            const Buffer buffer = ordered.acquire(some);
            fill(per_thread_stream(), buffer, value, i % 8 == 0);
            check(per_thread_stream(), buffer, value, i % 8 == 4);
        }
        EXPECT_EQ(driver.stream_synchronize(per_thread_stream()), 0);
    });
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Ordered, WhatAThreadsDefaultStreamUsedMayBeReleasedByAnother) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pool.on(stream);
    for (int i = 0; i < 10; ++i) {
        Buffer buffer;
        std::thread([&] {
            const OnThread entered(*this);
            buffer = pool.on(per_thread_stream()).acquire(4 * some);
            fill(per_thread_stream(), buffer, 1, late);
        }).join();
        buffer.release();
        const Buffer next = ordered.acquire(4 * some);
        fill(stream, next, 2);
        check(stream, next, 2, late);
    }
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Ordered, WithoutAStreamThePoolFollowsTheLegacyOne) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pool.on(stream);
    for (int i = 0; i < 10; ++i) {
        Buffer buffer = pool.acquire(4 * some);
        fill(nullptr, buffer, 1, late);
        buffer.release();
        buffer = pool.acquire(4 * some);
        fill(nullptr, buffer, 2);
        check(nullptr, buffer, 2);
        buffer.release();
        const Buffer crossed = ordered.acquire(4 * some);
        fill(stream, crossed, 3);
        check(stream, crossed, 3, late);
    }
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_LE(pool.stats().held_bytes.peak, 10 * some);
}

TEST_F(OrderedCalls, ASideStreamStrandsNothing) {
    for (const bool closed : {false, true}) {
        Pool pool{Memory::device()};
        const cuda::Stream side = make_stream(), main = make_stream();
        std::vector<StreamPool> on_side{pool.on(side)};
        {
            std::vector<Buffer> buffers;
            for (int i = 0; i < 16; ++i) buffers.push_back(on_side.front().acquire(4 * some));
            for (const Buffer& buffer : buffers) fill(side, buffer, 1, late);
        }
        if (closed) {
            on_side.clear();
            destroy(side);
        }
        const auto held = pool.stats().held_bytes.now;
        const auto created = calls("cuMemCreate");

        StreamPool on_main = pool.on(main);
        std::vector<Buffer> buffers;
        for (int i = 0; i < 16; ++i) buffers.push_back(on_main.acquire(4 * some));
        for (const Buffer& buffer : buffers) fill(main, buffer, 2);
        for (const Buffer& buffer : buffers) check(main, buffer, 2);

        EXPECT_EQ(pool.stats().held_bytes.now, held) << "closed " << closed;
        EXPECT_EQ(calls("cuMemCreate"), created) << "closed " << closed;
        EXPECT_EQ(mismatches(), 0u) << "closed " << closed;
    }
}

TEST_F(Ordered, OneLargeRequestGathersWhatManyStreamsReleased) {
    Pool pool{Memory::device(), {.max_bytes = 64_MiB}};
    std::vector<cuda::Stream> streams;
    std::vector<StreamPool> lanes;
    for (int i = 0; i < 8; ++i) {
        streams.push_back(make_stream());
        lanes.push_back(pool.on(streams.back()));
    }
    std::vector<Buffer> parts;
    for (std::size_t i = 0; i < 8; ++i) {
        parts.push_back(lanes[i].acquire(8_MiB));
        fill(streams[i], parts.back(), 1, late);
    }
    parts.clear();

    const Buffer whole = lanes[3].acquire(64_MiB);
    fill(streams[3], whole, 2);
    check(streams[3], whole, 2, late);

    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Ordered, ZerosAreZeroInTheStreamsOrder) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pool.on(stream);
    for (int i = 0; i < 10; ++i) {
        const auto numbers = ordered.zeros<float>(1000, 100);
        check(stream, numbers.data(), 400000, 0);
        fill(stream, const_cast<float*>(numbers.data()), 400000, 9, late);
    }
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Ordered, ABufferGrowsInItsStreamsOrder) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pool.on(stream);
    for (int i = 0; i < 10; ++i) {
        Buffer buffer = ordered.acquire(some);
        fill(stream, buffer, 1, late);
        pool.grow(buffer, 5 * some);
        check(stream, buffer.data(), some, 1);
        fill(stream, buffer, 2);
        const Buffer next = ordered.acquire(some);  // what the copy read
        fill(stream, next, 3);
        check(stream, buffer, 2);
    }
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Ordered, ABufferGrowsAfterItsStreamIsGone) {
    Pool pool{Memory::device()};
    for (int i = 0; i < 10; ++i) {
        const cuda::Stream stream = make_stream();
        Buffer buffer = pool.on(stream).acquire(some);
        fill(stream, buffer, 1, late);
        destroy(stream);
        pool.grow(buffer, 5 * some);
        check(nullptr, buffer.data(), some, 1);
    }
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Ordered, BuffersMayOutliveThePoolAndItsStreams) {
    const cuda::Stream stream = make_stream();
    Buffer buffer;
    {
        Pool pool{Memory::device()};
        StreamPool ordered = pool.on(stream);
        buffer = ordered.acquire(4 * some);
        fill(stream, buffer, 1, late);
    }
    check(stream, buffer, 1);
    ASSERT_EQ(driver.stream_synchronize(stream), 0);
    destroy(stream);
    buffer.release();
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(OrderedCalls, WholeBlocksFollowTheOrderToo) {
    for (const Fit& fit : {Fit{ExactFit{}}, Fit{BestFit{}}, Fit{FixedBlock{4 * some}}}) {
        Pool pool{Memory::device(), {.fit = fit}};
        const cuda::Stream first = make_stream(), second = make_stream();
        StreamPool on_first = pool.on(first), on_second = pool.on(second);
        for (int i = 0; i < 10; ++i) {
            Buffer buffer = on_first.acquire(4 * some);
            fill(first, buffer, 1, late);
            buffer.release();
            buffer = on_second.acquire(4 * some);
            fill(second, buffer, 2);
            check(second, buffer, 2, late);
        }
        EXPECT_EQ(mismatches(), 0u);
        EXPECT_LE(pool.stats().held_bytes.peak, 8 * some);
    }
}

}  // namespace
}  // namespace cistern::test
