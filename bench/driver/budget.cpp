#include "budget.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "contestant.hpp"

namespace bench {
namespace {

using Kind = Budget::Kind;

std::optional<double> fastest_peer(Take take, const CaseResult& result, const std::string& key) {
    std::optional<double> fastest;
    for (const auto& [name, rounds] : result.rounds) {
        if (!contestant(name).is_peer()) continue;
        const auto ns = figure(take, result, name, key);
        if (ns && (!fastest || *ns < *fastest)) fastest = ns;
    }
    return fastest;
}

/// Returns what the figure is compared with.
std::optional<double> yardstick(Take take, const CaseResult& result, const Line& line,
                                const std::string& name) {
    switch (line.budget->kind) {
        case Kind::times_reference:
        case Kind::over_reference:
            return figure(take, result, "floor", line.key);
        case Kind::nanoseconds:
            return 0;
        case Kind::fastest_peer:
            return fastest_peer(take, result, line.key);
        case Kind::speed_up:
        case Kind::growth:
            return figure(take, result, name, line.base);
    }
    return std::nullopt;
}

double compare(Kind kind, double ns, double with) {
    switch (kind) {
        case Kind::nanoseconds:
        case Kind::over_reference:
            return ns - with;
        case Kind::speed_up:
            return with / ns;
        default:
            return ns / with;
    }
}

bool worse(Kind kind, double a, double b) { return kind == Kind::speed_up ? a < b : a > b; }

}  // namespace

std::optional<Verdict> judge(const GroupResult& group, const CaseResult& result, const Line& line) {
    if (!line.budget) return std::nullopt;
    std::optional<Verdict> verdict;
    for (const char* name : {"cistern", "static"}) {
        const auto ns = figure(group.about.take, result, name, line.key);
        const auto with = yardstick(group.about.take, result, line, name);
        if (!ns || !with) continue;
        const Kind kind = line.budget->kind;
        const double measured = compare(kind, *ns, *with);
        if (verdict && !worse(kind, measured, verdict->measured)) continue;
        verdict = Verdict{.budget = *line.budget,
                          .line = line.label,
                          .measured = measured,
                          .holds = !worse(kind, measured, line.budget->limit)};
    }
    return verdict;
}

std::string describe(const Budget& budget, const std::string& reference) {
    switch (budget.kind) {
        case Kind::times_reference:
            return fmt::format("≤ {} × {}", budget.limit, reference);
        case Kind::over_reference:
            return fmt::format("≤ {} + {} ns", reference, budget.limit);
        case Kind::nanoseconds:
            return fmt::format("≤ {} ns", budget.limit);
        case Kind::fastest_peer:
            return fmt::format("≤ {} × fastest peer", budget.limit);
        case Kind::speed_up:
            return fmt::format("≥ {} × one", budget.limit);
        case Kind::growth:
            return fmt::format("≤ {} × the first", budget.limit);
    }
    return "";
}

std::string describe(Kind kind, double measured) {
    if (kind == Kind::nanoseconds) return fmt::format("{:.1f} ns", measured);
    if (kind == Kind::over_reference) return fmt::format("{:+.1f} ns", measured);
    return fmt::format("{:.2f} ×", measured);
}

namespace {

Summary& summary_of(std::vector<Summary>& all, const Budget& budget, const std::string& reference) {
    const auto found = std::find_if(
        all.begin(), all.end(), [&](const Summary& one) { return one.budget.name == budget.name; });
    return found != all.end() ? *found : all.emplace_back(Summary{budget, reference});
}

void add(Summary& summary, const std::optional<Verdict>& verdict) {
    if (!verdict) {
        ++summary.not_measured;
        return;
    }
    ++(verdict->holds ? summary.held : summary.missed);
    if (!summary.worst || worse(verdict->budget.kind, verdict->measured, summary.worst->measured)) {
        summary.worst = verdict;
    }
}

}  // namespace

std::vector<Summary> summarise(const std::vector<GroupResult>& groups) {
    std::vector<Summary> all;
    for (const GroupResult& group : groups) {
        for (const CaseResult& result : group.cases) {
            for (const Line& line : result.about.lines) {
                if (!line.budget) continue;
                add(summary_of(all, *line.budget, group.about.reference),
                    judge(group, result, line));
            }
        }
    }
    return all;
}

}  // namespace bench
