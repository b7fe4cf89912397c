#pragma once
// What a pool spends on moves, joins of several kinds and crossings, so that a program pays for them now and then only.

#include <algorithm>
#include <cstdint>

#include "cistern/pool.hpp"

namespace cistern {

/// What acquires earn, to be spent now and then on something dear. It begins full.
class Credit {
public:
    void earn(std::uint64_t acquires, std::uint64_t most) noexcept {
        const std::uint64_t earned = acquires - seen_, settled = std::min(owed_, earned);
        owed_ = std::min(owed_ - settled, most);
        left_ = std::min(most, left_ + (earned - settled));
        seen_ = acquires;
    }
    [[nodiscard]] bool covers(std::uint64_t price) const noexcept { return left_ >= price; }
    void pay(std::uint64_t price) noexcept { left_ -= std::min(left_, price); }
    /// The same; what is missing has to be earned before anything is left again.
    void pay_in_full(std::uint64_t price) noexcept {
        owed_ += price - std::min(left_, price);
        pay(price);
    }

private:
    std::uint64_t left_ = no_limit / 2, owed_ = 0, seen_ = 0;
};

}  // namespace cistern
