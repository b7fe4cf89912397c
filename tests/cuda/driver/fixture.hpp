#pragma once
// A driver under test, with the context of device 0 entered.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <vector>

#include "../library.hpp"
#include "support/literals.hpp"

namespace cistern::test {

using namespace cuda;

class DriverTest : public testing::Test {
protected:
    void SetUp() override {
        if (driver.handle == nullptr) GTEST_SKIP() << driver.missing;
        ASSERT_EQ(driver.missing, "");
        ASSERT_EQ(driver.init(0), 0);
        ASSERT_EQ(driver.retain_context(&context, 0), 0);
        ASSERT_EQ(driver.push_context(context), 0);
    }
    void TearDown() override {
        if (context == nullptr) return;
        driver.synchronize();
        for (const cuda::Stream stream : streams_) driver.destroy_stream(stream);
        Context popped = nullptr;
        driver.pop_context(&popped);
    }

    cuda::Stream make_stream(unsigned flags = non_blocking) {
        cuda::Stream stream = nullptr;
        EXPECT_EQ(driver.create_stream(&stream, flags), 0);
        streams_.push_back(stream);
        return stream;
    }
    Event make_event() {
        Event event = nullptr;
        EXPECT_EQ(driver.create_event(&event, event_without_timing), 0);
        return event;
    }
    void destroy(cuda::Stream stream) {
        std::erase(streams_, stream);
        EXPECT_EQ(driver.destroy_stream(stream), 0);
    }

    const Library& driver = Library::get();
    Context context = nullptr;

private:
    std::vector<cuda::Stream> streams_;
};

/// Holds streams up until open() is called. What it is made of stays, for work that comes by late.
class Gate {
public:
    Gate() : open_(all().emplace_back(false)) {}
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    ~Gate() { open(); }

    void close(const Library& driver, cuda::Stream stream) {
        const auto wait = [](void* open) { static_cast<std::atomic<bool>*>(open)->wait(false); };
        EXPECT_EQ(driver.launch_host(stream, wait, &open_), 0);
    }
    void open() {
        open_ = true;
        open_.notify_all();
    }

private:
    static std::deque<std::atomic<bool>>& all() {
        static auto* const gates = new std::deque<std::atomic<bool>>;
        return *gates;
    }
    std::atomic<bool>& open_;
};

/// Counts how often work on a stream came by. Behind a closed Gate it waits, on any stream: drivers may have
/// one thread for all host functions.
class Steps {
public:
    void add(const Library& driver, cuda::Stream stream) {
        EXPECT_EQ(driver.launch_host(
                      stream, [](void* self) { ++static_cast<Steps*>(self)->count_; }, this),
                  0);
    }
    [[nodiscard]] int count() const { return count_; }

private:
    std::atomic<int> count_{0};
};

/// Counts work that came by, each piece once, also beside a closed Gate: without host functions.
class Marks {
public:
    explicit Marks(const Library& driver) : driver_(driver) {
        EXPECT_EQ(driver_.allocate_managed(&data_, most, attach_global), 0);
        EXPECT_EQ(driver_.set_async(data_, 0, most, nullptr), 0);
        EXPECT_EQ(driver_.stream_synchronize(nullptr), 0);
    }
    Marks(const Marks&) = delete;
    Marks& operator=(const Marks&) = delete;
    ~Marks() { EXPECT_EQ(driver_.free(data_), 0); }

    void add(cuda::Stream stream) {
        EXPECT_LT(used_, most);
        EXPECT_EQ(driver_.set_async(data_ + used_++, 1, 1, stream), 0);
    }
    [[nodiscard]] int count() const {
        int set = 0;
        for (std::size_t i = 0; i < used_; ++i) {
            set += std::atomic_ref(*reinterpret_cast<unsigned char*>(data_ + i)).load();
        }
        return set;
    }

private:
    static constexpr std::size_t most = 16;
    const Library& driver_;
    Address data_ = 0;
    std::size_t used_ = 0;
};

}  // namespace cistern::test
