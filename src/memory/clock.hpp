#pragma once
// The time, as cheaply as the system tells it.

#include <cstdint>

namespace cistern {

/// Returns nanoseconds since some moment, in steps of a few milliseconds; never falls.
std::uint64_t coarse_now() noexcept;

}  // namespace cistern
