// One player per replay: the pools of the trace, and the buffers alive by their number. Peaks of one
// pool are exact because the pool keeps them; peaks of a sum over pools are followed event by event.

#include "trace/replay.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "cistern/error.hpp"

namespace cistern::trace {

namespace {

/// The peak of a sum of gauges of which one changes at a time.
class SummedGauge {
public:
    explicit SummedGauge(std::size_t gauges) : last_(gauges) {}

    /// Notes what gauge `index` shows after it may have changed.
    void update(std::size_t index, const Gauge& gauge) {
        Gauge& last = last_[index];
        const std::uint64_t others = sum_ - last.now;
        // If it reached a peak of its own since, the sum did then too: the others stood still.
        const std::uint64_t highest = gauge.peak > last.peak ? gauge.peak : gauge.now;
        peak_ = std::max(peak_, others + highest);
        sum_ = others + gauge.now;
        last = gauge;
    }
    [[nodiscard]] std::uint64_t peak() const noexcept { return peak_; }

private:
    std::vector<Gauge> last_;
    std::uint64_t sum_ = 0, peak_ = 0;
};

class Player {
public:
    Player(const Trace& trace, const PoolOptions& options, const std::optional<Memory>& memory)
        : trace_(trace),
          held_(trace.pools.size()),
          waste_(trace.pools.size()),
          buffers_(trace.buffers) {
        pools_.reserve(trace.pools.size());
        for (const std::string& name : trace.pools) {
            PoolOptions named = options;
            named.name = name;
            // A memory each, so that no pool ever trims another: that would move two gauges at once.
            pools_.emplace_back(memory ? *memory : Memory::simulated(), std::move(named));
        }
    }

    void play(std::size_t index) {
        const Event& event = trace_.events[index];
        if (event.kind == EventKind::acquire) {
            acquire(event, index);
        } else {
            release(event);
        }
        // The gauges of one pool alone keep their own peaks; read once, at the end.
        if (pools_.size() > 1) read_gauges(event.pool);
    }

    /// Releases what is still live, so that the trace can be played again.
    void rewind() {
        for (Buffer& buffer : buffers_) buffer.release();
        live_bytes_ = 0;
        read_all_gauges();
    }

    [[nodiscard]] ReplayResult result() {
        read_all_gauges();
        ReplayResult result;
        result.pools = pools_.size();
        for (const Pool& pool : pools_) {
            const PoolStats stats = pool.stats();
            result.acquires += stats.acquires;
            result.hits += stats.hits;
            result.misses += stats.misses;
            result.missed_bytes += stats.missed_bytes;
            result.evictions += stats.evictions;
            result.failures += stats.failures;
            result.moves += stats.moves;
            result.moved_bytes += stats.moved_bytes;
        }
        result.peak_live_bytes = peak_live_bytes_;
        result.peak_held_bytes = held_.peak();
        result.waste_bytes = waste_.peak();
        return result;
    }

private:
    void acquire(const Event& event, std::size_t index) {
        Buffer& buffer = buffers_[event.buffer];
        try {
            buffer = pools_[event.pool].try_acquire(event.bytes);
        } catch (const InvalidArgument& error) {
            throw InvalidArgument(trace_.name + ":" + std::to_string(index + 2) + ": " +
                                  error.what());
        }
        live_bytes_ += buffer.size();
        peak_live_bytes_ = std::max(peak_live_bytes_, live_bytes_);
    }

    void release(const Event& event) {
        Buffer& buffer = buffers_[event.buffer];
        live_bytes_ -= buffer.size();
        buffer.release();
    }

    void read_all_gauges() {
        for (std::size_t pool = 0; pool < pools_.size(); ++pool) read_gauges(pool);
    }

    void read_gauges(std::size_t pool) {
        const PoolStats stats = pools_[pool].stats();
        held_.update(pool, stats.held_bytes);
        waste_.update(pool, stats.waste_bytes);
    }

    const Trace& trace_;
    std::vector<Pool> pools_;
    SummedGauge held_, waste_;
    std::vector<Buffer> buffers_;  // after the pools: gone before them
    std::uint64_t live_bytes_ = 0, peak_live_bytes_ = 0;
};

std::uint64_t peak_live_bytes_of(const Trace& trace) {
    std::uint64_t live = 0, peak = 0;
    for (const Event& event : trace.events) {
        live += event.kind == EventKind::acquire ? event.bytes : -event.bytes;
        peak = std::max(peak, live);
    }
    return peak;
}

}  // namespace

double ReplayResult::hit_rate() const noexcept {
    return acquires == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(acquires);
}

double ReplayResult::held_over_live() const noexcept {
    if (peak_live_bytes == 0) return 0;
    return static_cast<double>(peak_held_bytes) / static_cast<double>(peak_live_bytes);
}

ReplayResult replay(const Trace& trace, const ReplayOptions& options) {
    constexpr std::size_t progress_interval = 1 << 14;
    const std::size_t per_pass = trace.events.size();
    const double total = static_cast<double>(per_pass) * static_cast<double>(options.repeat);
    PoolOptions pool = options.pool;
    if (options.max_over_live != 0) {
        const double most = options.max_over_live * static_cast<double>(peak_live_bytes_of(trace));
        pool.max_bytes = most < 0x1p64 ? static_cast<std::size_t>(most) : no_limit;
        pool.max_idle_bytes = std::min(pool.max_idle_bytes, pool.max_bytes);
    }
    Player player(trace, pool, options.memory);

    const auto begin = std::chrono::steady_clock::now();
    std::uint64_t events = 0;
    for (std::size_t pass = 0; pass < options.repeat; ++pass) {
        if (pass > 0) player.rewind();
        for (std::size_t index = 0; index < per_pass; ++index) {
            player.play(index);
            if (++events % progress_interval == 0 && options.progress) {
                options.progress(static_cast<double>(events) / total);
            }
        }
    }
    const auto end = std::chrono::steady_clock::now();

    ReplayResult result = player.result();
    result.events = events;
    result.seconds = std::chrono::duration<double>(end - begin).count();
    return result;
}

}  // namespace cistern::trace
