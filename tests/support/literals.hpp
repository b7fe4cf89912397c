#pragma once
// Sizes that a reader can add up: 48_KiB, 2_MiB.

#include <cstddef>

namespace cistern::test {

inline namespace literals {

constexpr std::size_t operator""_KiB(unsigned long long n) {
    return static_cast<std::size_t>(n) << 10;
}
constexpr std::size_t operator""_MiB(unsigned long long n) {
    return static_cast<std::size_t>(n) << 20;
}

}  // namespace literals

}  // namespace cistern::test
