#include "units.hpp"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "cistern/error.hpp"
#include "cistern/pool.hpp"

namespace cistern::cli {

namespace {

constexpr std::array<std::pair<std::string_view, unsigned>, 5> units{
    {{"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};

bool same_word(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (std::tolower(static_cast<unsigned char>(a[i])) !=
            std::tolower(static_cast<unsigned char>(b[i]))) {
            return false;
        }
    }
    return true;
}

[[noreturn]] void fail_bytes(std::string_view text) {
    throw InvalidArgument(fmt::format(
        "no size in bytes, expected a whole number such as 4096, 64KiB, 16MiB or 2GiB, or "
        "'unlimited': '{}'",
        text));
}

}  // namespace

std::size_t parse_bytes(std::string_view text) {
    if (same_word(text, "unlimited")) return no_limit;
    std::size_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc::result_out_of_range) {
        throw InvalidArgument(fmt::format("more bytes than can be counted: '{}'", text));
    }
    if (error != std::errc()) fail_bytes(text);
    std::string_view suffix(stop, static_cast<std::size_t>(end - stop));
    while (suffix.starts_with(' ')) suffix.remove_prefix(1);
    if (suffix.empty() && stop == end) return number;
    for (const auto& [name, shift] : units) {
        if (!same_word(suffix, name)) continue;
        if (number > (no_limit >> shift)) {
            throw InvalidArgument(fmt::format("more bytes than can be counted: '{}'", text));
        }
        return number << shift;
    }
    fail_bytes(text);
}

std::uint64_t parse_count(std::string_view text, std::uint64_t least) {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end || number < least) {
        throw InvalidArgument(
            fmt::format("expected a whole number of at least {}: '{}'", least, text));
    }
    return number;
}

std::string text_of_count(std::uint64_t count) {
    const std::string plain = std::to_string(count);
    std::string digits;
    for (std::size_t at = 0; at < plain.size(); ++at) {
        if (at != 0 && (plain.size() - at) % 3 == 0) digits += ',';
        digits += plain[at];
    }
    return digits;
}

}  // namespace cistern::cli
