// The list of everything measured. README.md says how each budget is measured and why so.

#include "plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace bench {
namespace {

using Names = std::vector<std::string>;
using Kind = Budget::Kind;

constexpr std::size_t kib = 1024, mib = 1024 * kib, gib = 1024 * mib;

const Names allocators{"glibc",     "glibc*",    "tcmalloc", "mimalloc", "jemalloc",
                       "jemalloc*", "tbbmalloc", "pmr sync", "pmr"};

Names with(Names first, const Names& more) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
}

std::string size_label(std::size_t bytes) {
    const auto value = static_cast<double>(bytes);
    if (bytes < kib) return fmt::format("{} B", bytes);
    if (bytes < mib) return fmt::format("{:.3g} KiB", value / static_cast<double>(kib));
    if (bytes < gib) return fmt::format("{:.3g} MiB", value / static_cast<double>(mib));
    return fmt::format("{:.3g} GiB", value / static_cast<double>(gib));
}

/// The same case at several sizes, a line each.
void add_sizes(Group& group, const Case& pattern, std::initializer_list<std::size_t> sizes,
               const std::optional<Budget>& budget) {
    for (const std::size_t bytes : sizes) {
        Case& added = group.cases.emplace_back(pattern);
        added.bytes = bytes;
        added.lines = {{.label = size_label(bytes), .budget = budget}};
    }
}

constexpr std::size_t seven_point_one = 7'444'890;  // 7.1 MiB, a multiple of nothing

Group pairs() {
    Group group{.title = "Acquire and release, one thread: ns per pair", .reference = "floor"};
    add_sizes(group,
              {.task = "pair",
               .contestants = with({"floor", "cistern", "static"}, with(allocators, {"boost"}))},
              {64, kib, 4 * kib, 64 * kib, mib, 7 * mib, seven_point_one, 8 * mib, 32 * mib,
               64 * mib, 256 * mib, gib},
              Budget{"acquire and release", Kind::times_reference, 2.5});
    return group;
}

Group nested() {
    Group group{.title = "Four of one size held at once: ns per buffer", .reference = "floor"};
    add_sizes(group, {.task = "nested", .contestants = with({"floor", "cistern"}, allocators)},
              {kib, mib, 64 * mib}, std::nullopt);
    return group;
}

Group rotating() {
    return {.title = "Seven sizes in turn, one thread: ns per pair",
            .reference = "",
            .cases = {{.task = "rotate",
                       .bytes = 4 * kib,
                       .lines = {{.label = "4 to 256 KiB"}},
                       .contestants = with({"cistern", "static"}, allocators)}}};
}

Group arrays() {
    Group group{.title = "Pairs through array<double>(n, m): ns per pair", .reference = "floor"};
    add_sizes(group, {.task = "array", .contestants = {"floor", "cistern", "static"}},
              {kib, 64 * kib, mib, 64 * mib}, Budget{"array", Kind::over_reference, 4});
    return group;
}

Group fits() {
    Group group{.title = "Pairs with the other fits and as a memory_resource: ns per pair",
                .reference = "floor"};
    add_sizes(
        group,
        {.task = "pair",
         .contestants = {"floor", "cistern", "ExactFit", "BestFit", "FixedBlock", "PoolResource"}},
        {kib, mib, 64 * mib}, std::nullopt);
    return group;
}

Group arena() {
    const Budget budget{"magazine miss served by the arena", Kind::nanoseconds, 100};
    return {.title = "Magazine miss served by the arena: ns per operation",
            .reference = "",
            .cases = {
                {.task = "arena",
                 .lines = {{.label = "acquire, magazine empty", .key = "miss", .budget = budget},
                           {.label = "acquire, no magazines", .key = "acquire", .budget = budget},
                           {.label = "release, no magazines", .key = "release", .budget = budget}},
                 .contestants = {"cistern", "static"}}}};
}

Group pools() {
    const auto line = [](const char* label, const char* key, double ns) {
        return Line{.label = label, .key = key, .budget = Budget{label, Kind::nanoseconds, ns}};
    };
    return {.title = "Hits of the pools on the engine: ns per call",
            .reference = "",
            .cases = {{.task = "pools",
                       .lines = {line("a key's buffer", "keyed", 20),
                                 line("two arrays for a call", "scope", 25)},
                       .contestants = {"cistern", "static"}}}};
}

Group mixed() {
    return {.title = "1000 live buffers of 64 B to 1 MiB, one replaced at random: ns per step",
            .reference = "",
            .take = Take::mean,
            .cases = {{.task = "mixed",
                       .lines = {{.label = "not touched"}},
                       .contestants = with({"cistern"}, allocators),
                       .rounds = 6}}};
}

Group crowd() {
    const Budget budget{"a pair costs the same however many blocks there are", Kind::growth, 1.1};
    Group group{.title = "A pair of 1 KiB among many other blocks: ns per pair", .reference = ""};
    for (const auto& [task, where, what] : {std::tuple{"crowd live", "magazine", "live"},
                                            {"crowd idle", "magazine", "idle"},
                                            {"arena crowd live", "arena", "live"},
                                            {"arena crowd idle", "arena", "idle"}}) {
        Case& added =
            group.cases.emplace_back(Case{.task = task, .bytes = kib, .contestants = {"cistern"}});
        for (const char* count : {"10", "1000", "100000"}) {
            added.lines.push_back(
                {.label = fmt::format("{}: {} {}", where, count, what), .key = count});
            if (added.lines.size() == 1) continue;
            added.lines.back().budget = budget;
            added.lines.back().base = "10";
        }
    }
    return group;
}

Group many() {
    const Budget budget{"a miss costs the same however many threads there are", Kind::growth, 2};
    Case threads{.task = "many threads", .contestants = {"cistern"}};
    for (const char* count : {"0", "16", "256"}) {
        threads.lines.push_back(
            {.label = fmt::format("magazine miss, {} other threads", count), .key = count});
        if (threads.lines.size() == 1) continue;
        threads.lines.back().budget = budget;
        threads.lines.back().base = threads.lines.front().key;
    }
    Case pools{.task = "many pools", .bytes = kib, .contestants = {"cistern"}};
    for (const char* count : {"1", "31", "256"}) {
        pools.lines.push_back(
            {.label = fmt::format("pair of 1 KiB, {} pools in turn", count), .key = count});
    }
    return {.title = "One thread among many, one pool among many: ns per operation",
            .reference = "",
            .cases = {threads, pools}};
}

Group remote() {
    Group group{.title = "Acquired on one thread, released on another: ns per buffer",
                .reference = "ring alone",
                .take = Take::median};
    Names safe = allocators;
    std::erase(safe, "pmr");  // for one thread only
    for (const auto& [task, how] :
         {std::pair{"remote", "one by one"}, {"remote 256", "256 together"}}) {
        for (const std::size_t bytes : {kib, 64 * kib, mib}) {
            group.cases.push_back(
                {.task = task,
                 .bytes = bytes,
                 .lines = {{.label = fmt::format("{}, {}", size_label(bytes), how),
                            .budget = Budget{"acquired on one thread, released on another",
                                             Kind::fastest_peer, 1}}},
                 .contestants = with({"floor", "cistern", "static"}, safe),
                 .rounds = 40});
        }
    }
    return group;
}

Group two_threads() {
    Group group{.title = "Two threads on two cores: ns per pair, of both together",
                .reference = "floor"};
    Names safe = allocators;
    std::erase(safe, "pmr");
    for (const std::size_t bytes : {kib, mib}) {
        const std::string size = size_label(bytes);
        group.cases.push_back(
            {.task = "two threads",
             .bytes = bytes,
             .lines = {{.label = size + ", one thread", .key = "one"},
                       {.label = size + ", two threads",
                        .key = "two",
                        .budget = Budget{"two threads on two cores", Kind::speed_up, 1.9},
                        .base = "one"}},
             .contestants = with({"floor", "cistern", "static"}, safe),
             .rounds = 20});
    }
    return group;
}

Group touch() {
    Group group{.title = "Acquire, touch every page, release: time per step",
                .reference = "warm buffer"};
    const Case pattern{.task = "touch",
                       .contestants = with({"floor", "cistern"}, allocators),
                       .rounds = 8,
                       .round_ms = 5,
                       .resident_bytes = 64 * mib};
    add_sizes(group, pattern, {7 * mib, seven_point_one, 8 * mib, 32 * mib}, std::nullopt);
    add_sizes(group, pattern, {64 * mib},
              Budget{"acquire, touch every page, release, 64 MiB", Kind::times_reference, 1.05});
    return group;
}

Group replace() {
    const Budget budget{"20 live buffers of 1 to 25 MiB, replaced at random", Kind::times_reference,
                        1.1};
    return {.title = "20 live buffers of 1 to 25 MiB, one replaced at random, every page touched",
            .reference = "touch alone",
            .take = Take::mean,
            .cases = {{.task = "replace",
                       .lines = {{.label = "time per step", .budget = budget}},
                       .contestants = with({"floor", "cistern"}, allocators),
                       .rounds = 6,
                       .resident_bytes = 500 * mib}}};
}

Group first_touch() {
    const Budget budget{"first touch of a fresh 64 MiB", Kind::times_reference, 1.1};
    const auto line = [&](const char* label) {
        return std::vector<Line>{{.label = label, .budget = budget}};
    };
    return {.title = "First touch of a fresh 64 MiB: time to acquire and touch every page",
            .reference = "huge mapping",
            .cases = {{.task = "fresh",
                       .bytes = 64 * mib,
                       .lines = line("new pool"),
                       .contestants = with({"floor", "cistern"}, allocators),
                       .rounds = 6},
                      {.task = "trimmed",
                       .bytes = 64 * mib,
                       .lines = line("after trim"),
                       .contestants = {"floor", "cistern"},
                       .rounds = 6}}};
}

Group zeroed() {
    Group group{.title = "Zeroed bytes, every page touched: time per step",
                .reference = "mapping, memset"};
    for (const auto& [task, label] :
         {std::pair{"zeroed fresh", "fresh"}, {"zeroed reused", "reused"}}) {
        for (const std::size_t bytes : {mib, 64 * mib}) {
            group.cases.push_back(
                {.task = task,
                 .bytes = bytes,
                 .lines = {{.label = fmt::format("{}, {}", label, size_label(bytes))}},
                 .contestants = with({"floor", "cistern"}, allocators),
                 .rounds = 4,
                 .round_ms = 5,
                 .resident_bytes = bytes});
        }
    }
    return group;
}

}  // namespace

std::vector<Group> plan(bool quick) {
    std::vector<Group> groups{pairs(), rotating(), nested(),      arrays(), fits(),   arena(),
                              pools(), mixed(),    crowd(),       many(),   remote(), two_threads(),
                              touch(), replace(),  first_touch(), zeroed()};
    if (!quick) return groups;
    for (Group& group : groups) {
        for (Case& one : group.cases) {
            one.rounds = std::max(3, one.rounds / 2);
            one.round_ms /= 2;
            one.generations = 1;
        }
    }
    return groups;
}

}  // namespace bench
