// A driver that fails: the error says so, the pool stays as it was, nothing is lost, nothing hangs.

#include <condition_variable>
#include <functional>
#include <iostream>

#include "gpu.hpp"
#include "support/reconcile.hpp"
#include "support/text.hpp"

namespace cistern::test {
namespace {

constexpr std::size_t some = 1_MiB;

using Faults = StandIn;

/// Everything that a pool asks of the driver, in a few steps. Counts what it threw.
int use(Pool& pool, cuda::Stream first, cuda::Stream second) {
    int thrown = 0;
    const auto attempt = [&](const std::function<void()>& step) {
        try {
            step();
        } catch (const OutOfMemory&) {
            ++thrown;
        } catch (const DeviceError& error) {
            ++thrown;
            EXPECT_TRUE(mentions(error.what(), "CUDA") || mentions(error.what(), "error 999"))
                << error.what();
        }
    };
    attempt([&] { pool.acquire(3 * some).release(); });
    attempt([&] {
        StreamPool ordered = pool.on(first);
        Buffer buffer = ordered.acquire(4 * some);
        also_used_on(buffer, second);
        buffer.release();
        const auto zeros = ordered.zeros<char>(some);
    });
    attempt([&] {
        StreamPool ordered = pool.on(second);
        Buffer buffer = ordered.acquire(9 * some);
        pool.grow(buffer, 20 * some);
    });
    attempt([&] { (void)pool.trim(some); });
    return thrown;
}

TEST_F(Faults, EachCallMayFailOnceAndNothingIsLost) {
    default_pool(MemoryKind::device).trim();  // where memory runs out its idle bytes go, too
    const std::size_t before = in_use();
    const cuda::Stream first = make_stream(), second = make_stream();
    for (const char* function :
         {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuEventCreate",
          "cuEventRecord", "cuStreamWaitEvent", "cuStreamGetId", "cuStreamGetCtx",
          "cuStreamGetCaptureInfo_v2", "cuMemsetD8Async", "cuMemcpyAsync", "cuEventQuery",
          "cuEventSynchronize", "cuCtxRecordEvent"}) {
        for (const int error : {2, 999}) {
            for (unsigned nth = 1; nth <= 4; ++nth) {
                SCOPED_TRACE(testing::Message() << function << ", call " << nth << ", " << error);
                Pool pool{Memory::device()};
                driver.control->fail(function, nth, 1, error);
                use(pool, first, second);
                driver.control->stop_failing();

                EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
                EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
                EXPECT_EQ(use(pool, first, second), 0) << "it works again";
            }
        }
        EXPECT_EQ(in_use(), before) << function;
    }
}

TEST_F(Faults, ARefusalToMapIsAnErrorWithTheDriversWords) {
    const std::size_t before = in_use();
    Pool pool{Memory::device()};
    driver.control->fail("cuMemMap", 1, 1000, 801);
    const std::string text = text_of<DeviceError>([&] { (void)pool.acquire(some); });
    EXPECT_TRUE(mentions(text, "CUDA_ERROR_NOT_SUPPORTED")) << text;
    EXPECT_EQ(in_use(), before);
}

TEST_F(Faults, RegistrationThatFailsLeavesNothingBehind) {
    for (const int error : {2, 999}) {
        Pool pool{Memory::pinned()};
        driver.control->fail("cuMemHostRegister_v2", 1, 1000, error);
        if (error == 2) {
            EXPECT_THROW((void)pool.acquire(5_MiB), OutOfMemory);
        } else {
            EXPECT_THROW((void)pool.acquire(5_MiB), DeviceError);
        }
        EXPECT_EQ(pool.stats().held_bytes.now, 0u);
        driver.control->stop_failing();
        EXPECT_FALSE(pool.acquire(5_MiB).empty());
    }
}

TEST_F(Faults, APoisonedContextIsAnErrorAndTheProcessEndsWell) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            static Pool device{Memory::device()};  // destroyed as the process ends
            static Buffer late_one = device.acquire(some);
            Pool host;
            const cuda::Stream stream = make_stream();
            StreamPool ordered = device.on(stream);
            Buffer lent = ordered.acquire(some);
            { const Buffer idle = ordered.acquire(9 * some); }
            driver.control->poison();

            std::string text;
            try {
                const Buffer more = ordered.acquire(200 * some);
            } catch (const Error& error) {
                text = error.what();
            }
            std::cerr << text << '\n';
            lent.release();
            (void)device.trim();
            const Buffer works = host.acquire(some);
            std::cerr << device.stats() << device.explain();
            std::exit(mentions(text, "CUDA_ERROR_ILLEGAL_ADDRESS") && !works.empty() ? 0 : 1);
        },
        testing::ExitedWithCode(0), "illegal memory access");
}

TEST_F(Faults, PinnedMemoryOfAPoisonedContextIsStillTheHosts) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            Pool pool{Memory::pinned()};
            auto numbers = pool.array<int>(1000);
            driver.control->poison();
            numbers.fill(1);
            { const auto more = pool.array<int>(1000); }
            std::exit(numbers(999) == 1 ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
}

/// Reads a pool on a thread of its own whenever it is asked to.
class Reader {
public:
    explicit Reader(Pool pool) : pool_(std::move(pool)), thread_([this] { serve(); }) {}
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader() {
        {
            const std::scoped_lock hold(lock_);
            stop_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    [[nodiscard]] bool is_this_thread() const {
        return thread_.get_id() == std::this_thread::get_id();
    }
    /// Returns whether the pool, and the process's list of pools, could be had in time.
    bool reads_in_time() {
        std::unique_lock hold(lock_);
        const std::uint64_t mine = ++asked_;
        changed_.notify_all();
        return changed_.wait_for(hold, std::chrono::seconds(5), [&] { return done_ >= mine; });
    }

private:
    void serve() {
        std::unique_lock hold(lock_);
        for (;;) {
            changed_.wait(hold, [&] { return stop_ || done_ < asked_; });
            if (stop_) return;
            const std::uint64_t serving = asked_;
            hold.unlock();
            (void)pool_.stats();
            { const Pool registered; }
            hold.lock();
            done_ = serving;
            changed_.notify_all();
        }
    }

    Pool pool_;
    std::mutex lock_;
    std::condition_variable changed_;
    std::uint64_t asked_ = 0, done_ = 0;
    bool stop_ = false;
    std::thread thread_;
};

TEST_F(Faults, NoCallIsMadeWhileALockIsHeld) {
    for (const Memory& memory : {Memory::device(), Memory::pinned(), Memory::managed()}) {
        Pool pool{memory, {.max_bytes = 64 * some}};
        const cuda::Stream first = make_stream(), second = make_stream();
        struct Watch {
            Reader reader;
            std::atomic<int> calls{0};
            std::string stuck;
        } watch{.reader = Reader(pool), .calls = 0, .stuck = {}};
        driver.control->set_hook(
            [](void* data, const char* function) {
                auto& seen = *static_cast<Watch*>(data);
                if (seen.reader.is_this_thread()) return;
                ++seen.calls;
                if (seen.stuck.empty() && !seen.reader.reads_in_time()) seen.stuck = function;
            },
            &watch);
        EXPECT_EQ(use(pool, first, second), 0);
        {
            Buffer one = pool.on(first).acquire(40 * some);
            one.release();
            StreamPool ordered = pool.on(second);
            const Buffer two = ordered.acquire(50 * some);
            EXPECT_TRUE(ordered.try_acquire(40 * some).empty());
            if (memory.kind() == MemoryKind::device) {
                const ImportedBuffer twice{share(two)};
                EXPECT_EQ(twice.size(), two.size());
            }
        }
        EXPECT_EQ(driver.begin_capture(first, capture_global), 0);
        { const Buffer captured = pool.on(first).acquire(some); }
        cuda::Graph graph = nullptr;
        EXPECT_EQ(driver.end_capture(first, &graph), 0);
        EXPECT_EQ(driver.destroy_graph(graph), 0);
        (void)pool.trim();
        driver.control->set_hook(nullptr, nullptr);
        EXPECT_EQ(watch.stuck, "") << memory.name();
        EXPECT_GT(watch.calls, 20);
    }
}

}  // namespace
}  // namespace cistern::test
