// What pools do while a stream is captured that they lend nothing to: the capture goes on, and bytes that only the
// whole device could vouch for wait.

#include <array>
#include <atomic>
#include <optional>
#include <thread>

#include "gpu.hpp"
#include "support/reconcile.hpp"

namespace cistern::test {
namespace {

constexpr std::size_t some = 1_MiB;

std::string name_of(const testing::TestParamInfo<unsigned>& flags) {
    return flags.param == non_blocking ? "NonBlocking" : "Blocking";
}

/// While a stream is captured, marking all work of the device would end the capture; so would the default stream's
/// work that of a blocking stream. The driver says whether a blocking one is captured; of the others the pools know
/// those that they have lent to.
class BesideACapture : public Gpu, public testing::WithParamInterface<unsigned> {
protected:
    void begin() {
        ASSERT_EQ(driver.begin_capture(captured_, capture_relaxed), 0);
        if (GetParam() == non_blocking) kept_ = lends_to_it_->on(captured_).acquire(some);
    }
    void expect_undisturbed() {
        kept_.release();
        cuda::Graph graph = nullptr;
        ASSERT_EQ(driver.end_capture(captured_, &graph), 0) << "the pool has ended it";
        EXPECT_EQ(driver.destroy_graph(graph), 0);
    }
    /// The pool has only these bytes, and lends them after all that used them.
    void expect_lent_after_the_work(Pool& pool) {
        const cuda::Stream other = make_stream();
        StreamPool ordered = pool.on(other);
        const Buffer buffer = ordered.acquire(6 * some);
        fill(other, buffer, 2);
        check(other, buffer, 2, late);
        EXPECT_EQ(mismatches(), 0u);
        EXPECT_LE(pool.stats().held_bytes.peak, 8 * some);
    }
    static cuda::Stream of_this_thread() {
        return reinterpret_cast<cuda::Stream>(std::uintptr_t{2});
    }
    /// Of the stand-in, without what the capture has.
    std::size_t in_use() const {
        return driver.control->bytes_in_use(0) - lends_to_it_->stats().held_bytes.now;
    }

    void SetUp() override {
        Gpu::SetUp();
        if (IsSkipped()) return;
        captured_ = make_stream(GetParam());
        lends_to_it_.emplace(Memory::device());
    }
    void TearDown() override {
        kept_.release();
        lends_to_it_.reset();
        Gpu::TearDown();
    }

private:
    cuda::Stream captured_ = nullptr;
    std::optional<Pool> lends_to_it_;
    Buffer kept_;
};

INSTANTIATE_TEST_SUITE_P(OfStreams, BesideACapture, testing::Values(0u, non_blocking), name_of);

TEST_P(BesideACapture, ABufferOfAClosedStreamIsReleased) {
    for (const bool asks : {false, true}) {
        Pool pool{Memory::device(), {.max_bytes = 8 * some}};
        const cuda::Stream stream = make_stream();
        Buffer buffer = pool.on(stream).acquire(6 * some);
        begin();
        fill(stream, buffer, 1, late);
        buffer.release();
        if (asks) {
            EXPECT_TRUE(pool.try_acquire(6 * some).empty()) << "nobody can say who uses it";
        }
        expect_undisturbed();
        expect_lent_after_the_work(pool);
    }
}

TEST_P(BesideACapture, WhereOneStreamsBytesHaveToWaitAnothersAreLent) {
    Pool pool{Memory::device(), {.max_bytes = 12 * some}};
    Buffer of_closed = pool.on(make_stream()).acquire(6 * some);
    StreamPool open = pool.on(make_stream());
    Buffer of_open = open.acquire(6 * some);
    const void* const place = of_open.data();
    begin();
    of_closed.release();
    of_open.release();

    EXPECT_EQ(pool.on(make_stream()).try_acquire(6 * some).data(), place);

    expect_undisturbed();
}

TEST_P(BesideACapture, ABufferThatAFleetingStreamUsesIsReleased) {
    Pool pool{Memory::device(), {.max_bytes = 8 * some}};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pool.on(stream);
    Buffer buffer = ordered.acquire(6 * some);
    also_used_on(buffer, of_this_thread());
    fill(of_this_thread(), buffer, 1, late);
    begin();
    buffer.release();
    expect_undisturbed();
    expect_lent_after_the_work(pool);
}

TEST_P(BesideACapture, TheLaneOfAFleetingStreamIsClosed) {
    Pool pool{Memory::device(), {.max_bytes = 8 * some}};
    {
        StreamPool ordered = pool.on(of_this_thread());
        Buffer buffer = ordered.acquire(6 * some);
        fill(of_this_thread(), buffer, 1, late);
        buffer.release();
        begin();
    }
    expect_undisturbed();
    expect_lent_after_the_work(pool);
}

TEST_P(BesideACapture, BytesAreWipedLater) {
    Pool pool{Memory::device(), {.max_bytes = 8 * some, .wipe_on_release = true}};
    const cuda::Stream stream = make_stream();
    Buffer buffer = pool.on(stream).acquire(6 * some);
    begin();
    fill(stream, buffer, 1, late);
    buffer.release();
    expect_undisturbed();
    const Buffer again = pool.acquire(6 * some);
    EXPECT_THAT(read(again), testing::Each(0));
    EXPECT_LE(pool.stats().held_bytes.peak, 8 * some);
}

/// Work that goes on until it is let go.
class Held {
public:
    Held(const Library& driver, cuda::Stream stream) {
        EXPECT_EQ(driver.launch_host(stream, &Held::wait, this), 0);
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() { let_go(); }
    void let_go() { gone_ = true; }

private:
    static void wait(void* held) {
        while (!static_cast<Held*>(held)->gone_) std::this_thread::yield();
    }
    std::atomic<bool> gone_{false};
};

/// Bytes released beside a capture that has ended since, and that a stream still uses.
class WipedLate : public BesideACapture {
protected:
    void release_in_use() {
        pool.emplace(Memory::device(), PoolOptions{.max_bytes = 8 * some, .wipe_on_release = true});
        stream = make_stream();
        other = make_stream();
        ordered.emplace(pool->on(other));
        Buffer buffer = pool->on(stream).acquire(6 * some);
        begin();
        fill(stream, buffer, 7);
        work.emplace(driver, stream);
        buffer.release();
        expect_undisturbed();
        small = ordered->acquire(some);  // the pool looks: not done
    }
    void end_work() {
        work->let_go();
        ASSERT_EQ(driver.stream_synchronize(stream), 0);
    }
    void TearDown() override {
        work.reset();
        small.release();
        ordered.reset();
        pool.reset();
        BesideACapture::TearDown();
    }

    cuda::Stream stream = nullptr, other = nullptr;
    std::optional<Pool> pool;
    std::optional<StreamPool> ordered;
    std::optional<Held> work;
    Buffer small;
};

INSTANTIATE_TEST_SUITE_P(OfStreams, WipedLate, testing::Values(0u, non_blocking), name_of);

TEST_P(WipedLate, NotUnderTheNextCaptureEither) {
    release_in_use();
    begin();
    end_work();
    EXPECT_TRUE(ordered->try_acquire(6 * some).empty()) << "it cannot be wiped now";
    expect_undisturbed();
    EXPECT_THAT(read(ordered->acquire(6 * some)), testing::Each(0));
}

TEST_P(WipedLate, AreLentAfterTheWiping) {
    release_in_use();
    constexpr unsigned blocking = 0;
    const cuda::Stream before = make_stream(blocking);  // the default stream waits for it
    Held busy(driver, before);
    std::thread later([&] {  // from here on: a sanitizer may have streams wait for each other
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        busy.let_go();
    });
    end_work();
    const Buffer again = ordered->acquire(6 * some);
    fill(other, again, 2);
    check(other, again, 2, late);
    later.join();
    EXPECT_EQ(mismatches(), 0u);
}

TEST_P(BesideACapture, BytesOfTheDefaultStreamAreWipedLater) {
    Pool pool{Memory::device(), {.max_bytes = 8 * some, .wipe_on_release = true}};
    Buffer buffer = pool.acquire(6 * some);
    fill(nullptr, buffer, 7);
    begin();
    buffer.release();
    expect_undisturbed();
    EXPECT_THAT(read(pool.acquire(6 * some)), testing::Each(0));
}

TEST_P(BesideACapture, WhatNobodyVouchesForIsNotCopied) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    Buffer buffer = pool.on(stream).acquire(2 * some);
    begin();
    EXPECT_THROW(pool.grow(buffer, 16 * some), DeviceError);
    expect_undisturbed();
    EXPECT_EQ(buffer.size(), 2 * some);
    pool.grow(buffer, 16 * some);
}

TEST_P(BesideACapture, OtherBuffersAreUsedAgain) {
    Pool pool{Memory::pinned()};
    const cuda::Stream closed = make_stream(), stream = make_stream();
    std::vector<Buffer> old;
    for (int i = 0; i < 20; ++i) old.push_back(pool.on(closed).acquire(4_KiB));
    StreamPool ordered = pool.on(stream);
    begin();
    old.clear();
    for (int i = 0; i < 20; ++i) {
        ordered.acquire(2 * some).release();
        ASSERT_EQ(driver.stream_synchronize(stream), 0);
    }
    EXPECT_LE(pool.stats().held_bytes.now, 8 * some) << "of one at a time";
    expect_undisturbed();
}

TEST_P(BesideACapture, LimitsHoldAfterIt) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    Buffer buffer = pool.on(stream).acquire(6 * some);
    begin();
    buffer.release();
    Limits limits = limits_of(pool.options());
    limits.max_bytes = limits.max_idle_bytes = 4 * some;
    pool.set_limits(limits);
    expect_undisturbed();
    EXPECT_FALSE(pool.acquire(some).empty());
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits), "");
}

TEST_P(BesideACapture, APoolMayGo) {
    const std::size_t before = driver.is_stand_in() ? in_use() : 0;
    const cuda::Stream stream = make_stream();
    std::optional<Pool> pool{Memory::device()}, second{Memory::device()};
    { const Buffer idle = second->acquire(4 * some); }
    Buffer buffer = pool->on(stream).acquire(6 * some), last = second->on(stream).acquire(2 * some);
    begin();
    fill(stream, buffer, 1, late);
    fill(stream, last, 1, late);
    buffer.release();
    pool.reset();
    second.reset();
    last.release();  // the last that its pool had
    expect_undisturbed();
    EXPECT_EQ(mismatches(), 0u);
    Pool next{Memory::device()};  // which lets those go
    if (driver.is_stand_in()) {
        EXPECT_EQ(in_use(), before);
    }
}

TEST_P(BesideACapture, BytesGoBackToTheDriver) {
    Pool pool{Memory::device()};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pool.on(stream);
    {
        const Buffer buffer = ordered.acquire(6 * some);
        fill(stream, buffer, 1, late);
    }
    begin();
    const std::size_t before = driver.is_stand_in() ? in_use() : 0;
    EXPECT_GE(pool.trim(), 6 * some);
    if (driver.is_stand_in()) {
        EXPECT_LE(in_use() + 6 * some, before) << "that stream can be asked";
    }
    expect_undisturbed();
}

TEST_P(BesideACapture, AnImportedBufferEnds) {
    Pool pool{Memory::device()};
    const Buffer buffer = pool.acquire(6 * some);
    const cuda::Stream stream = make_stream();
    {
        const ImportedBuffer mine{share(buffer)};
        begin();
        fill(stream, mine.data(), mine.size(), 1, late);
        check(stream, mine.data(), mine.size(), 1);
    }
    expect_undisturbed();
    EXPECT_EQ(mismatches(), 0u);
    const auto unmapped = driver.is_stand_in() ? calls("cuMemAddressFree") : 0;
    const ImportedBuffer next{share(buffer)};  // lets the first one go
    if (driver.is_stand_in()) {
        EXPECT_EQ(calls("cuMemAddressFree"), unmapped + 1);
    }
}

TEST_P(BesideACapture, TheDefaultStreamTakesBytesOfOthers) {
    Pool pool{Memory::device(), {.max_bytes = 8 * some}};
    const cuda::Stream stream = make_stream();
    StreamPool ordered = pool.on(stream);
    {
        const Buffer buffer = ordered.acquire(6 * some);
        fill(stream, buffer, 1);
        check(stream, buffer, 1, late);
    }
    begin();
    const Buffer taken = pool.try_acquire(6 * some);
    EXPECT_FALSE(taken.empty()) << "the host can wait for that stream";
    expect_undisturbed();
    fill(nullptr, taken, 2);
    check(nullptr, taken, 2);
    EXPECT_EQ(mismatches(), 0u);
}

TEST_P(BesideACapture, BytesOfTheDefaultStreamThatAnotherUsedAreWipedLater) {
    Pool pool{Memory::device(), {.max_bytes = 8 * some, .wipe_on_release = true}};
    const cuda::Stream stream = make_stream();
    Buffer buffer = pool.acquire(6 * some);
    also_used_on(buffer, stream);
    fill(stream, buffer, 7, late);
    begin();
    buffer.release();
    expect_undisturbed();
    EXPECT_THAT(read(pool.acquire(6 * some)), testing::Each(0));
}

TEST_P(BesideACapture, BytesOfTheDefaultStreamThatTheHostGetsNextAreWipedLater) {
    for (const Memory& memory : {Memory::pinned(), Memory::managed()}) {
        Pool pool{memory, {.max_bytes = 8 * some, .wipe_on_release = true}};
        StreamPool ordered = pool.on(nullptr);
        Buffer buffer = ordered.acquire(6 * some);
        fill(nullptr, buffer, 7, late);
        begin();
        buffer.release();
        expect_undisturbed();
        EXPECT_THAT(read(pool.acquire(6 * some)), testing::Each(0));
    }
}

TEST_P(BesideACapture, BytesThatMayNotStayAreWipedToo) {
    Pool pool{Memory::device(), {.max_idle_bytes = 0, .wipe_on_release = true}};
    Buffer first = pool.acquire(64_KiB), second = pool.acquire(64_KiB);  // in one segment
    fill(nullptr, first, 7);
    begin();
    first.release();
    expect_undisturbed();
    (void)pool.stats();
    for (int i = 0; i < 4; ++i) {
        EXPECT_THAT(read(pool.acquire(64_KiB)), testing::Each(testing::Ne(7)));
    }
}

/// Nobody knows of a capture that no pool lends to, unless its stream is a blocking one. It may be ended then; but
/// bytes in use are not lent.
class BesideAnUnknownCapture : public Gpu {
protected:
    void begin() { ASSERT_EQ(driver.begin_capture(captured_, capture_relaxed), 0); }
    void end() {
        cuda::Graph graph = nullptr;
        if (driver.end_capture(captured_, &graph) == 0) driver.destroy_graph(graph);
    }
    void SetUp() override {
        Gpu::SetUp();
        if (!IsSkipped()) captured_ = make_stream();
    }

private:
    cuda::Stream captured_ = nullptr;
};

TEST_F(BesideAnUnknownCapture, BytesInUseAreNotLent) {
    const cuda::Stream stream = make_stream(), other = make_stream();
    for (const Memory& memory : {Memory::device(), Memory::pinned()}) {
        Pool pool{memory, {.max_bytes = 8 * some}};
        Buffer buffer = pool.on(stream).acquire(6 * some);
        fill(stream, buffer, 1);
        check(stream, buffer, 1, late);
        begin();
        buffer.release();
        StreamPool ordered = pool.on(other);
        for (int i = 0; i < 3; ++i) {
            const Buffer early = ordered.try_acquire(6 * some);
            if (!early.empty()) fill(other, early, 2);
        }
        end();
        const Buffer again = ordered.acquire(6 * some);
        fill(other, again, 3);
        check(other, again, 3);
        EXPECT_EQ(mismatches(), 0u);
    }
}

TEST_F(BesideAnUnknownCapture, BytesInUseDoNotGoBack) {
    const cuda::Stream stream = make_stream();
    Pool pool{Memory::device()};
    Buffer buffer = pool.on(stream).acquire(6 * some);
    const Buffer shared = pool.acquire(6 * some);
    fill(stream, buffer, 1);
    check(stream, buffer, 1, late);
    begin();
    {
        const ImportedBuffer mine{share(shared)};
        check(stream, buffer, 1, late);
        fill(stream, mine.data(), mine.size(), 1);
    }
    buffer.release();
    (void)pool.trim();
    end();
    EXPECT_EQ(mismatches(), 0u);
    (void)pool.trim();
}

using BesideACaptureCalls = StandIn;

TEST_F(BesideACaptureCalls, ManyCapturesNeedFewStreams) {
    Pool pool{Memory::device()}, limited{Memory::device(), {.max_bytes = 8 * some}};
    const std::array streams{make_stream(), make_stream()};
    const cuda::Stream closed = make_stream();
    const auto before = calls("cuStreamCreate");
    for (int i = 0; i < 50; ++i) {
        Buffer buffer = limited.on(closed).acquire(6 * some);
        buffer.release();
        for (const cuda::Stream stream : streams) {
            ASSERT_EQ(driver.begin_capture(stream, capture_relaxed), 0);
            pool.on(stream).acquire(some).release();
        }
        EXPECT_TRUE(limited.try_acquire(6 * some).empty());
        for (const cuda::Stream stream : streams) {
            cuda::Graph graph = nullptr;
            ASSERT_EQ(driver.end_capture(stream, &graph), 0);
            EXPECT_EQ(driver.destroy_graph(graph), 0);
        }
    }
    EXPECT_LE(calls("cuStreamCreate"), before + streams.size());
}

TEST_F(BesideACaptureCalls, BuffersThatOutliveTheirStreamPoolAskNothingOfTheDevice) {
    const cuda::Stream stream = make_stream();
    Pool pool{Memory::device()};
    for (int i = 0; i < 3; ++i) pool.on(stream).acquire(6 * some).release();
    const auto before = calls("cuCtxRecordEvent") + calls("cuCtxSynchronize");
    for (int i = 0; i < 100; ++i) {
        Buffer buffer = pool.on(stream).acquire(6 * some);
        fill(stream, buffer, 1);
        buffer.release();
    }
    EXPECT_EQ(calls("cuCtxRecordEvent") + calls("cuCtxSynchronize"), before);
}

TEST_F(BesideACaptureCalls, ThatTheDeviceCannotBeAskedIsFoundOutOnceForAllClosedStreams) {
    const cuda::Stream captured = make_stream();
    const auto questions = [&](std::size_t streams) {
        Pool pool{Memory::device(), {.max_bytes = streams * 2 * some}};
        Pool lends_to_it{Memory::device()};
        std::vector<Buffer> buffers;
        for (std::size_t i = 0; i < streams; ++i) {
            buffers.push_back(pool.on(make_stream()).acquire(2 * some));
        }
        EXPECT_EQ(driver.begin_capture(captured, capture_relaxed), 0);
        lends_to_it.on(captured).acquire(some).release();
        buffers.clear();
        const auto before = calls("cuStreamGetCaptureInfo_v2");
        EXPECT_TRUE(pool.try_acquire(4 * some).empty());
        const auto asked = calls("cuStreamGetCaptureInfo_v2") - before;
        cuda::Graph graph = nullptr;
        EXPECT_EQ(driver.end_capture(captured, &graph), 0) << "the pool has ended it";
        EXPECT_EQ(driver.destroy_graph(graph), 0);
        EXPECT_FALSE(pool.try_acquire(4 * some).empty());
        return asked;
    };
    const auto few = questions(8), many = questions(32);
    EXPECT_GT(few, 0u);
    EXPECT_LE(many, 6 * few);
}

TEST_P(BesideACapture, OthersGoOnWithBuffersThatOutliveTheirStreamPools) {
    Pool pool{Memory::device(), {.max_bytes = 64 * some}};
    std::atomic<bool> stop{false};
    std::array<std::atomic<unsigned>, 2> buffers{};
    {
        std::vector<std::jthread> others;
        for (unsigned thread = 0; thread < 2; ++thread) {
            const cuda::Stream stream = make_stream();
            others.emplace_back([&, thread, stream] {
                const OnThread entered(*this);
                for (unsigned i = 0; !stop; ++i) {
                    const auto value = static_cast<unsigned char>(2 * i + thread);
                    Buffer buffer = pool.on(stream).acquire(some + i % 8 * 4_KiB);
                    fill(stream, buffer, value);
                    check(stream, buffer, value, i % 64 == 0);
                    ++buffers[thread];
                }
            });
        }
        for (const auto& of_thread : buffers) {  // till then the pool grows
            while (of_thread < 40) std::this_thread::yield();
        }
        for (int i = 0; i < 30 && !HasFailure(); ++i) {
            begin();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            expect_undisturbed();
        }
        stop = true;
    }
    EXPECT_EQ(mismatches(), 0u);
}

}  // namespace
}  // namespace cistern::test
