#pragma once
// Looks into the calling thread's magazines.

#include <cstddef>

#include "cistern/detail/front.hpp"

namespace cistern::test {

/// Returns the magazine of this thread that has, or has lent, such a block from its hand.
inline const detail::Magazine* with_hand_for(std::size_t wanted) {
    for (const auto& slot : detail::thread_front.slots) {
        const detail::Magazine* const one = slot.load(std::memory_order_relaxed);
        if (one->hand != nullptr && one->hand->asked == wanted) return one;
    }
    return nullptr;
}

}  // namespace cistern::test
