#pragma once
// A thread's magazine as its pool sees it: its part of the accounts, and what its owner does with what it releases.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/list.hpp"
#include "cistern/detail/front.hpp"
#include "pool/block.hpp"

namespace cistern {

struct Lane;

/// What magazines have to do with the accounts. Sums are modulo 2^64.
struct Share {
    std::uint64_t hits = 0, idle_bytes = 0, idle_blocks = 0, asked = 0;

    void add(const Share& other) noexcept {
        hits += other.hits;
        idle_bytes += other.idle_bytes;
        idle_blocks += other.idle_blocks;
        asked += other.asked;
    }
    void subtract(const Share& other) noexcept {
        hits -= other.hits;
        idle_bytes -= other.idle_bytes;
        idle_blocks -= other.idle_blocks;
        asked -= other.asked;
    }
};

/// A thread's magazine as its pool sees it.
struct ThreadMagazine : detail::Magazine {
    ThreadMagazine(detail::ThreadFront& front, Lane& of) noexcept;

    // Who only looks for a magazine finds this in its cache; what changes lies on other lines.
    detail::ThreadFront* owner;
    Lane* lane;
    Links<ThreadMagazine> in_pool, in_bucket;
    alignas(64) Share counted;    // when the pool last looked
    std::uint64_t allowance = 0;  // idle bytes it may hold, a multiple of 64
    std::uint64_t left = 0;       // idle bytes after the last flush

    // Whether the owner only releases: what it keeps serves nobody then (see Core::pass_on).
    std::uint64_t enough = unlimited;  // of what it releases, if others had to take it
    bool robbed = false;               // by another thread, until it would rob in turn
    std::uint64_t idle_then = 0;       // when flow() was last asked
    detail::Load taken_then = 0;
    std::uint64_t went = 0;  // since then, otherwise than out of the racks
    static constexpr std::uint64_t unlimited = detail::load_limit;

    /// Bytes since it was last asked: what came in and stayed, and what the owner was lent. The hand is empty.
    struct Flow {
        std::uint64_t stayed, went;
    };
    [[nodiscard]] Flow flow() noexcept {
        const detail::Load taken_since = taken.now() - std::exchange(taken_then, taken.now());
        const std::uint64_t then = std::exchange(idle_then, idle_bytes());
        return {idle_then - std::min(idle_then, then),
                detail::bytes_of(taken_since) + std::exchange(went, 0)};
    }
    /// Bytes left it that nobody was lent.
    void forget_idle() noexcept { idle_then = std::min(idle_then, idle_bytes()); }

    // What is idle in the racks and in the hand. The pool's lock is held, so the hand's block stays the same.
    [[nodiscard]] bool holds() const noexcept { return hand_bytes.now() != 0; }
    /// How often the hand's block was lent since it came there; one less for a moment of its release.
    [[nodiscard]] std::uint64_t hits_of_hand() const noexcept {
        if (hand == nullptr) return 0;
        // Acquire: pairs with give(). If this sees a release, holds() does.
        const std::uint64_t now = __atomic_load_n(&hand->generation, __ATOMIC_ACQUIRE);
        return now - hand_since + (holds() ? 0 : 1);
    }
    [[nodiscard]] std::uint64_t idle_bytes() const noexcept {
        return detail::bytes_of(inside()) + (holds() ? hand->bytes : 0);
    }
    [[nodiscard]] std::uint64_t blocks() const noexcept {
        return detail::blocks_of(inside()) + (holds() ? 1 : 0);
    }
};

/// Removes and returns one of the first blocks of a rack that is larger than `last`; null if none is.
Block* remove_fitting(detail::Rack& rack, std::size_t last) noexcept;

}  // namespace cistern
