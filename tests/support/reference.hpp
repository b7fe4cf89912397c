#pragma once
// A pool in the simplest terms: what is lent, and for the fits that keep blocks whole, a list of what
// is idle. Slow and obviously right; the model test holds the real pool against it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cistern/pool.hpp"
#include "support/reconcile.hpp"

namespace cistern::test {

/// What is lent: enough for any fit, any memory and any number of threads.
struct Ledger {
    std::uint64_t acquires = 0, releases = 0, failures = 0;
    std::uint64_t bytes = 0, waste = 0;
    std::uint64_t most_buffers = 0, most_bytes = 0, most_waste = 0;

    void lend(std::size_t requested, std::size_t capacity) {
        ++acquires;
        bytes += capacity;
        waste += capacity - requested;
        most_buffers = std::max(most_buffers, acquires - releases);
        most_bytes = std::max(most_bytes, bytes);
        most_waste = std::max(most_waste, waste);
    }
    void take_back(std::size_t requested, std::size_t capacity) {
        ++releases;
        bytes -= capacity;
        waste -= capacity - requested;
    }
    void grow(std::size_t requested, std::size_t capacity, std::size_t now_requested,
              std::size_t now_capacity) {
        bytes += now_capacity - capacity;
        waste += (now_capacity - now_requested) - (capacity - requested);
        most_bytes = std::max(most_bytes, bytes);
        most_waste = std::max(most_waste, waste);
    }
    /// Adds what another thread lent and took back; its peaks are not known here.
    void add(const Ledger& other) {
        acquires += other.acquires;
        releases += other.releases;
        failures += other.failures;
        bytes += other.bytes;
        waste += other.waste;
    }

    [[nodiscard]] std::string complaints(const PoolStats& s) const {
        Complaints wrong;
        wrong.expect_equal(s.acquires, acquires, "acquires");
        wrong.expect_equal(s.releases, releases, "releases");
        wrong.expect_equal(s.failures, failures, "failures");
        wrong.expect_equal(s.lent_buffers.now, acquires - releases, "lent buffers");
        wrong.expect_equal(s.lent_bytes.now, bytes, "lent bytes");
        wrong.expect_equal(s.waste_bytes.now, waste, "waste");
        return wrong.text();
    }
    /// Peaks are exact as long as one thread uses the pool; that of waste may have been missed.
    [[nodiscard]] std::string complaints_about_peaks(const PoolStats& s) const {
        Complaints wrong;
        wrong.expect_equal(s.lent_buffers.peak, most_buffers, "most lent buffers");
        wrong.expect_equal(s.lent_bytes.peak, most_bytes, "most lent bytes");
        wrong.expect_at_most(s.waste_bytes.peak, most_waste, "most waste");
        return wrong.text();
    }
};

/// What is idle in a pool that keeps blocks whole, has no max_bytes and counts no ages.
class WholeBlocks {
public:
    WholeBlocks(const PoolOptions& options) : options_(options) {}

    /// Takes and returns the block that should serve; nothing for a miss.
    std::optional<std::size_t> take(std::size_t bytes, std::size_t type) {
        const Idle* best = nullptr;
        for (const Idle& block : idle_) {
            if (options_.separate_types && block.type != type) continue;
            if (!allows(block.bytes, bytes)) continue;
            if (best == nullptr || block.bytes <= best->bytes)
                best = &block;  // later ones are younger
        }
        if (best == nullptr) return std::nullopt;
        const std::size_t served = best->bytes;
        remove(best);
        return served;
    }
    [[nodiscard]] std::size_t bytes_of_new_block(std::size_t bytes) const {
        const auto* const fixed = std::get_if<FixedBlock>(&options_.fit);
        return fixed != nullptr ? fixed->bytes : bytes;
    }
    void give(std::size_t bytes, std::size_t type) {
        if (bytes > options_.max_buffer_bytes) {
            ++evictions_.max_buffer_bytes;
        } else if (bytes > options_.max_idle_bytes) {
            ++evictions_.max_idle_bytes;
        } else {
            idle_.push_back({bytes, type});
            enforce();
        }
        note_peaks();
    }
    /// Returns the bytes given back.
    std::size_t trim(std::size_t keep) {
        const std::size_t before = bytes();
        while (bytes() > keep) remove(victim());
        return before - bytes();
    }
    void set_limits(const Limits& limits) {
        options_.max_idle_bytes = limits.max_idle_bytes;
        options_.max_idle_buffers = limits.max_idle_buffers;
        options_.max_buffer_bytes = limits.max_buffer_bytes;
        evictions_.max_buffer_bytes += std::erase_if(
            idle_, [&](const Idle& block) { return block.bytes > limits.max_buffer_bytes; });
        enforce();
    }

    [[nodiscard]] std::string complaints(const PoolStats& s) const {
        Complaints wrong;
        wrong.expect_equal(s.idle_bytes.now, bytes(), "idle bytes");
        wrong.expect_equal(s.idle_buffers.now, idle_.size(), "idle buffers");
        wrong.expect_equal(s.idle_bytes.peak, most_bytes_, "most idle bytes");
        wrong.expect_equal(s.idle_buffers.peak, most_buffers_, "most idle buffers");
        wrong.expect_equal(s.evictions_by_limit.max_idle_bytes, evictions_.max_idle_bytes,
                           "evicted by max_idle_bytes");
        wrong.expect_equal(s.evictions_by_limit.max_idle_buffers, evictions_.max_idle_buffers,
                           "evicted by max_idle_buffers");
        wrong.expect_equal(s.evictions_by_limit.max_buffer_bytes, evictions_.max_buffer_bytes,
                           "evicted by max_buffer_bytes");
        wrong.expect_equal(s.evictions, evictions_.total(), "evictions");
        return wrong.text();
    }

private:
    struct Idle {
        std::size_t bytes, type;
    };

    [[nodiscard]] bool allows(std::size_t block, std::size_t bytes) const {
        if (block < bytes) return false;
        if (std::holds_alternative<ExactFit>(options_.fit)) return block == bytes;
        if (const auto* const best = std::get_if<BestFit>(&options_.fit)) {
            const auto whole = static_cast<double>(block);
            return static_cast<double>(block - bytes) <= best->max_waste * whole;
        }
        return true;
    }
    [[nodiscard]] std::size_t bytes() const {
        std::size_t sum = 0;
        for (const Idle& block : idle_) sum += block.bytes;
        return sum;
    }
    [[nodiscard]] const Idle* victim() const {
        const auto smaller = [](const Idle& a, const Idle& b) { return a.bytes < b.bytes; };
        switch (options_.evict) {
            case Evict::smallest:
                return &*std::min_element(idle_.begin(), idle_.end(), smaller);
            case Evict::largest:
                return &*std::max_element(idle_.begin(), idle_.end(), smaller);
            default:
                return idle_.data();
        }
    }
    void enforce() {
        while (bytes() > options_.max_idle_bytes) {
            ++evictions_.max_idle_bytes;
            remove(victim());
        }
        while (idle_.size() > options_.max_idle_buffers) {
            ++evictions_.max_idle_buffers;
            remove(victim());
        }
    }
    void note_peaks() {
        most_bytes_ = std::max<std::uint64_t>(most_bytes_, bytes());
        most_buffers_ = std::max<std::uint64_t>(most_buffers_, idle_.size());
    }
    void remove(const Idle* block) { idle_.erase(idle_.begin() + (block - idle_.data())); }

    PoolOptions options_;
    std::vector<Idle> idle_;  // oldest first
    Evictions evictions_;
    std::uint64_t most_bytes_ = 0, most_buffers_ = 0;
};

}  // namespace cistern::test
