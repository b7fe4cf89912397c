#pragma once
// What a pool did and what it holds.
//
//     std::cout << pool.stats();             // a table for people
//     std::string json = pool.stats().json();
//
// Two shapes only: a counter that rises, and a gauge {now, peak}. They reconcile:
// acquires = hits + misses, lent_buffers = acquires - releases, held = lent + idle.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace [[gnu::visibility("default")]] cistern {

/// A value that rises and falls. The peak is exact for one thread (on up to eight streams); with several it may differ
/// from the true one by what their magazines hold and 64 blocks or 64 KiB each. (That of waste is the
/// largest that was seen when a request went beyond the magazines or the pool was read.)
struct Gauge {
    std::uint64_t now = 0, peak = 0;
    friend bool operator==(const Gauge&, const Gauge&) = default;
};

/// Idle blocks given back to the memory because a limit said so, by the limit.
struct Evictions {
    std::uint64_t max_bytes = 0, max_idle_bytes = 0, max_idle_buffers = 0, max_buffer_bytes = 0,
                  max_idle_age = 0;
    [[nodiscard]] std::uint64_t total() const noexcept {
        return max_bytes + max_idle_bytes + max_idle_buffers + max_buffer_bytes + max_idle_age;
    }
    friend bool operator==(const Evictions&, const Evictions&) = default;
};

struct PoolStats {
    std::uint64_t acquires = 0, hits = 0, misses = 0, grows = 0, releases = 0, evictions = 0,
                  failures = 0;
    Evictions evictions_by_limit;
    std::uint64_t missed_bytes = 0;            // asked of the memory by misses and grows
    std::uint64_t moves = 0, moved_bytes = 0;  // pages moved from idle holes instead of new ones
    Gauge lent_buffers, lent_bytes, idle_buffers, idle_bytes, held_bytes, waste_bytes;

    [[nodiscard]] double hit_rate() const noexcept {
        return acquires == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(acquires);
    }
    [[nodiscard]] std::string json() const;
    friend bool operator==(const PoolStats&, const PoolStats&) = default;
};

/// What is held in blocks of one size class.
struct ClassReport {
    std::size_t up_to_bytes = 0;  // the largest block of this class
    std::uint64_t lent_buffers = 0, lent_bytes = 0, idle_buffers = 0, idle_bytes = 0;
};

/// What is idle for at least `at_least`, and less than the next row's.
struct AgeReport {
    std::chrono::milliseconds at_least{0};
    std::uint64_t idle_buffers = 0, idle_bytes = 0;
};

/// What is lent under one key of a KeyedPool.
struct KeyReport {
    std::string key;
    std::uint64_t lent_buffers = 0, lent_bytes = 0;
};

/// What a pool holds, for whom and why.
struct Explanation {
    std::string pool, memory, fit;
    std::uint64_t lent_bytes = 0, idle_bytes = 0, held_bytes = 0;
    std::uint64_t magazine_bytes = 0;  // idle bytes in the magazines of threads
    std::uint64_t arena_bytes = 0;  // the other idle bytes: in the arena, on the shelf, in between
    std::uint64_t threads = 0;      // that have a magazine
    std::vector<ClassReport> classes;  // only classes that hold something, smallest first
    std::vector<AgeReport> ages;       // of idle bytes, youngest first
    std::vector<KeyReport> keys;       // of a KeyedPool only: most bytes first
    std::vector<std::string> why;  // one sentence each: why bytes are still held, what to change

    [[nodiscard]] std::string json() const;
};

std::ostream& operator<<(std::ostream& out, const PoolStats& stats);
std::ostream& operator<<(std::ostream& out, const Explanation& explanation);

}  // namespace cistern
