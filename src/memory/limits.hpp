#pragma once
// How much memory this process may use.

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <optional>

namespace cistern {

/// Returns the smallest of the machine's memory and the limits of the cgroups (v1 and v2) that this
/// process is in, reading proc/ and sys/ under `root`; 0 if none of them can be read.
std::size_t memory_limit_under(const std::filesystem::path& root);

/// Returns what CISTERN_MAX_IDLE_BYTES says, if that is an unsigned number.
std::optional<std::size_t> max_idle_bytes_of_environment();

/// What all pools of this process have of the host's memory, page-locked or not. Relaxed everywhere: only the
/// number itself is shared.
inline std::atomic<std::size_t> host_bytes_held{0};

/// Returns how many more they can have and leave an eighth of what the process may use to everything else;
/// negative if they have too many.
std::ptrdiff_t host_bytes_left() noexcept;

}  // namespace cistern
