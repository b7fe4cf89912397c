#pragma once
// Which options and limits make sense.

#include <cstddef>
#include <cstdint>
#include <string>

#include "cistern/pool.hpp"

namespace cistern {

/// Each throws InvalidArgument naming the value.
void check_options(const PoolOptions& options);
void check_lent_under(std::uint64_t lent, const Limits& limits);
void check_adopted(const PoolOptions& options, const void* data, std::size_t bytes);

/// Changes the limits and nothing else: the rest is read without the lock.
void set_limits_of(PoolOptions& options, const Limits& limits);

/// Returns "Elastic", "BestFit, max_waste 0.25", ...
std::string text_of_fit(const Fit& fit);

}  // namespace cistern
