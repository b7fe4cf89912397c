#pragma once
// Bytes that only their seed explains: what one holder wrote, nobody else may have changed.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cistern::test {

inline std::uint64_t scrambled(std::uint64_t seed) {
    seed += 0x9e3779b97f4a7c15;
    seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9;
    seed = (seed ^ (seed >> 27)) * 0x94d049bb133111eb;
    return seed ^ (seed >> 31);
}

/// Writes every byte.
inline void write_pattern(void* data, std::size_t bytes, std::uint64_t seed) {
    auto* const out = static_cast<unsigned char*>(data);
    std::uint64_t word = scrambled(seed);
    for (std::size_t i = 0; i < bytes; i += sizeof(word)) {
        std::memcpy(out + i, &word, std::min(sizeof(word), bytes - i));
        word = word * 6364136223846793005 + 1442695040888963407;
    }
}

inline bool has_pattern(const void* data, std::size_t bytes, std::uint64_t seed) {
    const auto* const in = static_cast<const unsigned char*>(data);
    std::uint64_t word = scrambled(seed);
    for (std::size_t i = 0; i < bytes; i += sizeof(word)) {
        if (std::memcmp(in + i, &word, std::min(sizeof(word), bytes - i)) != 0) return false;
        word = word * 6364136223846793005 + 1442695040888963407;
    }
    return true;
}

/// Writes the first and last bytes and a few of each page: enough to see an overlap or a page that
/// moved, at a cost that a million operations can bear.
inline void write_marks(void* data, std::size_t bytes, std::uint64_t seed) {
    auto* const out = static_cast<unsigned char*>(data);
    const std::uint64_t word = scrambled(seed);
    for (std::size_t i = 0; i < bytes; i += 4096) {
        std::memcpy(out + i, &word, std::min(sizeof(word), bytes - i));
    }
    const std::size_t tail = std::min(sizeof(word), bytes);
    std::memcpy(out + bytes - tail, &word, tail);
}

inline bool has_marks(const void* data, std::size_t bytes, std::uint64_t seed) {
    const auto* const in = static_cast<const unsigned char*>(data);
    const std::uint64_t word = scrambled(seed);
    const std::size_t tail = std::min(sizeof(word), bytes);
    const std::size_t tail_begin = bytes - tail;
    for (std::size_t i = 0; i < bytes; i += 4096) {
        // The tail may overwrite the end of the last mark.
        const std::size_t length = std::min({sizeof(word), bytes - i, std::max(i, tail_begin) - i});
        if (std::memcmp(in + i, &word, length) != 0) return false;
    }
    return std::memcmp(in + tail_begin, &word, tail) == 0;
}

inline bool all_zero(const void* data, std::size_t bytes) {
    const auto* const in = static_cast<const unsigned char*>(data);
    return bytes == 0 || (in[0] == 0 && std::memcmp(in, in + 1, bytes - 1) == 0);
}

}  // namespace cistern::test
