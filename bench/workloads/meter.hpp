#pragma once
// What a run is measured by. Construct the meter when everything that is no part of the comparison
// exists and is touched; it takes the process's memory and page faults from there.
//
//     Meter meter(budget, 64 << 20);
//     do { step(meter.live); } while (meter.more());
//     Report report = meter.report(checksum);

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "workload.hpp"

namespace cistern::workloads {

/// Bytes that the program has asked for and not given back. Thread-safe.
class Live {
public:
    void add(std::size_t bytes) noexcept {
        requests_.fetch_add(1, std::memory_order_relaxed);
        const std::uint64_t now = now_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
        std::uint64_t peak = peak_.load(std::memory_order_relaxed);
        while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
        }
    }
    void remove(std::size_t bytes) noexcept { now_.fetch_sub(bytes, std::memory_order_relaxed); }

    [[nodiscard]] std::uint64_t peak() const noexcept { return peak_; }
    [[nodiscard]] std::uint64_t requests() const noexcept { return requests_; }

private:
    std::atomic<std::uint64_t> now_{0}, peak_{0}, requests_{0};
};

/// Returns the page faults of the process so far.
std::uint64_t page_faults();

class Meter {
public:
    /// Expects the run to need about this many bytes, and makes sure beforehand that the system has
    /// them at hand: a hypervisor may have taken back free memory of a virtual machine, which then
    /// costs more at the first touch than all else.
    Meter(const Budget& budget, std::size_t expected_bytes);

    /// Counts a step. Returns whether the budget allows another.
    bool more();
    /// Returns what was measured from the construction until now.
    [[nodiscard]] Report report(double checksum) const;

    Live live;

private:
    using Clock = std::chrono::steady_clock;

    Budget budget_;
    std::uint64_t steps_ = 0;
    std::uint64_t resident_bytes_ = 0, page_faults_ = 0;
    Clock::time_point begin_;
};

}  // namespace cistern::workloads
