// Streams and events.

#include <set>

#include "fixture.hpp"

namespace cistern::test {
namespace {

cuda::Stream handle_of_per_thread() { return reinterpret_cast<cuda::Stream>(std::uintptr_t{2}); }

using Streams = DriverTest;

TEST_F(Streams, RunTheirOwnWorkInOrder) {
    const cuda::Stream stream = make_stream();
    struct Seen {
        int next = 0;
        bool in_order = true;
    } seen;
    struct Step {
        Seen* seen;
        int number;
    };
    std::vector<Step> steps;
    for (int i = 0; i < 100; ++i) steps.push_back({&seen, i});
    for (Step& step : steps) {
        driver.launch_host(
            stream,
            [](void* data) {
                const auto& [to, number] = *static_cast<Step*>(data);
                to->in_order = to->in_order && to->next++ == number;
            },
            &step);
    }
    ASSERT_EQ(driver.stream_synchronize(stream), 0);
    EXPECT_TRUE(seen.in_order);
    EXPECT_EQ(seen.next, 100);
}

TEST_F(Streams, TakeNoMoreWorkThanTheyHaveRoomFor) {
    if (!driver.is_stand_in()) GTEST_SKIP() << "other drivers have room for more or less";
    const cuda::Stream stream = make_stream(), other = make_stream();
    std::atomic<int> launched{0}, failed{0};
    std::jthread launches;
    Marks steps(driver);
    Gate gate;  // opens first, whatever happens
    gate.close(driver, stream);
    launches = std::jthread([&] {
        failed += driver.push_context(context) != 0;
        for (int i = 0; i < 3000; ++i, ++launched) {
            failed += driver.launch_host(
                          stream, [](void*) {}, nullptr) != 0;
        }
        Context popped = nullptr;
        failed += driver.pop_context(&popped) != 0;
    });
    while (launched < 1000) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_LT(launched, 1100);
    steps.add(other);
    EXPECT_EQ(driver.stream_synchronize(other), 0) << "others go on";
    EXPECT_EQ(steps.count(), 1);

    gate.open();
    launches.join();
    EXPECT_EQ(launched, 3000);
    EXPECT_EQ(failed, 0);
}

TEST_F(Streams, DoNotWaitForEachOther) {
    const cuda::Stream held_up = make_stream(), other = make_stream();
    Marks steps(driver);
    Gate gate;
    gate.close(driver, held_up);
    steps.add(held_up);
    steps.add(other);

    ASSERT_EQ(driver.stream_synchronize(other), 0);
    EXPECT_EQ(steps.count(), 1);
    EXPECT_EQ(driver.query_stream(held_up), 600);
    EXPECT_EQ(driver.query_stream(other), 0);

    gate.open();
    ASSERT_EQ(driver.stream_synchronize(held_up), 0);
    EXPECT_EQ(steps.count(), 2);
}

TEST_F(Streams, WaitForAnEventAsItWasRecorded) {
    const cuda::Stream first = make_stream(), second = make_stream();
    const Event event = make_event();
    EXPECT_EQ(driver.query_event(event), 0) << "never recorded";
    Gate gate;
    Steps before, after;
    gate.close(driver, first);
    before.add(driver, first);
    ASSERT_EQ(driver.record_event(event, first), 0);
    ASSERT_EQ(driver.stream_wait(second, event, 0), 0);
    after.add(driver, second);

    EXPECT_EQ(driver.query_event(event), 600);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(after.count(), 0);

    gate.open();
    ASSERT_EQ(driver.synchronize_event(event), 0);
    EXPECT_EQ(before.count(), 1);
    ASSERT_EQ(driver.stream_synchronize(second), 0);
    EXPECT_EQ(after.count(), 1);
    EXPECT_EQ(driver.destroy_event(event), 0);
}

TEST_F(Streams, AnEventOfTheContextWaitsForAllOfThem) {
    if (driver.record_context == nullptr) GTEST_SKIP() << "this driver has no such event";
    const cuda::Stream first = make_stream(), second = make_stream();
    const Event event = make_event();
    Gate one, two;
    one.close(driver, first);
    two.close(driver, second);
    ASSERT_EQ(driver.record_context(context, event), 0);

    EXPECT_EQ(driver.query_event(event), 600);
    one.open();
    driver.stream_synchronize(first);
    EXPECT_EQ(driver.query_event(event), 600);
    two.open();
    EXPECT_EQ(driver.synchronize_event(event), 0);
    EXPECT_EQ(driver.destroy_event(event), 0);
}

TEST_F(Streams, TheLegacyOneWaitsForBlockingOnesAndTheyForIt) {
    const cuda::Stream blocking = make_stream(0), free = make_stream(non_blocking);
    Marks legacy(driver), later(driver), beside(driver);
    Gate gate;
    gate.close(driver, blocking);
    legacy.add(nullptr);
    later.add(make_stream(0));
    beside.add(free);

    ASSERT_EQ(driver.stream_synchronize(free), 0);
    EXPECT_EQ(beside.count(), 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(legacy.count(), 0);
    EXPECT_EQ(later.count(), 0);

    gate.open();
    ASSERT_EQ(driver.synchronize(), 0);
    EXPECT_EQ(legacy.count(), 1);
    EXPECT_EQ(later.count(), 1);
}

TEST_F(Streams, HaveNumbersOfTheirOwn) {
    std::set<unsigned long long> ids;
    const auto add = [&](cuda::Stream stream) {
        unsigned long long id = 0;
        EXPECT_EQ(driver.stream_id(stream, &id), 0);
        ids.insert(id);
    };
    add(nullptr);
    add(make_stream());
    add(make_stream());
    add(handle_of_per_thread());
    add(handle_of_per_thread());
    std::thread([&] {
        driver.push_context(context);
        add(handle_of_per_thread());
        Context popped = nullptr;
        driver.pop_context(&popped);
    }).join();
    EXPECT_EQ(ids.size(), 5u);
}

TEST_F(Streams, OfThreadsAreApart) {
    Marks steps(driver);
    Gate gate;
    gate.close(driver, handle_of_per_thread());
    std::thread([&] {
        driver.push_context(context);
        steps.add(handle_of_per_thread());
        EXPECT_EQ(driver.stream_synchronize(handle_of_per_thread()), 0);
        Context popped = nullptr;
        driver.pop_context(&popped);
    }).join();
    EXPECT_EQ(steps.count(), 1);
    EXPECT_EQ(driver.query_stream(handle_of_per_thread()), 600);
}

TEST_F(Streams, FinishTheirWorkWhenDestroyed) {
    const cuda::Stream stream = make_stream();
    Gate gate;
    Steps steps;
    gate.close(driver, stream);
    steps.add(driver, stream);
    destroy(stream);
    EXPECT_EQ(steps.count(), 0);

    gate.open();
    ASSERT_EQ(driver.synchronize(), 0);
    EXPECT_EQ(steps.count(), 1);
}

TEST_F(Streams, TellTheirContext) {
    Context of = nullptr;
    EXPECT_EQ(driver.stream_context(make_stream(), &of), 0);
    EXPECT_EQ(of, context);
    EXPECT_EQ(driver.stream_context(nullptr, &of), 0);
    EXPECT_EQ(of, context);
}

TEST_F(Streams, PlainMemoryIsFreedAfterTheWorkOnIt) {
    const cuda::Stream stream = make_stream();
    Address data = 0;
    ASSERT_EQ(driver.allocate(&data, 1_MiB), 0);
    Gate gate;
    gate.close(driver, stream);
    ASSERT_EQ(driver.set_async(data, 1, 1_MiB, stream), 0);
    std::atomic<bool> freed{false};
    std::thread freeing([&] {
        driver.push_context(context);
        EXPECT_EQ(driver.free(data), 0);
        freed = true;
        Context popped = nullptr;
        driver.pop_context(&popped);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(freed);
    gate.open();
    freeing.join();
    EXPECT_EQ(driver.stream_synchronize(stream), 0);
}

TEST_F(Streams, UsedAfterTheirEndStopTheProcess) {
    if (!driver.is_stand_in()) GTEST_SKIP() << "the real driver may do anything";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            const cuda::Stream stream = make_stream();
            destroy(stream);
            driver.query_stream(stream);
        },
        "use of a stream that does not exist");
}

TEST_F(Streams, MayGetAnOldHandleAndThenHaveANewNumber) {
    if (!driver.is_stand_in()) GTEST_SKIP() << "the real driver may or may not";
    driver.control->set_reuse_streams(true);
    unsigned long long old_id = 0, new_id = 0;
    const cuda::Stream old = make_stream();
    driver.stream_id(old, &old_id);
    destroy(old);
    const cuda::Stream fresh = make_stream();
    driver.stream_id(fresh, &new_id);
    driver.control->set_reuse_streams(false);

    EXPECT_EQ(fresh, old);
    EXPECT_NE(new_id, old_id);
}

}  // namespace
}  // namespace cistern::test
