#pragma once
// Acquired on one thread, released on another: a producer hands buffers over through a ring, one by
// one or many together. ns per buffer, from the first acquire to the last release. The bytes are not
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
/// when it must, so that the indexes seldom cross between the cores. `Together` values are shown to
/// the other side at once.
template <class T, std::size_t Together>
class Ring {
public:
    void push(T&& value) {
        while (pushing_ - popped_seen_ == slots) {
            popped_seen_ = popped_.load(std::memory_order_acquire);
        }
        std::construct_at(reinterpret_cast<T*>(&slots_[pushing_ % slots]), std::move(value));
        if (++pushing_ % Together == 0) pushed_.store(pushing_, std::memory_order_release);
    }
    void pop_and_drop() {
        while (popping_ == pushed_seen_) pushed_seen_ = pushed_.load(std::memory_order_acquire);
        std::destroy_at(std::launder(reinterpret_cast<T*>(&slots_[popping_ % slots])));
        if (++popping_ % Together == 0) popped_.store(popping_, std::memory_order_release);
    }

private:
    static constexpr std::size_t slots = Together == 1 ? 256 : 2 * Together;
    alignas(128) std::atomic<std::size_t> pushed_{0};
    std::size_t pushing_ = 0, popped_seen_ = 0;  // the producer's
    alignas(128) std::atomic<std::size_t> popped_{0};
    std::size_t popping_ = 0, pushed_seen_ = 0;  // the consumer's
    struct alignas(T) Slot {
        std::byte bytes[sizeof(T)];
    };
    alignas(128) std::array<Slot, slots> slots_;  // a value in each from popped to pushed
};

template <class Source, std::size_t Together>
class RemoteTask : public Task {
public:
    using Loan = decltype(std::declval<Source&>().acquire(0));

    explicit RemoteTask(const Parameters& parameters)
        : bytes_(parameters.bytes), source_(bytes_), batch_(parameters.round_ns) {}

    Figures round() override {
        const double ns = batch_.run_timed([&](std::size_t count) { return hand_over(count); });
        return {{"ns", ns / Together}};
    }

private:
    /// Hands over `count` times `Together` buffers; returns how many ns it took.
    double hand_over(std::size_t count) {
        return partner_.run(
            [&] {
                for (std::size_t n = count * Together; n != 0; --n) ring_.pop_and_drop();
            },
            [&] {
                for (std::size_t n = count * Together; n != 0; --n)
                    ring_.push(source_.acquire(bytes_));
            });
    }

    std::size_t bytes_;
    Source source_;
    Batch batch_;
    Ring<Loan, Together> ring_;
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
