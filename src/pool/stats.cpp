// Accounts: every thread counts for itself, a reader adds up.

#include "cistern/stats.hpp"

#include <algorithm>
#include <array>
#include <ostream>
#include <sstream>
#include <utility>

#include "base/bytes.hpp"
#include "pool/core.hpp"

namespace cistern {

namespace {

std::uint64_t at_least_zero(std::int64_t value) noexcept {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, value));
}

constexpr std::array gauges = {
    std::pair{"lent_buffers", &PoolStats::lent_buffers},
    std::pair{"lent_bytes", &PoolStats::lent_bytes},
    std::pair{"idle_buffers", &PoolStats::idle_buffers},
    std::pair{"idle_bytes", &PoolStats::idle_bytes},
    std::pair{"held_bytes", &PoolStats::held_bytes},
    std::pair{"waste_bytes", &PoolStats::waste_bytes},
};

constexpr std::array counters = {
    std::pair{"acquires", &PoolStats::acquires},       std::pair{"hits", &PoolStats::hits},
    std::pair{"misses", &PoolStats::misses},           std::pair{"grows", &PoolStats::grows},
    std::pair{"releases", &PoolStats::releases},       std::pair{"evictions", &PoolStats::evictions},
    std::pair{"failures", &PoolStats::failures},       std::pair{"moves", &PoolStats::moves},
    std::pair{"moved_bytes", &PoolStats::moved_bytes},
};

constexpr std::array limits = {
    std::pair{"max_bytes", &Evictions::max_bytes},
    std::pair{"max_idle_bytes", &Evictions::max_idle_bytes},
    std::pair{"max_idle_buffers", &Evictions::max_idle_buffers},
    std::pair{"max_buffer_bytes", &Evictions::max_buffer_bytes},
    std::pair{"max_idle_age", &Evictions::max_idle_age},
};

}  // namespace

/// Adds up while owners go on. Each figure is one its thread really had; together they may be a few
/// operations apart, so sums are cut where the invariants of the pool cut them.
Totals Core::totals() const noexcept {
    Totals sum;
    std::int64_t waste = waste_;
    sum.releases = releases_;
    for (ThreadMagazine* m = magazines_.first(); m != nullptr; m = Magazines::after(*m)) {
        sum.releases += m->given.now();
        sum.magazine_bytes += std::min(at_least_zero(m->idle_bytes()), m->allowance);
        sum.idle_buffers += at_least_zero(m->blocks());
        waste += m->waste();
    }
    // Acquire: pairs with Count::publish; whose release was counted above, its acquire is below.
    std::atomic_thread_fence(std::memory_order_acquire);
    sum.hits = hits_;
    sum.misses = misses_;
    for (ThreadMagazine* m = magazines_.first(); m != nullptr; m = Magazines::after(*m)) {
        sum.hits += m->taken.now();
    }
    sum.idle_buffers += central_idle_buffers();
    sum.idle_bytes = std::min(central_idle() + sum.magazine_bytes, held_);
    sum.lent_bytes = held_ - sum.idle_bytes;
    sum.lent_buffers = at_least_zero(static_cast<std::int64_t>(sum.hits + sum.misses - sum.releases));
    sum.waste = std::min(at_least_zero(waste), sum.lent_bytes);
    return sum;
}

/// Records peaks, and tells this thread's magazine when the next one is near.
Totals Core::note_peaks(ThreadMagazine* magazine) noexcept {
    const Totals now = totals();
    lent_peak_ = std::max(lent_peak_, now.lent_bytes);
    lent_buffers_peak_ = std::max(lent_buffers_peak_, now.lent_buffers);
    idle_peak_ = std::max(idle_peak_, now.idle_bytes);
    idle_buffers_peak_ = std::max(idle_buffers_peak_, now.idle_buffers);
    waste_peak_ = std::max(waste_peak_, now.waste);
    if (magazine != nullptr) {
        const auto to_peak = [](std::uint64_t peak, std::uint64_t value) {
            return static_cast<std::int64_t>(peak - value);
        };
        const std::int64_t idle = magazine->idle_bytes(), blocks = magazine->blocks();
        magazine->floor = idle - to_peak(lent_peak_, now.lent_bytes);
        magazine->count_floor = blocks - to_peak(lent_buffers_peak_, now.lent_buffers);
        magazine->waste_ceiling = magazine->waste() + to_peak(waste_peak_, now.waste);
        magazine->ceiling = std::min(static_cast<std::int64_t>(magazine->allowance),
                                     idle + to_peak(idle_peak_, now.idle_bytes));
        magazine->count_ceiling = blocks + to_peak(idle_buffers_peak_, now.idle_buffers);
    }
    return now;
}

PoolStats Core::stats() {
    Lock lock(lock_);
    age_out(true);
    const Totals now = note_peaks(nullptr);
    PoolStats stats;
    stats.hits = now.hits;
    stats.misses = now.misses;
    stats.acquires = now.hits + now.misses;
    stats.lent_buffers = {now.lent_buffers, lent_buffers_peak_};
    stats.releases = stats.acquires - now.lent_buffers;
    stats.failures = failures_;
    stats.evictions_by_limit = evictions_;
    stats.evictions = evictions_.total();
    if (arena_) {
        stats.moves = arena_->moves().count;
        stats.moved_bytes = arena_->moves().bytes;
    }
    stats.lent_bytes = {now.lent_bytes, lent_peak_};
    stats.idle_buffers = {now.idle_buffers, idle_buffers_peak_};
    stats.idle_bytes = {now.idle_bytes, idle_peak_};
    stats.held_bytes = {held_, held_peak_};
    stats.waste_bytes = {now.waste, waste_peak_};
    finish(lock);
    return stats;
}

std::string Core::describe() {
    const PoolStats now = stats();
    return "pool '" + name() + "' holds " + exact_text_of_bytes(now.held_bytes.now) + ", lent " +
           exact_text_of_bytes(now.lent_bytes.now);
}

std::string PoolStats::json() const {
    std::ostringstream out;
    out << '{';
    for (const auto& [name, member] : counters) out << '"' << name << "\":" << this->*member << ',';
    out << "\"evictions_by_limit\":{";
    const char* separator = "";
    for (const auto& [name, member] : limits) {
        out << separator << '"' << name << "\":" << evictions_by_limit.*member;
        separator = ",";
    }
    out << '}';
    for (const auto& [name, member] : gauges) {
        const Gauge& gauge = this->*member;
        out << ",\"" << name << "\":{\"now\":" << gauge.now << ",\"peak\":" << gauge.peak << '}';
    }
    out << ",\"hit_rate\":" << hit_rate() << '}';
    return out.str();
}

std::ostream& operator<<(std::ostream& out, const PoolStats& stats) {
    std::ostringstream text;
    const auto row = [&text](const std::string& name, const std::string& now, const std::string& peak) {
        text << "  " << name << std::string(18 - name.size(), ' ')
             << std::string(14 - std::min<std::size_t>(14, now.size()), ' ') << now
             << std::string(14 - std::min<std::size_t>(14, peak.size()), ' ') << peak << '\n';
    };
    text << "acquires " << stats.acquires << " = hits " << stats.hits << " + misses " << stats.misses
         << " (hit rate " << static_cast<int>(stats.hit_rate() * 1000) / 10.0 << " %)\n"
         << "releases " << stats.releases << ", grows " << stats.grows << ", failures "
         << stats.failures << ", moves " << stats.moves << " (" << text_of_bytes(stats.moved_bytes)
         << ")\nevictions " << stats.evictions;
    const char* separator = ": ";
    for (const auto& [name, member] : limits) {
        if (stats.evictions_by_limit.*member == 0) continue;
        text << separator << name << ' ' << stats.evictions_by_limit.*member;
        separator = ", ";
    }
    text << '\n';
    row("", "now", "peak");
    for (const auto& [name, member] : gauges) {
        const Gauge& gauge = stats.*member;
        const bool bytes = std::string(name).ends_with("bytes");
        row(name, bytes ? text_of_bytes(gauge.now) : std::to_string(gauge.now),
            bytes ? text_of_bytes(gauge.peak) : std::to_string(gauge.peak));
    }
    return out << text.str();
}

}  // namespace cistern
