#include "base/bytes.hpp"

#include <array>
#include <cstdio>

namespace cistern {

namespace {

constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

struct Scaled {
    double value;
    std::size_t unit;
};

Scaled scale(std::uint64_t bytes) {
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
    return {value, unit};
}

}  // namespace

std::string text_of_bytes(std::uint64_t bytes) {
    const auto [value, unit] = scale(bytes);
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), value < 1000 ? "%.3g %s" : "%.0f %s", value,
                  units.at(unit));
    return text.data();
}

std::string exact_text_of_bytes(std::uint64_t bytes) {
    std::string short_text = text_of_bytes(bytes);
    if (bytes < 1024) return short_text;
    return short_text + " (" + std::to_string(bytes) + " B)";
}

std::string json_string(const std::string& text) {
    std::string json = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            json += '\\';
            json += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            std::array<char, 8> escape{};
            std::snprintf(escape.data(), escape.size(), "\\u%04x",
                          static_cast<unsigned>(static_cast<unsigned char>(c)));
            json += escape.data();
        } else {
            json += c;
        }
    }
    return json + '"';
}

}  // namespace cistern
