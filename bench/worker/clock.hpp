#pragma once
// Timing that the compiler cannot optimise away and that other work on the machine disturbs least.

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace bench {

inline constexpr std::size_t page_bytes = 4096;

/// Makes the compiler believe that the bytes behind `pointer` are used.
inline void keep(const void* pointer) { asm volatile("" : : "r"(pointer) : "memory"); }

/// Makes the compiler forget what it knows of `value` and of all memory, so that a loop's step can
/// compute nothing ahead and keeps nothing in registers from the step before.
template <class T>
inline void hide(T& value) {
    asm volatile("" : "+r"(value) : : "memory");
}

/// Writes one byte of every page.
inline void touch_pages(void* data, std::size_t bytes) {
    auto* const begin = static_cast<volatile char*>(data);
    for (std::size_t offset = 0; offset < bytes; offset += page_bytes) begin[offset] = 1;
}

inline double now_ns() {
    return std::chrono::duration<double, std::nano>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

template <class Body>
double time_ns(Body&& body) {
    const double start = now_ns();
    body();
    return now_ns() - start;
}

/// Runs a loop for about `target_ns` at a time: so long that reading the clock costs nothing.
class Batch {
public:
    explicit Batch(double target_ns) : target_ns_(target_ns) {}

    /// Runs `body(count)`, first a little to warm the caches, then timed. Returns ns per operation.
    template <class Body>
    double run(Body&& body) {
        return run_timed([&](std::size_t count) { return time_ns([&] { body(count); }); });
    }
    /// The same for a body that returns how many ns it took.
    template <class Body>
    double run_timed(Body&& body) {
        body(count_ / 8 + 1);
        double ns = body(count_);
        // Too short: the first run, or the one that set the count was disturbed.
        while (ns < target_ns_ / 2) {
            const double wanted = target_ns_ / std::max(ns, target_ns_ / 8);
            count_ = 1 + static_cast<std::size_t>(static_cast<double>(count_) * wanted);
            ns = body(count_);
        }
        return ns / static_cast<double>(count_);
    }

private:
    double target_ns_;
    std::size_t count_ = 1;
};

}  // namespace bench
