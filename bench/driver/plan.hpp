#pragma once
// What is measured, against what, and which budget of docs/design.md it has to meet.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace bench {

/// A promise. `name` is the same for all lines that one promise covers.
struct Budget {
    enum class Kind {
        times_reference,  // figure / reference's figure <= limit
        over_reference,   // figure - reference's figure <= limit ns
        nanoseconds,      // figure <= limit
        fastest_peer,     // figure / fastest peer's <= limit
        speed_up,         // figure of `Line::base` / figure >= limit
        growth,           // figure / figure of `Line::base` <= limit
    };
    std::string name;
    Kind kind = Kind::times_reference;
    double limit = 0;
};

/// One line of a table: one of the figures that a case's rounds yield.
struct Line {
    std::string label;
    std::string key = "ns";
    std::optional<Budget> budget = {};
    std::string base = {};  // the key compared with, for a speed-up or a growth
};

/// How a case's rounds become one figure. Whatever disturbs a round makes it slower, so the best is
/// the truest. Where each round does other work, in an order that is the same in all generations:
/// each round's best over the generations, and the mean of those, so that a rare costly step counts.
/// Where lines go from core to core, a virtual machine's cores lie near or far from one round to the next,
/// and the best is whoever was lucky once: the median.
enum class Take { best, mean, median };

struct Case {
    std::string task;  // what workers run (worker/tasks.hpp)
    std::size_t bytes = 0;
    std::vector<Line> lines = {};
    std::vector<std::string> contestants = {};
    int rounds = 10;
    double round_ms = 2;
    int generations = 3;             // how often all start anew, to even out luck with addresses
    std::size_t resident_bytes = 0;  // what one contestant keeps in memory
};

struct Group {
    std::string title;      // with the unit
    std::string reference;  // what the floor's worker runs in this group; empty for none
    Take take = Take::best;
    std::vector<Case> cases = {};
};

/// Returns all groups; `quick` for fewer and shorter rounds.
std::vector<Group> plan(bool quick);

}  // namespace bench
