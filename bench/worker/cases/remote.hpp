#pragma once
// Acquired on one thread, released on another: a producer hands buffers over through a ring that
// holds 256 of them. ns per buffer, from the first acquire to the last release. The bytes are not
// touched, so that the figure is what the allocator costs, and the ring.

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "clock.hpp"
#include "cores.hpp"
#include "task.hpp"

namespace bench {

/// One producer, one consumer. Each keeps its last sight of the other's index and looks again only
/// when it must, so that the indexes seldom cross between the cores.
template <class T>
class Ring {
public:
    void push(T&& value) {
        const std::size_t at = pushed_.load(std::memory_order_relaxed);
        while (at - popped_seen_ == slots) popped_seen_ = popped_.load(std::memory_order_acquire);
        std::construct_at(reinterpret_cast<T*>(&slots_[at % slots]), std::move(value));
        pushed_.store(at + 1, std::memory_order_release);
    }
    void pop_and_drop() {
        const std::size_t at = popped_.load(std::memory_order_relaxed);
        while (at == pushed_seen_) pushed_seen_ = pushed_.load(std::memory_order_acquire);
        std::destroy_at(std::launder(reinterpret_cast<T*>(&slots_[at % slots])));
        popped_.store(at + 1, std::memory_order_release);
    }

private:
    static constexpr std::size_t slots = 256;
    alignas(128) std::atomic<std::size_t> pushed_{0};
    std::size_t popped_seen_ = 0;  // the producer's
    alignas(128) std::atomic<std::size_t> popped_{0};
    std::size_t pushed_seen_ = 0;  // the consumer's
    struct alignas(T) Slot {
        std::byte bytes[sizeof(T)];
    };
    alignas(128) std::array<Slot, slots> slots_;  // a value in each from popped to pushed
};

template <class Source>
class RemoteTask : public Task {
public:
    using Loan = decltype(std::declval<Source&>().acquire(0));

    explicit RemoteTask(const Parameters& parameters)
        : bytes_(parameters.bytes), source_(bytes_), batch_(parameters.round_ns) {}

    Figures round() override {
        return {{"ns", batch_.run_timed([&](std::size_t count) { return hand_over(count); })}};
    }

private:
    double hand_over(std::size_t count) {
        return partner_.run(
            [&] {
                for (std::size_t n = count; n != 0; --n) ring_.pop_and_drop();
            },
            [&] {
                for (std::size_t n = count; n != 0; --n) ring_.push(source_.acquire(bytes_));
            });
    }

    std::size_t bytes_;
    Source source_;
    Batch batch_;
    Ring<Loan> ring_;
    Partner partner_;
};

/// The reference: hands over pointers and allocates nothing.
class NothingSource {
public:
    struct Loan {
        void* data;
    };
    explicit NothingSource(std::size_t /*bytes*/) {}
    Loan acquire(std::size_t /*bytes*/) { return {this}; }
};

}  // namespace bench
