#pragma once
// Looks into the texts of errors.

#include <cstddef>
#include <string>
#include <string_view>

#include "cistern/error.hpp"
#include "support/literals.hpp"

namespace cistern::test {

inline bool mentions(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

/// Accepts a number of bytes as such, or in whole KiB or MiB.
inline bool mentions_bytes(std::string_view text, std::size_t bytes) {
    return mentions(text, std::to_string(bytes)) ||
           (bytes % 1_KiB == 0 && mentions(text, std::to_string(bytes / 1_KiB) + " KiB")) ||
           (bytes % 1_MiB == 0 && mentions(text, std::to_string(bytes / 1_MiB) + " MiB"));
}

/// Returns the text of the `Expected` that `action` throws, or a text that says it threw none.
template <class Expected, class Action>
std::string text_of(Action&& action) {
    try {
        action();
    } catch (const Expected& error) {
        return error.what();
    }
    return "(nothing was thrown)";
}

}  // namespace cistern::test
