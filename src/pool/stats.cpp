// Accounts: every thread counts for itself, a reader adds up.

#include "cistern/stats.hpp"

#include <algorithm>
#include <array>
#include <ostream>
#include <sstream>
#include <utility>

#include "base/bytes.hpp"
#include "base/size_class.hpp"
#include "pool/core.hpp"

namespace cistern {

namespace {

std::uint64_t less_or_zero(std::uint64_t a, std::uint64_t b) noexcept { return a - std::min(a, b); }

constexpr std::array gauges = {
    std::pair{"lent_buffers", &PoolStats::lent_buffers},
    std::pair{"lent_bytes", &PoolStats::lent_bytes},
    std::pair{"idle_buffers", &PoolStats::idle_buffers},
    std::pair{"idle_bytes", &PoolStats::idle_bytes},
    std::pair{"held_bytes", &PoolStats::held_bytes},
    std::pair{"waste_bytes", &PoolStats::waste_bytes},
};

constexpr std::array counters = {
    std::pair{"acquires", &PoolStats::acquires},
    std::pair{"hits", &PoolStats::hits},
    std::pair{"misses", &PoolStats::misses},
    std::pair{"grows", &PoolStats::grows},
    std::pair{"releases", &PoolStats::releases},
    std::pair{"evictions", &PoolStats::evictions},
    std::pair{"failures", &PoolStats::failures},
    std::pair{"missed_bytes", &PoolStats::missed_bytes},
    std::pair{"moves", &PoolStats::moves},
    std::pair{"moved_bytes", &PoolStats::moved_bytes},
};

constexpr std::array limits = {
    std::pair{"max_bytes", &Evictions::max_bytes},
    std::pair{"max_idle_bytes", &Evictions::max_idle_bytes},
    std::pair{"max_idle_buffers", &Evictions::max_idle_buffers},
    std::pair{"max_buffer_bytes", &Evictions::max_buffer_bytes},
    std::pair{"max_idle_age", &Evictions::max_idle_age},
};

// With several threads, how far beyond a peak one of them may go before it is noted.
constexpr std::uint64_t peak_blur_bytes = 64 << 10, peak_blur_blocks = 64;
// A visit counts the visitor's own magazines, and every so often the others, or some of them if they are many: to look at
// one takes longer than all else that a visit does, since its lines come from the core of its owner.
constexpr std::uint64_t visits_between_turns = 8, counted_in_turn = 2;

/// Each figure is one its thread really had. The owner may go on meanwhile: a snapshot may miss its latest hit,
/// but counts no release too many, so hits are read first.
inline Share share_of(const ThreadMagazine& magazine) noexcept {
    const std::uint64_t hits = magazine.hits.now_before_others() + magazine.hits_of_hand();
    detail::Load inside = magazine.inside();
    // A block taken between the two reads makes a small number negative: huge.
    if ((inside & detail::load_signs) != 0) inside = 0;
    std::uint64_t asked = magazine.asked.now() - magazine.returned.now();
    if (const std::uint64_t in_hand = magazine.hand_bytes.now(); in_hand != 0) {
        inside += magazine.hand->load;
        asked -= in_hand;
    }
    return {.hits = hits,
            .idle_bytes = std::min<std::uint64_t>(detail::bytes_of(inside), magazine.allowance),
            .idle_blocks = detail::blocks_of(inside),
            .asked = asked};
}

}  // namespace

/// Brings a magazine's part of the sum up to date.
void Core::count(ThreadMagazine& magazine) noexcept {
    counted_.subtract(magazine.counted);
    magazine.counted = share_of(magazine);
    counted_.add(magazine.counted);
}

/// What was counted adds up to this. The parts may be a few operations apart, so sums are cut where the
/// invariants of the pool cut them.
Totals Core::totals() noexcept {
    Totals sum;
    sum.hits = hits_seen_ =
        std::max(hits_seen_, hits_ + counted_.hits);  // a hand's may be one less for a moment
    sum.misses = misses_;
    sum.magazine_bytes = std::min(counted_.idle_bytes, allowances_);
    const std::uint64_t aside = depot_blocks_ + parked_blocks_;
    sum.idle_buffers = std::min(counted_.idle_blocks + aside, blocks_out_);
    sum.lent_buffers = blocks_out_ - sum.idle_buffers;
    sum.idle_buffers += central_idle_buffers() - aside;
    sum.idle_bytes = std::min(central_idle() + sum.magazine_bytes, held_);
    sum.lent_bytes = held_ - sum.idle_bytes;
    sum.waste = less_or_zero(sum.lent_bytes, asked_ + counted_.asked);
    return sum;
}

Totals Core::count_all() noexcept {
    Share sum;
    for (ThreadMagazine* m = magazines_.first(); m != nullptr; m = Magazines::after(*m)) {
        m->counted = share_of(*m);
        sum.add(m->counted);
    }
    counted_ = sum;
    visits_ = 0;
    return totals();
}

/// Counts this thread's magazines (of many only `own`) and now and then the others, or those not looked at for longest:
/// what a visit costs does not grow with the threads.
Totals Core::count_some(ThreadMagazine* own) noexcept {
    const bool few = threads_ <= few_magazines, turn = ++visits_ % visits_between_turns == 0;
    if (threads_ <= 1 || (few && turn)) return count_all();
    if (few) {
        for (ThreadMagazine* m = magazines_.first(); m != nullptr; m = Magazines::after(*m)) {
            if (m->owner == &detail::thread_front) count(*m);
        }
        return totals();
    }
    if (own != nullptr) count(*own);
    for (std::uint64_t i = 0; turn && i < counted_in_turn; ++i) {
        ThreadMagazine& next = *magazines_.first();
        magazines_.remove(next);
        magazines_.push_back(next);
        count(next);
    }
    return totals();
}

std::uint64_t Core::acquires_so_far() noexcept {
    const Totals now = totals();
    return now.hits + now.misses;
}

void Core::raise_peaks(const Totals& now) noexcept {
    lent_peak_ = std::max(lent_peak_, now.lent_bytes);
    lent_buffers_peak_ = std::max(lent_buffers_peak_, now.lent_buffers);
    idle_peak_ = std::max(idle_peak_, now.idle_bytes);
    idle_buffers_peak_ = std::max(idle_buffers_peak_, now.idle_buffers);
    waste_peak_ = std::max(waste_peak_, now.waste);
}

/// Counts everything, and records peaks.
Totals Core::note_all_peaks() noexcept {
    const Totals now = count_all();
    raise_peaks(now);
    return now;
}

/// Whether a sum is beyond a peak: by more than is let pass with several threads, or by anything if there were
/// visits enough to pay for a full count.
bool Core::is_beyond_peaks(const Totals& now) const noexcept {
    const bool paid = visits_ >= threads_;
    const std::uint64_t bytes = paid ? 0 : peak_blur_bytes, blocks = paid ? 0 : peak_blur_blocks;
    return now.lent_bytes > lent_peak_ + bytes || now.idle_bytes > idle_peak_ + bytes ||
           now.lent_buffers > lent_buffers_peak_ + blocks ||
           now.idle_buffers > idle_buffers_peak_ + blocks || now.waste > waste_peak_ + bytes;
}

/// Records peaks, and tells this thread's magazine when the next one is near.
void Core::note_peaks(ThreadMagazine* magazine) noexcept {
    Totals now = count_some(magazine);
    // Of several magazines, what was counted at different times never was a peak; it may tell that there is one.
    if (threads_ <= 1) {
        raise_peaks(now);
    } else if (is_beyond_peaks(now)) {
        now = note_all_peaks();
    }
    if (magazine == nullptr) return;

    using detail::load_grain, detail::load_of, detail::load_signs;
    const std::uint64_t bytes = magazine->idle_bytes(), blocks = magazine->blocks();
    // What others do meanwhile blurs a sum anyway; so with several threads each may go a bit further.
    const std::uint64_t blur_bytes = threads_ > 1 ? peak_blur_bytes : 0;
    const std::uint64_t blur_blocks = threads_ > 1 ? peak_blur_blocks : 0;
    // No sign until idle bytes pass the allowance or either gauge its peak ...
    const std::uint64_t most_bytes =
        std::min(magazine->allowance,
                 bytes + std::max(less_or_zero(idle_peak_, now.idle_bytes), blur_bytes));
    const std::uint64_t most_blocks =
        std::min(blocks + std::max(less_or_zero(idle_buffers_peak_, now.idle_buffers), blur_blocks),
                 detail::load_limit / load_grain - 1);
    magazine->above = load_signs - load_of(load_grain, 1) - load_of(most_bytes, most_blocks);
    if (magazine->hand != nullptr)
        magazine->above += magazine->hand->load;  // its place stays taken
    // ... or fall so far that what is lent passes its peak.
    const std::uint64_t least_bytes =
        less_or_zero(bytes, std::max(less_or_zero(lent_peak_, now.lent_bytes), blur_bytes));
    const std::uint64_t least_blocks = less_or_zero(
        blocks, std::max(less_or_zero(lent_buffers_peak_, now.lent_buffers), blur_blocks));
    magazine->below = load_signs - load_of(load_grain, 1) +
                      load_of(round_up(least_bytes, load_grain), least_blocks);
}

PoolStats Core::stats() {
    Lock lock(lock_);
    age_out(true);
    const Totals now = note_all_peaks();
    PoolStats stats;
    stats.hits = now.hits;
    stats.misses = now.misses;
    stats.acquires = now.hits + now.misses;
    // A counter never falls, even if this snapshot saw less than the last.
    releases_seen_ = std::max(releases_seen_, less_or_zero(stats.acquires, now.lent_buffers));
    stats.releases = releases_seen_;
    stats.lent_buffers = {stats.acquires - stats.releases, lent_buffers_peak_};
    stats.grows = grows_;
    stats.missed_bytes = missed_bytes_;
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
    stats.held_bytes = {held_, std::max(held_peak_, held_)};
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
        out << ",\"" << name << R"(":{"now":)" << gauge.now << ",\"peak\":" << gauge.peak << '}';
    }
    out << ",\"hit_rate\":" << hit_rate() << '}';
    return out.str();
}

std::ostream& operator<<(std::ostream& out, const PoolStats& stats) {
    std::ostringstream text;
    const auto row = [&text](const std::string& name, const std::string& now,
                             const std::string& peak) {
        text << "  " << name << std::string(18 - name.size(), ' ')
             << std::string(14 - std::min<std::size_t>(14, now.size()), ' ') << now
             << std::string(14 - std::min<std::size_t>(14, peak.size()), ' ') << peak << '\n';
    };
    text << "acquires " << stats.acquires << " = hits " << stats.hits << " + misses "
         << stats.misses << " (hit rate " << static_cast<int>(stats.hit_rate() * 1000) / 10.0
         << " %)\n"
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
