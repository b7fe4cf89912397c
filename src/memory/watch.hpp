#pragma once
// Tells the tools that watch memory (AddressSanitizer, MemorySanitizer, Valgrind) which bytes a user
// may touch. They are found at run time, so one build of the library serves programs with and without.

#include <cstddef>

namespace cistern {

/// Returns whether any such tool is present in this process.
bool memory_is_watched() noexcept;
/// Returns whether Valgrind runs this process; its address space is small.
bool under_valgrind() noexcept;

/// Nobody may touch these bytes.
void mark_idle(void* data, std::size_t bytes) noexcept;
/// A user may; their contents are undefined. What follows, up to the block's end, stays forbidden.
void mark_lent(void* data, std::size_t bytes) noexcept;
/// A user may; their contents are defined.
void mark_defined(void* data, std::size_t bytes) noexcept;

}  // namespace cistern
