#pragma once
// Which allocator this process really runs on.

#include <string>

namespace bench {

/// Returns the file that malloc comes from.
std::string malloc_library();
/// Returns the version of what `source` measures, as far as it tells.
std::string version_of(const std::string& source);

}  // namespace bench
