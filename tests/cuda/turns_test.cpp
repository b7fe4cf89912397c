// Streams that take turns with blocks of many sizes: what they take from each other, and when a pool grows instead.

#include <array>
#include <barrier>
#include <map>
#include <random>

#include "gpu.hpp"
#include "support/reconcile.hpp"
#include "support/scale.hpp"
#include "support/threads.hpp"

namespace cistern::test {
namespace {

/// Streams of a pool, and sizes that each of them wants in turn.
struct InTurn {
    std::vector<StreamPool> streams;
    std::vector<std::size_t> sizes;

    /// Has each stream acquire and release each size, some times.
    template <class Seen>
    void work(int times, Seen seen) {
        for (int i = 0; i < times; ++i) {
            for (const std::size_t bytes : sizes) {
                for (std::size_t s = 0; s < streams.size(); ++s) {
                    seen(s, streams[s].acquire(bytes));
                }
            }
        }
    }
    void work(int times) {
        work(times, [](std::size_t, const Buffer&) {});
    }
};

template <class Base>
class TurnsOn : public Base {
protected:
    void SetUp() override {
        Base::SetUp();
        if (this->IsSkipped()) return;
        ASSERT_EQ(this->driver.device_total(&total, 0), 0);
    }
    void TearDown() override {
        if (total != 0 && this->driver.is_stand_in()) {
            this->driver.control->set_total_bytes(0, total);
        }
        Base::TearDown();
    }
    InTurn in_turn(const Pool& pool, std::size_t streams, std::vector<std::size_t> sizes) {
        InTurn made{{}, std::move(sizes)};
        for (std::size_t i = 0; i < streams; ++i)
            made.streams.push_back(pool.on(this->make_stream()));
        return made;
    }

private:
    std::size_t total = 0;
};

using Turns = TurnsOn<Gpu>;
using TurnsCalls = TurnsOn<StandIn>;

constexpr std::size_t largest = 25_MiB;
const std::vector<std::size_t> large_sizes{400_KiB,  800_KiB,   1600_KiB, 3200_KiB,
                                           6400_KiB, 12800_KiB, largest};

TEST_F(TurnsCalls, WithLargeBlocksEndWithBytesOfItsOwnForEachStream) {
    struct Case {
        std::size_t streams;
        std::vector<std::size_t> sizes;
    };
    const std::vector<std::size_t> others{3_MiB,  5_MiB,  7_MiB, 11_MiB, 13_MiB,
                                          17_MiB, 19_MiB, 2_MiB, 23_MiB};
    for (const Case& one : {Case{2, large_sizes}, Case{4, large_sizes}, Case{6, large_sizes},
                            Case{2, others}, Case{6, others}}) {
        Pool pool{Memory::device()};
        InTurn some = in_turn(pool, one.streams, one.sizes);
        some.work(200);
        const auto recorded = calls("cuEventRecord"), mapped = calls("cuMemMap");

        some.work(200);

        EXPECT_EQ(calls("cuEventRecord"), recorded) << one.streams << " streams";
        EXPECT_EQ(calls("cuMemMap"), mapped) << one.streams << " streams";
        EXPECT_LE(
            pool.stats().held_bytes.peak,
            std::min<std::size_t>(2 * one.streams, 8) * one.sizes.back() + one.streams * 4_MiB);
        EXPECT_EQ(contradictions(pool.stats()), "");
    }
}

/// What a stream grew by would go back to the driver with the next release.
TEST_F(TurnsCalls, TakeFromEachOtherWhatMayNotStayIdle) {
    for (const std::size_t idle : {32_MiB, 64_MiB, 100_MiB}) {
        Pool pool{Memory::device(), {.max_idle_bytes = idle}};
        InTurn four = in_turn(pool, 4, large_sizes);
        four.work(200);
        const auto mapped = calls("cuMemMap"), waited = host_waits();

        four.work(200);

        EXPECT_EQ(calls("cuMemMap"), mapped) << idle;
        EXPECT_EQ(host_waits(), waited) << idle;
    }
}

TEST_F(Turns, OfManyStreamsHoldAFewTimesWhatIsLent) {
    Pool pool{Memory::device()};
    InTurn many = in_turn(pool, 16, {largest});

    many.work(200);

    EXPECT_LE(pool.stats().held_bytes.peak, 8 * largest + 16 * 4_MiB);
}

TEST_F(Turns, UnderALimitNeedNoMoreThanOneStream) {
    Pool pool{Memory::device(), {.max_bytes = 40_MiB}};
    InTurn four = in_turn(pool, 4, large_sizes);
    four.work(10);
    const std::uint64_t misses = pool.stats().misses;

    four.work(200);

    EXPECT_LE(pool.stats().misses - misses, 32u) << "of 5600 acquires";
}

/// Streams of which each is used once and stays: what one wants another need not have.
TEST_F(Turns, OfStreamsThatDoNotComeBackHoldWhatOneWants) {
    Pool pool{Memory::device()};
    std::vector<StreamPool> all;
    for (int i = 0; i < 60; ++i) {
        all.push_back(pool.on(make_stream()));
        for (int j = 0; j < 4; ++j) {
            std::vector<Buffer> buffers;
            for (int k = 0; k < 4; ++k) buffers.push_back(all.back().acquire(8_MiB));
        }
    }

    EXPECT_LE(pool.stats().held_bytes.peak, 32_MiB + 8_MiB);
}

TEST_F(TurnsCalls, EndWithBytesOfItsOwnForEachStream) {
    Pool pool{Memory::device()};
    InTurn four = in_turn(pool, 4, {24_KiB, 48_KiB, 96_KiB, 192_KiB, 384_KiB, 768_KiB, 1536_KiB});
    four.work(200);
    const auto recorded = calls("cuEventRecord"), waited = calls("cuStreamWaitEvent");

    four.work(200);

    EXPECT_EQ(calls("cuEventRecord"), recorded);
    EXPECT_EQ(calls("cuStreamWaitEvent"), waited);
    EXPECT_LE(pool.stats().held_bytes.peak, 4 * 3048_KiB + 16_MiB);
    EXPECT_LE(pool.stats().moves, 8u) << "which takes bytes from others as well";
}

TEST_F(TurnsCalls, DoNotGoOnAskingAMemoryThatHasNoMore) {
    driver.control->set_total_bytes(0, driver.control->bytes_in_use(0) + 48_MiB);
    Pool pool{Memory::device()};
    InTurn four = in_turn(pool, 4, large_sizes);
    four.work(50);
    const auto asked = calls("cuMemCreate");

    four.work(200);

    EXPECT_LE(calls("cuMemCreate") - asked, 100u) << "in 5600 acquires";
}

TEST_F(Turns, SmallBlocksComeToStayWhereTheyAre) {
    Pool pool{Memory::device()};
    InTurn many = in_turn(pool, 16,
                          {12_KiB, 24_KiB, 48_KiB, 96_KiB, 192_KiB, 384_KiB, 768_KiB, 450_KiB,
                           500_KiB, 550_KiB, 600_KiB});
    many.work(300);

    std::map<std::pair<std::size_t, std::size_t>, const void*> places;
    std::size_t moved = 0;
    many.work(100, [&](std::size_t stream, const Buffer& buffer) {
        const auto [place, is_new] = places.try_emplace({stream, buffer.size()}, buffer.data());
        if (!is_new && place->second != buffer.data()) ++moved;
        place->second = buffer.data();
    });

    EXPECT_LE(moved, 16u) << "of " << 100 * 16 * many.sizes.size();
    EXPECT_LE(pool.stats().held_bytes.peak, 16 * 4_MiB + 8_MiB);
}

TEST_F(Turns, NowAndThenNeedNoSecondBlock) {
    Pool pool{Memory::device()};
    InTurn two = in_turn(pool, 2, {64_MiB});
    for (int i = 0; i < 300; ++i) {
        two.work(1);
        for (int j = 0; j < 160; ++j) static_cast<void>(two.streams[0].acquire(4_KiB));
    }

    EXPECT_LE(pool.stats().held_bytes.peak, 64_MiB + 8_MiB);
}

/// A thread that has a stream to itself need not ask the pool for what it comes back for.
TEST_F(Turns, AThreadKeepsWhatItsStreamHasOutAtMost) {
    Pool pool{Memory::device()};
    StreamPool stream = pool.on(make_stream());
    for (int round = 0; round < 100; ++round) {
        std::array<Buffer, 4> lent;
        for (Buffer& buffer : lent) buffer = stream.acquire(20_MiB);
    }
    EXPECT_EQ(pool.explain().magazine_bytes, 4 * 20_MiB);
    EXPECT_EQ(pool.stats().held_bytes.now, 4 * 20_MiB);

    const Buffer other = pool.on(make_stream()).acquire(80_MiB);

    EXPECT_EQ(pool.stats().held_bytes.now, 80_MiB) << "it is there for others all the same";
}

/// What a thread takes from its magazines of other streams is seen, though it does not go by the pool.
TEST_F(Turns, OfOneThreadMakeThePeakThatTheyMade) {
    for (const std::size_t count : {2U, 4U, 8U}) {
        Pool pool{Memory::device()};
        std::vector<StreamPool> streams;
        for (std::size_t i = 0; i < count; ++i) streams.push_back(pool.on(make_stream()));
        const auto lend = [](StreamPool& stream) {
            std::vector<Buffer> lent;
            for (int i = 0; i < 4; ++i) lent.push_back(stream.acquire(4_MiB));
            return lent;
        };
        for (int round = 0; round < 100; ++round) {
            for (StreamPool& stream : streams) lend(stream);
        }
        EXPECT_EQ(pool.stats().lent_bytes.peak, 16_MiB);
        {
            std::vector<std::vector<Buffer>> lent;
            for (std::size_t i = 0; i + 1 < count; ++i) lent.push_back(lend(streams[i]));
            streams.back().acquire(3_MiB).release();
        }
        EXPECT_EQ(pool.stats().lent_bytes.peak, (count - 1) * 16_MiB + 3_MiB);
    }
}

TEST_F(Turns, ThreadsOfOneStreamKeepLess) {
    constexpr std::size_t threads = 2;
    Pool pool{Memory::device()};
    StreamPool stream = pool.on(make_stream());
    std::uint64_t kept = 0;
    std::barrier done(threads);
    on_threads(threads, [&](std::size_t thread) {
        const OnThread on(*this);
        for (int round = 0; round < 100; ++round) {
            std::array<Buffer, 4> lent;
            for (Buffer& buffer : lent) buffer = stream.acquire(20_MiB);
        }
        done.arrive_and_wait();
        if (thread == 0) kept = pool.explain().magazine_bytes;
        done.arrive_and_wait();
    });

    EXPECT_LE(kept, threads * 32_MiB);
}

/// Each thread has two streams, and sees that nobody else writes to its bytes.
TEST_F(Turns, OfThreadsLeaveEachOthersBytesAlone) {
    constexpr std::size_t threads = 4;
    Pool pool{Memory::device(), {.max_bytes = 96_MiB}};
    std::vector<cuda::Stream> streams;
    for (std::size_t i = 0; i < 2 * threads; ++i) streams.push_back(make_stream());
    on_threads(threads, [&](std::size_t thread) {
        const OnThread on(*this);
        std::array lanes{pool.on(streams[2 * thread]), pool.on(streams[2 * thread + 1])};
        std::mt19937 random(static_cast<unsigned>(thread));
        for (std::uint64_t step = 0; step < scaled(200); ++step) {
            const std::size_t lane = random() % 2;
            const cuda::Stream stream = streams[2 * thread + lane];
            const auto value = static_cast<unsigned char>(1 + random() % 255);
            const Buffer buffer = lanes[lane].acquire(1_MiB + random() % 16_MiB);
            fill(stream, buffer, value);
            check(stream, buffer, value);
        }
    });

    EXPECT_EQ(mismatches(), 0u);
    EXPECT_EQ(contradictions(pool.stats()), "");
}

// --- Bytes side by side that are several streams' ---------------------------------------------------

class SideBySide : public Gpu {
protected:
    void SetUp() override {
        Gpu::SetUp();
        if (IsSkipped()) return;
        for (cuda::Stream& stream : streams) stream = make_stream();
    }
    /// Two streams' blocks, between others that stay.
    struct Scene {
        explicit Scene(SideBySide& test, PoolOptions options = {})
            : pool(Memory::device(), std::move(options)),
              left(pool.on(test.streams[0])),
              right(pool.on(test.streams[1])),
              taker(pool.on(test.streams[2])),
              before(left.acquire(2_MiB)),
              first(left.acquire(8_MiB)),
              second(right.acquire(8_MiB)),
              after(right.acquire(2_MiB)) {}

        void release() {
            place = first.data();
            first.release();
            second.release();
        }

        Pool pool;
        StreamPool left, right, taker;
        Buffer before, first, second, after;
        const void* place = nullptr;
    };

    std::array<cuda::Stream, 3> streams{};
};

TEST_F(SideBySide, BytesBecomeOneBlockOnceBothStreamsAreWaitedFor) {
    Scene scene(*this);
    ASSERT_EQ(static_cast<std::byte*>(scene.first.data()) + 8_MiB, scene.second.data());
    fill(streams[0], scene.first, 1, late);
    check(streams[0], scene.first, 1, late);
    fill(streams[1], scene.second, 2, late);
    check(streams[1], scene.second, 2, late);
    scene.release();

    const Buffer both = scene.taker.acquire(16_MiB);
    fill(streams[2], both, 3);
    check(streams[2], both, 3);

    EXPECT_EQ(both.data(), scene.place);
    EXPECT_EQ(mismatches(), 0u);
    EXPECT_EQ(scene.pool.stats().held_bytes.peak, 20_MiB);
    EXPECT_EQ(scene.pool.stats().moves, 0u);
    EXPECT_EQ(contradictions(scene.pool.stats()), "");
}

TEST_F(SideBySide, BytesThatAreNotWantedStayIdle) {
    for (const bool mirrored : {false, true}) {
        Pool pool{Memory::device()};
        std::vector<StreamPool> lanes;
        for (const cuda::Stream stream : streams) lanes.push_back(pool.on(stream));
        const Buffer before = pool.acquire(2_MiB);
        Buffer left = lanes[mirrored ? 2 : 0].acquire(mirrored ? 8_MiB : 4_MiB);
        Buffer middle = lanes[1].acquire(16_MiB);
        Buffer right = lanes[mirrored ? 0 : 2].acquire(mirrored ? 4_MiB : 8_MiB);
        const Buffer after = pool.acquire(2_MiB);
        const void* const place = static_cast<std::byte*>(left.data()) + (mirrored ? 6_MiB : 0);
        left.release();
        middle.release();
        right.release();

        const Buffer most = pool.on(make_stream()).acquire(22_MiB);
        EXPECT_EQ(most.data(), place);
        EXPECT_EQ(pool.stats().idle_bytes.now, 6_MiB);
        const Buffer rest = lanes[2].acquire(6_MiB);

        EXPECT_EQ(pool.stats().held_bytes.peak, 32_MiB);
        EXPECT_EQ(pool.stats().moves, 0u);
        EXPECT_EQ(contradictions(pool.stats()), "");
    }
}

TEST_F(SideBySide, BytesComeBackWhereAStreamCannotBeWaitedFor) {
    if (!driver.is_stand_in()) GTEST_SKIP() << "needs the stand-in";
    for (const unsigned nth : {1u, 2u}) {
        Scene scene(*this);
        scene.release();
        driver.control->fail("cuStreamWaitEvent", nth, 1, 999);

        EXPECT_THROW(static_cast<void>(scene.taker.acquire(16_MiB)), DeviceError);

        driver.control->stop_failing();
        EXPECT_EQ(scene.pool.stats().idle_bytes.now, 16_MiB);
        EXPECT_EQ(contradictions(scene.pool.stats()), "");
        EXPECT_EQ(scene.taker.acquire(16_MiB).data(), scene.place);
    }
}

TEST_F(SideBySide, BytesThatComeBackKeepTheLimits) {
    if (!driver.is_stand_in()) GTEST_SKIP() << "needs the stand-in";
    Scene scene(*this, {.max_idle_bytes = 16_MiB});
    Buffer more = scene.taker.acquire(16_MiB);
    scene.release();
    driver.control->set_hook(
        [](void* data, const char* function) {
            if (std::string(function) == "cuStreamWaitEvent") static_cast<Buffer*>(data)->release();
        },
        &more);
    driver.control->fail("cuStreamWaitEvent", 2, 1, 999);

    EXPECT_THROW(static_cast<void>(scene.taker.acquire(16_MiB)), DeviceError);

    driver.control->set_hook(nullptr, nullptr);
    driver.control->stop_failing();
    EXPECT_LE(scene.pool.stats().idle_bytes.peak, 16_MiB);
}

TEST_F(SideBySide, BytesOfAGraphAreLeftAlone) {
    ASSERT_EQ(driver.begin_capture(streams[1], capture_relaxed), 0);
    cuda::Graph graph = nullptr;
    {
        Scene scene(*this, {.max_bytes = 20_MiB});
        scene.release();

        EXPECT_TRUE(scene.taker.try_acquire(16_MiB).empty()) << "while it is captured";
        ASSERT_EQ(driver.end_capture(streams[1], &graph), 0);
        scene.right = scene.left;
        EXPECT_TRUE(scene.taker.try_acquire(16_MiB).empty()) << "while the graph lives";
        EXPECT_EQ(scene.pool.stats().idle_bytes.now, 8_MiB);
    }
    EXPECT_EQ(driver.destroy_graph(graph), 0);
}

}  // namespace
}  // namespace cistern::test
