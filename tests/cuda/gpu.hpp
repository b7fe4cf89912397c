#pragma once
// A device, real or stand-in, with streams and work on them that would see corruption: fill() writes a
// value in a stream's order, after a while if asked to; check() counts the bytes that hold another.
// On a real device they are kernels, on the stand-in functions that its streams call.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cistern/cistern.hpp"
#include "cistern/stream.hpp"
#include "library.hpp"
#include "support/literals.hpp"

namespace cistern::test {

/// Waits up to ten seconds for what another thread brings about.
template <class Condition>
bool soon(Condition condition) {
    for (int i = 0; i < 10000 && !condition(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return condition();
}

/// Borrows what another thread is about to let go; empty if it does not come.
template <class From>
Buffer acquired_soon(From& from, std::size_t bytes) {
    Buffer buffer;
    soon([&] {
        if (buffer.empty()) buffer = from.try_acquire(bytes);
        return !buffer.empty();
    });
    return buffer;
}

class Gpu : public testing::Test {
protected:
    static constexpr bool late = true;

    void SetUp() override;
    void TearDown() override;

    /// Enters the device's context on a thread of the test's own, while it lives.
    class OnThread {
    public:
        explicit OnThread(const Gpu& gpu) : driver_(gpu.driver) {
            driver_.push_context(gpu.context);
        }
        OnThread(const OnThread&) = delete;
        OnThread& operator=(const OnThread&) = delete;
        ~OnThread() {
            cuda::Context popped = nullptr;
            driver_.pop_context(&popped);
        }

    private:
        const Library& driver_;
    };

    cuda::Stream make_stream(unsigned flags = non_blocking);
    void destroy(cuda::Stream stream);
    void fill(cuda::Stream stream, void* data, std::size_t bytes, unsigned char value,
              bool after_a_while = false);
    void check(cuda::Stream stream, const void* data, std::size_t bytes, unsigned char value,
               bool after_a_while = false);
    void fill(cuda::Stream stream, const Buffer& buffer, unsigned char value, bool slowly = false) {
        fill(stream, buffer.data(), buffer.size(), value, slowly);
    }
    void check(cuda::Stream stream, const Buffer& buffer, unsigned char value,
               bool slowly = false) {
        check(stream, buffer.data(), buffer.size(), value, slowly);
    }
    /// Has what a stream is given from now on come after what the other was given so far.
    void follow(cuda::Stream stream, cuda::Stream other);
    /// Waits for all work; returns how many bytes check() found wrong so far.
    unsigned mismatches();
    /// Waits for the stream's work; returns the bytes.
    std::vector<unsigned char> read(const Buffer& buffer);

    /// How often the driver was called, on the stand-in.
    [[nodiscard]] unsigned long long calls(const char* function) const {
        return driver.control->calls(function);
    }
    /// Calls that make the host wait.
    [[nodiscard]] unsigned long long host_waits() const {
        return calls("cuStreamSynchronize") + calls("cuEventSynchronize") +
               calls("cuCtxSynchronize") + calls("cuMemFree_v2");
    }

    const Library& driver = Library::get();
    cuda::Context context = nullptr;

private:
    struct Job {
        Gpu* gpu;
        void* data;
        std::size_t bytes;
        unsigned char value;
        bool slowly;
    };
    struct Kernels;

    static void fill_on_host(void* job);
    static void check_on_host(void* job);
    void launch(cuda::Stream stream, bool fills, void* data, std::size_t bytes, unsigned char value,
                bool slowly);

    std::mutex lock_;
    std::deque<Job> jobs_;  // graphs run them again
    std::vector<cuda::Stream> streams_;
    std::atomic<unsigned> wrong_{0};
    const Kernels* kernels_ = nullptr;
};

/// What can only be seen on the stand-in: counts of calls, faults.
class StandIn : public Gpu {
protected:
    void SetUp() override {
        Gpu::SetUp();
        if (!IsSkipped() && !driver.is_stand_in()) GTEST_SKIP() << "needs the stand-in";
    }
    void TearDown() override {
        if (driver.is_stand_in()) {
            driver.control->set_hook(nullptr, nullptr);
            driver.control->stop_failing();
        }
        Gpu::TearDown();
    }
    [[nodiscard]] std::size_t in_use(int device = 0) const {
        return driver.control->bytes_in_use(device);
    }
};

}  // namespace cistern::test
