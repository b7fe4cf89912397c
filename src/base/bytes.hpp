#pragma once
// Sizes and numbers as people read them.

#include <cstddef>
#include <cstdint>
#include <string>

namespace cistern {

/// Returns "512 B", "1.5 KiB", "64 MiB": three digits and a unit.
std::string text_of_bytes(std::uint64_t bytes);
/// Returns the same, followed by the exact count where it was rounded: "1.43 MiB (1500000 B)".
std::string exact_text_of_bytes(std::uint64_t bytes);

/// Returns text as a JSON string, quoted and escaped.
std::string json_string(const std::string& text);

}  // namespace cistern
