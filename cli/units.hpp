#pragma once
// Numbers as people write them on a command line, and read them in a table.
// (Bytes as people read them: base/bytes.hpp.)

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cistern::cli {

/// Returns the bytes that "4096", "64KiB", "1 MiB", "2GiB" or "unlimited" (no_limit) name.
/// Throws InvalidArgument naming the text and what was expected.
std::size_t parse_bytes(std::string_view text);

/// Returns the unsigned integer, at least `least`. Throws InvalidArgument.
std::uint64_t parse_count(std::string_view text, std::uint64_t least = 0);

/// Returns "1,234,567".
std::string text_of_count(std::uint64_t count);

}  // namespace cistern::cli
