#pragma once
// What must hold in every snapshot of a pool, whatever it did before and whoever else is using it.

#include <cstdint>
#include <sstream>
#include <string>

#include "cistern/pool.hpp"

namespace cistern::test {

inline Limits limits_of(const PoolOptions& options) {
    return {.max_bytes = options.max_bytes,
            .max_idle_bytes = options.max_idle_bytes,
            .max_idle_buffers = options.max_idle_buffers,
            .max_buffer_bytes = options.max_buffer_bytes,
            .max_idle_age = options.max_idle_age};
}

/// Collects what is wrong, one sentence each.
class Complaints {
public:
    void expect_equal(std::uint64_t a, std::uint64_t b, const char* sentence) {
        if (a != b) text_ << sentence << ": " << a << " is not " << b << "\n";
    }
    void expect_at_most(std::uint64_t a, std::uint64_t b, const char* sentence) {
        if (a > b) text_ << sentence << ": " << a << " is more than " << b << "\n";
    }
    void expect(bool holds, const char* sentence) {
        if (!holds) text_ << sentence << "\n";
    }
    [[nodiscard]] std::string text() const { return text_.str(); }

private:
    std::ostringstream text_;
};

/// Returns how a snapshot contradicts itself, or an empty text.
inline std::string contradictions(const PoolStats& s) {
    Complaints wrong;
    wrong.expect_equal(s.acquires, s.hits + s.misses, "acquires = hits + misses");
    wrong.expect_equal(s.lent_buffers.now, s.acquires - s.releases, "lent = acquires - releases");
    wrong.expect_equal(s.held_bytes.now, s.lent_bytes.now + s.idle_bytes.now, "held = lent + idle");
    wrong.expect_equal(s.evictions, s.evictions_by_limit.total(), "evictions sum up by limit");
    wrong.expect_at_most(s.waste_bytes.now, s.lent_bytes.now, "waste is a part of what is lent");
    const Gauge* const gauges[] = {&s.lent_buffers, &s.lent_bytes, &s.idle_buffers,
                                   &s.idle_bytes,   &s.held_bytes, &s.waste_bytes};
    for (const Gauge* gauge : gauges) wrong.expect_at_most(gauge->now, gauge->peak, "now <= peak");
    return wrong.text();
}

/// The same, and what exceeds the limits now in force.
inline std::string contradictions(const PoolStats& s, const Limits& limits) {
    Complaints wrong;
    wrong.expect_at_most(s.held_bytes.now, limits.max_bytes, "held <= max_bytes");
    wrong.expect_at_most(s.idle_bytes.now, limits.max_idle_bytes, "idle <= max_idle_bytes");
    wrong.expect_at_most(s.idle_buffers.now, limits.max_idle_buffers,
                         "idle buffers <= max_idle_buffers");
    return contradictions(s) + wrong.text();
}

/// The same for a pool whose limits never changed: its peaks are within them too.
inline std::string contradictions_ever(const PoolStats& s, const Limits& limits) {
    Complaints wrong;
    wrong.expect_at_most(s.held_bytes.peak, limits.max_bytes, "held was <= max_bytes");
    wrong.expect_at_most(s.idle_bytes.peak, limits.max_idle_bytes, "idle was <= max_idle_bytes");
    wrong.expect_at_most(s.idle_buffers.peak, limits.max_idle_buffers,
                         "idle buffers were <= max_idle_buffers");
    return contradictions(s, limits) + wrong.text();
}

/// The same for a pool that nobody uses at the moment: bytes and buffers are counted together.
inline std::string contradictions_at_rest(const PoolStats& s, const Limits& limits) {
    Complaints wrong;
    wrong.expect((s.lent_bytes.now == 0) == (s.lent_buffers.now == 0), "no lent bytes, no buffers");
    wrong.expect((s.idle_bytes.now == 0) == (s.idle_buffers.now == 0), "no idle bytes, no buffers");
    return contradictions(s, limits) + wrong.text();
}

}  // namespace cistern::test
