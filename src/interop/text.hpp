#pragma once
// Numbers as errors name them.

#include <array>
#include <charconv>
#include <cstdint>
#include <string>

namespace cistern::detail {

/// Returns "0x7f00".
inline std::string text_in_hex(std::uint64_t number) {
    std::array<char, 16> digits{};
    auto* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr;
    return "0x" + std::string(digits.data(), end);
}

inline std::string text_of_address(const void* address) {
    return text_in_hex(reinterpret_cast<std::uintptr_t>(address));
}

}  // namespace cistern::detail
