// Reads /proc/meminfo, /proc/self/cgroup and the memory controller's files. A limit of a parent group
// binds its children, so every level up to the root counts.

#include "memory/limits.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "cistern/memory.hpp"

namespace cistern {

namespace {

constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

/// Returns the number that fills `text` entirely; none otherwise ("max", for one).
std::size_t number_in(const std::string& text) {
    std::size_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    return error == std::errc{} && rest == end ? number : none;
}

std::size_t number_in(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::string text;
    in >> text;
    return number_in(text);
}

std::size_t physical_memory(const std::filesystem::path& root) {
    std::ifstream in(root / "proc/meminfo");
    std::string key, unit;
    std::size_t kibibytes = 0;
    while (in >> key >> kibibytes) {
        if (key == "MemTotal:") return kibibytes * 1024;
        std::getline(in, unit);
    }
    return none;
}

/// Returns the smallest number in `file` of the group and of those above it.
std::size_t smallest_upwards(const std::filesystem::path& mount, std::filesystem::path group,
                             const char* file) {
    std::size_t smallest = none;
    for (;;) {
        smallest = std::min(smallest, number_in(mount / group / file));
        if (group.empty()) return smallest;
        group = group.has_parent_path() ? group.parent_path() : std::filesystem::path{};
    }
}

/// Returns whether a list like "cpu,memory" has the word.
bool names_memory(const std::string& controllers) {
    std::istringstream words(controllers);
    for (std::string word; std::getline(words, word, ',');) {
        if (word == "memory") return true;
    }
    return false;
}

/// Each line is "id:controllers:/path"; v2's controllers are empty, v1's name "memory".
std::size_t cgroup_limit(const std::filesystem::path& root) {
    std::ifstream in(root / "proc/self/cgroup");
    std::size_t limit = none;
    for (std::string line; std::getline(in, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const auto group = std::filesystem::path(line.substr(second + 1)).relative_path();
        if (controllers.empty()) {
            limit = std::min(limit, smallest_upwards(root / "sys/fs/cgroup", group, "memory.max"));
        } else if (names_memory(controllers)) {
            limit = std::min(limit, smallest_upwards(root / "sys/fs/cgroup/memory", group,
                                                     "memory.limit_in_bytes"));
        }
    }
    return limit;
}

}  // namespace

std::size_t memory_limit_under(const std::filesystem::path& root) {
    const std::size_t limit = std::min(physical_memory(root), cgroup_limit(root));
    return limit == none ? 0 : limit;
}

std::size_t process_memory_limit() {
    static const std::size_t limit = [] {
        const std::size_t found = memory_limit_under("/");
        return found != 0 ? found : std::size_t{1} << 30;
    }();
    return limit;
}

std::ptrdiff_t host_bytes_left() noexcept {
    const std::size_t most = process_memory_limit() / 8 * 7;
    return static_cast<std::ptrdiff_t>(most - host_bytes_held.load(std::memory_order_relaxed));
}

std::optional<std::size_t> max_idle_bytes_of_environment() {
    static const std::optional<std::size_t> bytes = []() -> std::optional<std::size_t> {
        const char* const text =
            std::getenv("CISTERN_MAX_IDLE_BYTES");  // NOLINT(concurrency-mt-unsafe)
        const std::string setting = text != nullptr ? text : "";
        std::size_t number = 0;
        const char* const end = setting.data() + setting.size();
        const auto [rest, error] = std::from_chars(setting.data(), end, number);
        if (error != std::errc{} || rest != end || setting.empty()) return std::nullopt;
        return number;
    }();
    return bytes;
}

std::size_t default_max_idle_bytes() {
    return max_idle_bytes_of_environment().value_or(process_memory_limit() / 2);
}

}  // namespace cistern
