#pragma once
// Runs a plan: every contestant in its own process, their rounds interleaved.

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plan.hpp"
#include "process.hpp"
#include "progress.hpp"

namespace bench {

struct CaseResult {
    Case about;
    /// What each round of a contestant measured, by the key of the figure; in ns.
    std::map<std::string, std::map<std::string, std::vector<double>>> rounds;
    std::map<std::string, std::string> skipped;  // why a contestant has no figure here
};

struct GroupResult {
    Group about;  // without its cases
    std::vector<CaseResult> cases;
};

/// Returns the one number that stands for all rounds, or nothing if there were none.
std::optional<double> figure(Take take, const CaseResult& result, const std::string& contestant,
                             const std::string& key);

/// Starts workers, and remembers who cannot take part and who crashed.
class Workers {
public:
    /// Returns a new worker of this contestant, or null if it cannot take part; missing() then says
    /// why.
    std::unique_ptr<Process> start(const std::string& name);
    void note_death(const std::string& text) { deaths_.insert(text); }

    [[nodiscard]] const std::map<std::string, std::string>& missing() const { return missing_; }
    [[nodiscard]] const std::map<std::string, nlohmann::json>& about() const { return about_; }
    [[nodiscard]] const std::set<std::string>& deaths() const { return deaths_; }

private:
    std::unique_ptr<Process> start_with(const std::string& name, const std::string& library);

    std::map<std::string, std::string> missing_;
    std::map<std::string, nlohmann::json> about_;
    std::set<std::string> deaths_;
};

CaseResult run_case(Workers& workers, const Case& one, Progress& progress);

}  // namespace bench
