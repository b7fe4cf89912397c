// Memory that is acquired while a stream is captured belongs to the graph.

#include <cstring>

#include "gpu.hpp"
#include "support/reconcile.hpp"

namespace cistern::test {
namespace {

constexpr std::size_t some = 1_MiB;

class Captured : public Gpu {
protected:
    void begin(cuda::Stream stream, int mode = capture_global) {
        ASSERT_EQ(driver.begin_capture(stream, mode), 0);
    }
    cuda::Graph end(cuda::Stream stream) {
        cuda::Graph graph = nullptr;
        EXPECT_EQ(driver.end_capture(stream, &graph), 0);
        return graph;
    }
    cuda::Graph instance_of(cuda::Graph graph) {
        cuda::Graph instance = nullptr;
        EXPECT_EQ(driver.instantiate(&instance, graph, 0), 0);
        return instance;
    }
    void launch(cuda::Graph instance, cuda::Stream stream) {
        EXPECT_EQ(driver.launch_graph(instance, stream), 0);
    }
    void destroy_all(cuda::Graph graph, cuda::Graph instance) {
        EXPECT_EQ(driver.synchronize(), 0);
        EXPECT_EQ(driver.destroy_instance(instance), 0);
        EXPECT_EQ(driver.destroy_graph(graph), 0);
    }
};

TEST_F(Captured, BuffersStayValidForEveryReplay) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream(), other = make_stream();
    StreamPool outside = pool.on(other);
    { const Buffer warm = outside.acquire(8 * some); }
    begin(stream);
    {
        StreamPool inside = pool.on(stream);
        const Buffer one = inside.acquire(2 * some), two = inside.acquire(3 * some);
        fill(stream, one, 1);
        fill(stream, two, 2);
        check(stream, one, 1, late);
        check(stream, two, 2);
    }
    const cuda::Graph graph = end(stream), instance = instance_of(graph);

    for (int i = 0; i < 10; ++i) {
        launch(instance, stream);
        const Buffer beside = outside.acquire(2 * some), more = outside.acquire(3 * some);
        fill(other, beside, 3);
        fill(other, more, 4);
        check(other, beside, 3);
        check(other, more, 4, late);
    }

    EXPECT_EQ(mismatches(), 0u);
    destroy_all(graph, instance);
}

TEST_F(Captured, BytesComeBackWhenTheGraphIsGone) {
    Pool pool{Memory::device(), {.max_bytes = 16 * some}};
    const cuda::Stream stream = make_stream(), other = make_stream();
    begin(stream);
    {
        StreamPool inside = pool.on(stream);
        const Buffer buffer = inside.acquire(12 * some);
        fill(stream, buffer, 1);
    }
    const cuda::Graph graph = end(stream), instance = instance_of(graph);
    StreamPool outside = pool.on(other);
    EXPECT_TRUE(outside.try_acquire(12 * some).empty()) << "the graph has them";
    launch(instance, stream);
    destroy_all(graph, instance);

    EXPECT_TRUE(soon([&] { return !outside.try_acquire(12 * some).empty(); }));
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
}

/// What streams do with a graph's buffers besides its replays goes on when the graph is gone.
TEST_F(Captured, BytesComeBackAfterWhatElseUsedThem) {
    for (const bool also_used : {false, true}) {
        Pool pool{Memory::device(), {.max_bytes = 16 * some}};
        const cuda::Stream stream = make_stream(), reader = make_stream(), other = make_stream();
        StreamPool outside = pool.on(other);
        begin(stream);
        Buffer buffer = pool.on(stream).acquire(12 * some);
        fill(stream, buffer, 1);
        const cuda::Graph graph = end(stream), instance = instance_of(graph);
        launch(instance, stream);
        EXPECT_EQ(driver.stream_synchronize(stream), 0);
        if (also_used) also_used_on(buffer, reader);
        for (int i = 0; i < 3; ++i) check(also_used ? reader : stream, buffer, 1, late);
        buffer.release();
        EXPECT_EQ(driver.destroy_instance(instance), 0);
        EXPECT_EQ(driver.destroy_graph(graph), 0);

        const Buffer again = acquired_soon(outside, 12 * some);
        ASSERT_FALSE(again.empty());
        fill(other, again, 2);
        check(other, again, 2);
        EXPECT_EQ(mismatches(), 0u);
    }
}

TEST_F(Captured, BytesOfAGraphThatIsGoneServeTheNextCapture) {
    for (const Memory& memory : {Memory::device(), Memory::pinned()}) {
        Pool pool{memory, {.max_bytes = 16 * some}};
        const cuda::Stream stream = make_stream();
        for (int i = 0; i < 5; ++i) {  // the pool is asked for nothing in between
            begin(stream);
            StreamPool captured = pool.on(stream);
            Buffer inside = acquired_soon(captured, 8 * some);
            Buffer output = acquired_soon(captured, 4 * some);
            ASSERT_FALSE(inside.empty() || output.empty()) << i;
            fill(stream, inside, 1);
            fill(stream, output, 2);
            inside.release();
            const cuda::Graph graph = end(stream), instance = instance_of(graph);
            launch(instance, stream);
            check(stream, output, 2, late);
            output.release();
            EXPECT_EQ(mismatches(), 0u);
            destroy_all(graph, instance);
        }
    }
}

/// Whoever has kept the StreamPool of a capture gets bytes after the stream is done with them, too.
TEST_F(Captured, TheHostGetsBytesOfAGraphAfterWhatElseUsedThem) {
    Pool pool{Memory::pinned(), {.max_bytes = 16 * some}};
    const cuda::Stream stream = make_stream();
    begin(stream);
    StreamPool inside = pool.on(stream);
    Buffer buffer = inside.acquire(12 * some);
    const cuda::Graph graph = end(stream), instance = instance_of(graph);
    std::memset(buffer.data(), 1, buffer.size());
    for (int i = 0; i < 3; ++i) check(stream, buffer, 1, late);
    buffer.release();
    EXPECT_EQ(driver.destroy_instance(instance), 0);
    EXPECT_EQ(driver.destroy_graph(graph), 0);
    const Buffer again = acquired_soon(inside, 12 * some);
    ASSERT_FALSE(again.empty());
    std::memset(again.data(), 2, again.size());
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Captured, WithinACaptureAStreamUsesItsBytesAgain) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    begin(stream);
    {
        StreamPool inside = pool.on(stream);
        for (int i = 0; i < 10; ++i) {
            const auto value = static_cast<unsigned char>(i);
            const Buffer buffer = inside.acquire(4 * some);
            fill(stream, buffer, value);
            check(stream, buffer, value);
        }
    }
    const cuda::Graph graph = end(stream), instance = instance_of(graph);
    EXPECT_LE(pool.stats().held_bytes.peak, 8 * some);
    launch(instance, stream);
    launch(instance, stream);
    EXPECT_EQ(mismatches(), 0u);
    destroy_all(graph, instance);
}

TEST_F(Captured, OthersGoOnMeanwhile) {
    Pool pool{Memory::device(), {.max_bytes = 64 * some}};
    const cuda::Stream stream = make_stream(), first = make_stream(), second = make_stream();
    StreamPool on_first = pool.on(first), on_second = pool.on(second);
    begin(stream);
    StreamPool inside = pool.on(stream);
    Buffer captured = inside.acquire(some);
    fill(stream, captured, 1);
    std::thread([&] {
        const OnThread entered(*this);
        for (int i = 0; i < 20; ++i) {
            Buffer buffer = on_first.acquire(8 * some);
            fill(first, buffer, 2, late);
            also_used_on(buffer, second);
            buffer.release();
            buffer = on_second.acquire(8 * some);
            fill(second, buffer, 3);
            check(second, buffer, 3);
        }
        pool.trim();
    }).join();
    check(stream, captured, 1);
    captured.release();

    const cuda::Graph graph = end(stream);  // which nobody has disturbed
    ASSERT_NE(graph, nullptr);
    const cuda::Graph instance = instance_of(graph);
    launch(instance, stream);
    EXPECT_EQ(mismatches(), 0u);
    destroy_all(graph, instance);
}

TEST_F(Captured, ABufferMayBeReleasedAfterTheCapture) {
    Pool pool{Memory::device(), {.max_bytes = 16 * some}};
    const cuda::Stream stream = make_stream(), other = make_stream();
    begin(stream);
    Buffer buffer = pool.on(stream).acquire(12 * some);
    fill(stream, buffer, 1);
    check(stream, buffer, 1, late);
    const cuda::Graph graph = end(stream), instance = instance_of(graph);
    launch(instance, stream);
    buffer.release();
    StreamPool outside = pool.on(other);
    EXPECT_TRUE(outside.try_acquire(12 * some).empty()) << "the graph has them";
    launch(instance, stream);
    EXPECT_EQ(mismatches(), 0u);
    destroy_all(graph, instance);
    EXPECT_TRUE(soon([&] { return !outside.try_acquire(12 * some).empty(); }));
}

/// Whatever asks for idle bytes, those of a graph are none.
TEST_F(Captured, NoLimitTakesBytesFromAGraph) {
    for (const Fit& fit : {Fit{Elastic{}}, Fit{ExactFit{}}}) {
        Pool pool{Memory::device(), {.fit = fit, .max_idle_bytes = 3 * some}};
        const cuda::Stream stream = make_stream(), other = make_stream();
        begin(stream);
        {
            StreamPool inside = pool.on(stream);
            for (int i = 0; i < 3; ++i) {
                const Buffer one = inside.acquire(2 * some), two = inside.acquire(6 * some);
                fill(stream, one, 1);
                fill(stream, two, 2);
                check(stream, one, 1);
                check(stream, two, 2);
            }
        }
        EXPECT_LE(pool.stats().held_bytes.now, 10 * some) << "used again within the capture";
        const cuda::Graph graph = end(stream), instance = instance_of(graph);
        EXPECT_EQ(pool.trim(), pool.stats().idle_bytes.now);
        EXPECT_GE(pool.stats().held_bytes.now, 8 * some);
        pool.set_limits({.max_bytes = 12 * some, .max_idle_bytes = 0});
        StreamPool outside = pool.on(other);
        EXPECT_TRUE(outside.try_acquire(6 * some).empty());
        const Buffer beside = outside.acquire(2 * some);
        fill(other, beside, 3);
        launch(instance, stream);
        check(other, beside, 3, late);
        launch(instance, stream);
        EXPECT_EQ(mismatches(), 0u);
        EXPECT_EQ(contradictions(pool.stats(), limits_of(pool.options())), "");
        destroy_all(graph, instance);

        EXPECT_TRUE(soon([&] { return pool.stats().held_bytes.now == 2 * some; })) << pool.stats();
        EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
    }
}

TEST_F(Captured, PinnedBytesOfACaptureAreUsedOnce) {
    Pool pinned{Memory::pinned()}, device{Memory::device()};
    const cuda::Stream stream = make_stream();
    const Buffer one = device.acquire(some), two = device.acquire(some);
    begin(stream);
    {
        StreamPool inside = pinned.on(stream);
        unsigned char value = 1;
        for (const Buffer* target : {&one, &two}) {
            const Buffer source = inside.acquire(some);
            std::memset(source.data(), value, some);
            ASSERT_EQ(
                driver.copy_async(reinterpret_cast<cuda::Address>(target->data()),
                                  reinterpret_cast<cuda::Address>(source.data()), some, stream),
                0);
            check(stream, *target, value++);
        }
    }
    const cuda::Graph graph = end(stream), instance = instance_of(graph);
    {
        const Buffer other = pinned.acquire(some);
        std::memset(other.data(), 9, some);
    }
    launch(instance, stream);
    launch(instance, stream);
    EXPECT_EQ(mismatches(), 0u);
    destroy_all(graph, instance);
    EXPECT_TRUE(soon([&] {
        const PoolStats stats = pinned.stats();
        return stats.lent_bytes.now == 0;
    }));
}

TEST_F(Captured, AGraphMayOutliveThePool) {
    const cuda::Stream stream = make_stream();
    const auto in_use = [&]() -> std::size_t {
        Pool next{Memory::device()};  // whoever comes next lets pools go that only a graph kept
        { const StreamPool ordered = next.on(stream); }
        return driver.is_stand_in() ? driver.control->bytes_in_use(0) : 0;
    };
    const std::size_t before = in_use();
    cuda::Graph graph = nullptr, instance = nullptr;
    {
        Pool pool{Memory::device()};
        begin(stream);
        {
            const Buffer buffer = pool.on(stream).acquire(4 * some);
            fill(stream, buffer, 1);
            check(stream, buffer, 1);
        }
        graph = end(stream);
        instance = instance_of(graph);
    }
    launch(instance, stream);
    EXPECT_EQ(mismatches(), 0u);
    destroy_all(graph, instance);
    EXPECT_TRUE(soon([&] { return in_use() <= before; })) << in_use() << ", before " << before;
}

TEST_F(Captured, ACaptureThatFailsGivesEverythingBack) {
    Pool pool{Memory::device(), {.max_bytes = 16 * some}};
    const cuda::Stream stream = make_stream();
    begin(stream, capture_relaxed);
    {
        const Buffer buffer = pool.on(stream).acquire(12 * some);
        fill(stream, buffer, 1);
    }
    EXPECT_NE(driver.stream_synchronize(stream), 0);  // not while it is captured
    cuda::Graph graph = nullptr;
    EXPECT_NE(driver.end_capture(stream, &graph), 0);

    StreamPool ordered = pool.on(stream);
    EXPECT_TRUE(soon([&] { return !ordered.try_acquire(12 * some).empty(); }));
}

TEST_F(Captured, ACaptureThatFailedLendsNothing) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    begin(stream, capture_relaxed);
    EXPECT_NE(driver.stream_synchronize(stream), 0);
    EXPECT_THROW((void)pool.on(stream), DeviceError);
    cuda::Graph graph = nullptr;
    EXPECT_NE(driver.end_capture(stream, &graph), 0);
    EXPECT_FALSE(pool.on(stream).acquire(some).empty());
}

// They are had by an event of the whole context, which ends every capture; it was recorded when the lane closed.
TEST_F(Captured, BytesOfAThreadsDefaultStreamAreHadWithoutEndingACapture) {
    Pool pool{Memory::device(), {.max_bytes = 8 * some}};
    const cuda::Stream captured = make_stream(), other = make_stream();
    std::thread([&] {
        const OnThread entered(*this);
        const auto per_thread = reinterpret_cast<cuda::Stream>(std::uintptr_t{2});
        StreamPool ordered = pool.on(per_thread);
        fill(per_thread, ordered.acquire(6 * some), 1, late);
    }).join();
    begin(captured, capture_relaxed);
    Buffer buffer = pool.on(other).acquire(6 * some);
    fill(other, buffer, 2);
    check(other, buffer, 2, late);
    const cuda::Graph graph = end(captured);
    ASSERT_NE(graph, nullptr);
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_EQ(driver.destroy_graph(graph), 0);
}

TEST_F(Captured, StreamsOfOneCaptureShareNothingByAccident) {
    Pool pool{Memory::device()};
    const cuda::Stream first = make_stream(), second = make_stream();
    cuda::Event fork = nullptr, join = nullptr;
    ASSERT_EQ(driver.create_event(&fork, cuda::event_without_timing), 0);
    ASSERT_EQ(driver.create_event(&join, cuda::event_without_timing), 0);
    begin(first);
    ASSERT_EQ(driver.record_event(fork, first), 0);
    ASSERT_EQ(driver.stream_wait(second, fork, 0), 0);
    for (int i = 0; i < 4; ++i) {
        for (const cuda::Stream stream : {first, second}) {
            const Buffer buffer = pool.on(stream).acquire(4 * some);
            const auto value = static_cast<unsigned char>(stream == first ? i : 100 + i);
            fill(stream, buffer, value);
            check(stream, buffer, value);
        }
    }
    ASSERT_EQ(driver.record_event(join, second), 0);
    ASSERT_EQ(driver.stream_wait(first, join, 0), 0);
    const cuda::Graph graph = end(first), instance = instance_of(graph);
    for (int i = 0; i < 10; ++i) launch(instance, first);
    EXPECT_EQ(mismatches(), 0u);
    destroy_all(graph, instance);
    driver.destroy_event(fork);
    driver.destroy_event(join);
}

}  // namespace
}  // namespace cistern::test
