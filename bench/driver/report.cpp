#include "report.hpp"

#include "budget.hpp"
#include "contestant.hpp"
#include "machine.hpp"

namespace bench {
namespace {

using nlohmann::json;

json contestants_of(const Workers& workers) {
    json all = json::object();
    for (const auto& [name, about] : workers.about()) {
        const Contestant& who = contestant(name);
        json& entry = all[name] = about;
        entry["linked"] = who.worker;
        for (const auto& [variable, value] : who.environment)
            entry["environment"][variable] = value;
    }
    for (const auto& [name, reason] : workers.missing()) all[name] = {{"missing", reason}};
    return all;
}

const char* name_of(Take take) {
    return take == Take::best ? "best" : take == Take::mean ? "mean" : "median";
}

json line_of(const GroupResult& group, const CaseResult& result, const Line& line) {
    json entry{{"group", group.about.title},  {"reference", group.about.reference},
               {"line", line.label},          {"task", result.about.task},
               {"bytes", result.about.bytes}, {"take", name_of(group.about.take)}};
    for (const auto& [name, series] : result.rounds) {
        const auto found = series.find(line.key);
        if (found == series.end()) continue;
        entry["figures"][name] = {{"ns", *figure(group.about.take, result, name, line.key)},
                                  {"rounds", found->second}};
    }
    for (const auto& [name, reason] : result.skipped) entry["skipped"][name] = reason;
    if (const auto verdict = judge(group, result, line)) {
        entry["budget"] = {{"name", verdict->budget.name},
                           {"text", describe(verdict->budget, group.about.reference)},
                           {"limit", verdict->budget.limit},
                           {"measured", verdict->measured},
                           {"holds", verdict->holds}};
    }
    return entry;
}

}  // namespace

json report(const std::vector<GroupResult>& groups, const Workers& workers) {
    json lines = json::array(), budgets = json::array();
    for (const GroupResult& group : groups) {
        for (const CaseResult& result : group.cases) {
            for (const Line& line : result.about.lines) {
                lines.push_back(line_of(group, result, line));
            }
        }
    }
    for (const Summary& one : summarise(groups)) {
        json& entry = budgets.emplace_back(json{{"name", one.budget.name},
                                                {"text", describe(one.budget, one.reference)},
                                                {"holds", one.holds()},
                                                {"lines_held", one.held},
                                                {"lines_missed", one.missed},
                                                {"lines_not_measured", one.not_measured}});
        if (!one.worst) continue;
        entry["worst"] = one.worst->measured;
        entry["worst_line"] = one.worst->line;
    }
    return {{"machine", machine_facts()},
            {"contestants", contestants_of(workers)},
            {"lines", lines},
            {"budgets", budgets}};
}

}  // namespace bench
