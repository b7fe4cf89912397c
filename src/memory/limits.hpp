#pragma once
// How much memory this process may use.

#include <cstddef>
#include <filesystem>

namespace cistern {

/// Returns the smallest of the machine's memory and the limits of the cgroups (v1 and v2) that this
/// process is in, reading proc/ and sys/ under `root`; 0 if none of them can be read.
std::size_t memory_limit_under(const std::filesystem::path& root);

}  // namespace cistern
