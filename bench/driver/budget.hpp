#pragma once
// Holds or missed: a line's figures against its budget.

#include <optional>
#include <string>
#include <vector>

#include "run.hpp"

namespace bench {

struct Verdict {
    Budget budget;
    std::string line;  // where it was measured
    double measured = 0;
    bool holds = false;
};

/// Judges Cistern, linked shared and static where both ran: the worse one counts. Returns nothing
/// if the line has no budget or what it compares did not run.
std::optional<Verdict> judge(const GroupResult& group, const CaseResult& result, const Line& line);

/// Returns the budget as people write it: "≤ 2.5 × floor".
std::string describe(const Budget& budget, const std::string& reference);
/// Returns a measured value in the budget's unit: "2.13 ×", "+2.9 ns".
std::string describe(Budget::Kind kind, double measured);

/// One verdict for each promise: the worst of its lines.
struct Summary {
    Budget budget;
    std::string reference;
    std::optional<Verdict> worst = {};
    int held = 0, missed = 0, not_measured = 0;  // lines

    [[nodiscard]] bool holds() const { return missed == 0 && not_measured == 0; }
};
std::vector<Summary> summarise(const std::vector<GroupResult>& groups);

}  // namespace bench
