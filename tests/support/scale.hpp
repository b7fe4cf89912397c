#pragma once
// How much work a stress test does: CISTERN_TEST_SCALE multiplies all of it (0.01 under Valgrind), a
// variable of its own names an amount.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace cistern::test {

/// Returns what the environment says, or `usual` times the scale; at least 1.
inline std::uint64_t amount(const char* variable, std::uint64_t usual) {
    if (const char* const text = std::getenv(variable)) return std::stoull(text);
    const char* const text = std::getenv("CISTERN_TEST_SCALE");
    const double scale = text != nullptr ? std::stod(text) : 1.0;
    return std::max<std::uint64_t>(1,
                                   static_cast<std::uint64_t>(static_cast<double>(usual) * scale));
}

inline std::uint64_t scaled(std::uint64_t usual) { return amount("", usual); }

/// Returns CISTERN_SEED, or `usual`: print it when a test fails.
inline std::uint64_t seed_or(std::uint64_t usual) {
    const char* const text = std::getenv("CISTERN_SEED");
    return text != nullptr ? std::stoull(text) : usual;
}

}  // namespace cistern::test
