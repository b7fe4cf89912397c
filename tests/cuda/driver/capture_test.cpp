// Capture into graphs, and what graphs keep.

#include "fixture.hpp"

namespace cistern::test {
namespace {

class Captures : public DriverTest {
protected:
    int status_of(cuda::Stream stream) {
        int status = -1;
        EXPECT_EQ(driver.capture_info(stream, &status, nullptr, nullptr, nullptr, nullptr), 0);
        return status;
    }
    void launch_and_wait(Graph instance, cuda::Stream stream) {
        EXPECT_EQ(driver.launch_graph(instance, stream), 0);
        EXPECT_EQ(driver.stream_synchronize(stream), 0);
    }
    /// Ends a capture that something has made invalid.
    void expect_invalidated(cuda::Stream stream) {
        EXPECT_EQ(status_of(stream), 2);
        Graph graph = nullptr;
        EXPECT_EQ(driver.end_capture(stream, &graph), 901);
        EXPECT_EQ(graph, nullptr);
        EXPECT_EQ(status_of(stream), 0);
    }
};

TEST_F(Captures, RecordWorkAndReplayIt) {
    const cuda::Stream stream = make_stream();
    Steps steps;
    ASSERT_EQ(driver.begin_capture(stream, capture_global), 0);
    EXPECT_EQ(status_of(stream), 1);
    steps.add(driver, stream);
    steps.add(driver, stream);
    Graph graph = nullptr, instance = nullptr;
    ASSERT_EQ(driver.end_capture(stream, &graph), 0);
    EXPECT_EQ(status_of(stream), 0);
    EXPECT_EQ(steps.count(), 0);

    ASSERT_EQ(driver.instantiate(&instance, graph, 0), 0);
    ASSERT_EQ(driver.destroy_graph(graph), 0);
    launch_and_wait(instance, stream);
    EXPECT_EQ(steps.count(), 2);
    launch_and_wait(instance, make_stream());
    EXPECT_EQ(steps.count(), 4);
    EXPECT_EQ(driver.destroy_instance(instance), 0);
}

TEST_F(Captures, TakeInStreamsThatWaitForThem) {
    const cuda::Stream first = make_stream(), second = make_stream();
    const Event fork = make_event(), join = make_event();
    Steps steps;
    ASSERT_EQ(driver.begin_capture(first, capture_global), 0);
    ASSERT_EQ(driver.record_event(fork, first), 0);
    ASSERT_EQ(driver.stream_wait(second, fork, 0), 0);
    EXPECT_EQ(status_of(second), 1);
    steps.add(driver, second);
    ASSERT_EQ(driver.record_event(join, second), 0);
    ASSERT_EQ(driver.stream_wait(first, join, 0), 0);
    Graph graph = nullptr, instance = nullptr;
    ASSERT_EQ(driver.end_capture(first, &graph), 0);
    EXPECT_EQ(status_of(second), 0);
    EXPECT_EQ(driver.query_event(join), 1) << "an event of a capture never happens";
    EXPECT_EQ(driver.stream_wait(second, join, 0), 1);

    ASSERT_EQ(driver.instantiate(&instance, graph, 0), 0);
    launch_and_wait(instance, first);
    EXPECT_EQ(steps.count(), 1);
    driver.destroy_instance(instance);
    driver.destroy_graph(graph);
    driver.destroy_event(fork);
    driver.destroy_event(join);
}

TEST_F(Captures, HaveToComeTogether) {
    const cuda::Stream first = make_stream(), second = make_stream();
    const Event fork = make_event();
    Steps steps;
    ASSERT_EQ(driver.begin_capture(first, capture_global), 0);
    driver.record_event(fork, first);
    driver.stream_wait(second, fork, 0);
    steps.add(driver, second);
    Graph graph = nullptr;
    EXPECT_EQ(driver.end_capture(first, &graph), 904);
    driver.destroy_event(fork);
}

TEST_F(Captures, CannotWaitForWorkOutside) {
    const cuda::Stream captured = make_stream(), outside = make_stream();
    const Event event = make_event();
    Gate gate;
    gate.close(driver, outside);
    ASSERT_EQ(driver.record_event(event, outside), 0);
    ASSERT_EQ(driver.begin_capture(captured, capture_relaxed), 0);
    EXPECT_EQ(driver.stream_wait(captured, event, 0), 905);
    expect_invalidated(captured);
    gate.open();
    driver.destroy_event(event);
}

TEST_F(Captures, DoNotTellTheNumberOfTheStream) {
    const cuda::Stream stream = make_stream();
    ASSERT_EQ(driver.begin_capture(stream, capture_relaxed), 0);
    Context of = nullptr;
    EXPECT_EQ(driver.stream_context(stream, &of), 0);
    EXPECT_EQ(of, context);
    EXPECT_EQ(status_of(stream), 1);
    unsigned long long id = 0;
    EXPECT_EQ(driver.stream_id(stream, &id), 900);
    expect_invalidated(stream);
    EXPECT_EQ(driver.stream_id(stream, &id), 0);
}

TEST_F(Captures, CannotBeWaitedFor) {
    const Event event = make_event(), of_all = make_event();
    for (const unsigned blocking : {0u, non_blocking}) {
        const cuda::Stream stream = make_stream(blocking);
        const auto expect_disturbed_by = [&](auto call, Result result) {
            ASSERT_EQ(driver.begin_capture(stream, capture_relaxed), 0);
            EXPECT_EQ(driver.record_event(event, stream), 0);
            std::thread([&] {
                driver.push_context(context);
                int mode = capture_relaxed;
                EXPECT_EQ(driver.exchange_capture_mode(&mode), 0);
                EXPECT_EQ(call(), result);
                const Result again = call();
                EXPECT_TRUE(result == 900 ? is_of_a_capture(again) : again != 0) << again;
                Context popped = nullptr;
                driver.pop_context(&popped);
            }).join();
            expect_invalidated(stream);
        };
        expect_disturbed_by([&] { return driver.stream_synchronize(stream); }, 900);
        expect_disturbed_by([&] { return driver.query_event(event); }, 907);
        expect_disturbed_by([&] { return driver.synchronize(); }, 900);
        if (driver.record_context == nullptr) continue;
        expect_disturbed_by([&] { return driver.record_context(context, of_all); }, 900);
    }
    driver.destroy_event(event);
    driver.destroy_event(of_all);
}

TEST_F(Captures, AreOverForStreamsThatOnlyJoined) {
    const cuda::Stream joined = make_stream();
    const Event event = make_event();
    for (const bool destroys : {false, true}) {
        for (const bool has_work : {false, true}) {
            const cuda::Stream stream = make_stream();
            Steps steps;
            ASSERT_EQ(driver.begin_capture(stream, capture_relaxed), 0);
            if (has_work) steps.add(driver, stream);
            ASSERT_EQ(driver.record_event(event, stream), 0);
            ASSERT_EQ(driver.stream_wait(joined, event, 0), 0);
            EXPECT_EQ(status_of(joined), 1);
            steps.add(driver, stream);
            EXPECT_EQ(status_of(joined), 1);
            if (destroys) {
                destroy(stream);
            } else {
                Graph graph = nullptr;
                EXPECT_EQ(driver.end_capture(stream, &graph), 0);
                EXPECT_EQ(driver.destroy_graph(graph), 0);
            }
            EXPECT_EQ(status_of(joined), 0);
        }
    }
    driver.destroy_event(event);
}

TEST_F(Captures, AreDisturbedByTheLegacyStreamIfTheyBlock) {
    const cuda::Stream stream = make_stream(0);
    Address data = 0;
    ASSERT_EQ(driver.allocate(&data, 64), 0);
    ASSERT_EQ(driver.begin_capture(stream, capture_relaxed), 0);
    int status = 0;
    EXPECT_EQ(driver.capture_info(nullptr, &status, nullptr, nullptr, nullptr, nullptr), 906);
    EXPECT_EQ(driver.set_async(data, 0, 64, nullptr), 906);
    expect_invalidated(stream);
    EXPECT_EQ(driver.free(data), 0);
}

TEST_F(Captures, ForbidAllocationInThreadsThatAreNotRelaxed) {
    const cuda::Stream stream = make_stream();
    Address data = 0;
    ASSERT_EQ(driver.begin_capture(stream, capture_global), 0);
    int mode = capture_relaxed;
    ASSERT_EQ(driver.exchange_capture_mode(&mode), 0);
    EXPECT_EQ(mode, capture_global);
    EXPECT_EQ(driver.allocate(&data, 64), 0);
    EXPECT_EQ(driver.free(data), 0);
    EXPECT_EQ(status_of(stream), 1);
    ASSERT_EQ(driver.exchange_capture_mode(&mode), 0);

    EXPECT_EQ(driver.allocate(&data, 64), 900);
    expect_invalidated(stream);
    EXPECT_EQ(driver.allocate(&data, 64), 0);
    EXPECT_EQ(driver.free(data), 0);
}

TEST_F(Captures, OfOtherThreadsForbidItIfGlobal) {
    const cuda::Stream stream = make_stream();
    for (const int mode : {capture_global, capture_thread_local}) {
        ASSERT_EQ(driver.begin_capture(stream, mode), 0);
        std::thread([&] {
            driver.push_context(context);
            Address data = 0;
            const Result result = driver.allocate(&data, 64);
            EXPECT_EQ(result, mode == capture_global ? 900 : 0);
            if (result == 0) driver.free(data);
            Context popped = nullptr;
            driver.pop_context(&popped);
        }).join();
        Graph graph = nullptr;
        EXPECT_EQ(driver.end_capture(stream, &graph), mode == capture_global ? 901 : 0);
        if (graph != nullptr) driver.destroy_graph(graph);
    }
}

/// Waits a while for something that another thread does.
bool soon(const std::atomic<int>& value, int wanted) {
    for (int i = 0; i < 2000 && value != wanted; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return value == wanted;
}

TEST_F(Captures, GraphsAndTheirInstancesKeepUserObjects) {
    const cuda::Stream stream = make_stream();
    std::atomic<int> destroyed{0};
    UserObject object = nullptr;
    Graph graph = nullptr, seen = nullptr, instance = nullptr;
    ASSERT_EQ(driver.begin_capture(stream, capture_global), 0);
    int status = 0;
    unsigned long long id = 0;
    ASSERT_EQ(driver.capture_info(stream, &status, &id, &seen, nullptr, nullptr), 0);
    EXPECT_NE(id, 0u);
    ASSERT_EQ(
        driver.create_user_object(
            &object, &destroyed, [](void* data) { ++*static_cast<std::atomic<int>*>(data); }, 1, 1),
        0);
    ASSERT_EQ(driver.retain_user_object(seen, object, 1, 1), 0);
    Gate gate;
    gate.close(driver, stream);
    ASSERT_EQ(driver.end_capture(stream, &graph), 0);
    EXPECT_EQ(graph, seen);
    ASSERT_EQ(driver.instantiate(&instance, graph, 0), 0);

    ASSERT_EQ(driver.destroy_graph(graph), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(destroyed, 0) << "the instance keeps it";
    ASSERT_EQ(driver.launch_graph(instance, stream), 0);
    ASSERT_EQ(driver.destroy_instance(instance), 0);
    gate.open();
    ASSERT_EQ(driver.stream_synchronize(stream), 0);
    EXPECT_TRUE(soon(destroyed, 1));
}

}  // namespace
}  // namespace cistern::test
