// A table is rows of cells; the first column is flush left, the others flush right.

#include "table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "budget.hpp"
#include "contestant.hpp"

namespace bench {
namespace {

using Row = std::vector<std::string>;

std::size_t width_of(const std::string& text) {  // in code points
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

void print_rows(const std::vector<Row>& rows) {
    std::vector<std::size_t> widths;
    for (const Row& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i) {
            widths[i] = std::max(widths[i], width_of(row[i]));
        }
    }
    for (const Row& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string padding(widths[i] - width_of(row[i]), ' ');
            line += i == 0 ? "  " + row[i] + padding : "  " + padding + row[i];
        }
        line.erase(line.find_last_not_of(' ') + 1);
        fmt::print("{}\n", line);
    }
}

std::string duration(std::optional<double> ns) {
    if (!ns) return "-";
    if (*ns < 100) return fmt::format("{:.2f}", *ns);
    if (*ns < 1e4) return fmt::format("{:.0f}", *ns);
    if (*ns < 1e6) return fmt::format("{:.1f} µs", *ns / 1e3);
    return fmt::format("{:.2f} ms", *ns / 1e6);
}

std::string ratio(std::optional<double> ns, std::optional<double> reference) {
    return ns && reference ? fmt::format("{:.2f} ×", *ns / *reference) : "";
}

/// Returns those of the group's contestants that have a figure, in the usual order.
std::vector<std::string> present(const GroupResult& group, bool (*wanted)(const std::string&)) {
    std::vector<std::string> names;
    for (const Contestant& one : contestants()) {
        const bool ran = std::any_of(group.cases.begin(), group.cases.end(),
                                     [&](const auto& c) { return c.rounds.contains(one.name); });
        if (ran && wanted(one.name)) names.push_back(one.name);
    }
    return names;
}

bool is_judged(const std::string& name) { return name == "cistern" || name == "static"; }
bool is_other(const std::string& name) { return !is_judged(name) && name != "floor"; }

template <class Each>
void for_lines(const GroupResult& group, Each&& each) {
    for (const CaseResult& result : group.cases) {
        for (const Line& line : result.about.lines) each(result, line);
    }
}

void print_judged(const GroupResult& group) {
    const std::vector<std::string> judged = present(group, is_judged);
    const bool referenced = !group.about.reference.empty();
    Row header{""};
    if (referenced) header.push_back(group.about.reference);
    for (const std::string& name : judged) {
        header.push_back(name);
        if (referenced) header.emplace_back("");
    }
    bool any_budget = false;
    std::vector<Row> rows;
    for_lines(group, [&](const CaseResult& result, const Line& line) {
        Row& row = rows.emplace_back(Row{line.label});
        const auto reference = figure(group.about.take, result, "floor", line.key);
        if (referenced) row.push_back(duration(reference));
        for (const std::string& name : judged) {
            const auto ns = figure(group.about.take, result, name, line.key);
            row.push_back(duration(ns));
            if (referenced) row.push_back(ratio(ns, reference));
        }
        const auto verdict = judge(group, result, line);
        if (!verdict) return;
        any_budget = true;
        row.push_back(describe(*line.budget, group.about.reference));
        row.push_back(describe(line.budget->kind, verdict->measured));
        row.emplace_back(verdict->holds ? "holds" : "MISSED");
    });
    if (any_budget) header.insert(header.end(), {"budget", "measured", ""});
    rows.insert(rows.begin(), header);
    print_rows(rows);
}

void print_others(const GroupResult& group) {
    const std::vector<std::string> others = present(group, is_other);
    if (others.empty()) return;
    std::vector<Row> rows{{""}};
    rows.front().insert(rows.front().end(), others.begin(), others.end());
    for_lines(group, [&](const CaseResult& result, const Line& line) {
        Row row{line.label};
        bool any = false;
        for (const std::string& name : others) {
            const auto ns = figure(group.about.take, result, name, line.key);
            row.push_back(duration(ns));
            any |= ns.has_value();
        }
        if (any) rows.push_back(row);
    });
    fmt::print("  the others, same work\n");
    print_rows(rows);
}

}  // namespace

void print_group(const GroupResult& group) {
    fmt::print("\n{}\n", group.about.title);
    print_judged(group);
    print_others(group);
    std::fflush(stdout);
}

void print_summary(const std::vector<GroupResult>& groups) {
    const std::vector<Summary> all = summarise(groups);
    if (all.empty()) return;
    fmt::print("\nBudgets (docs/design.md), by their worst line\n");
    std::vector<Row> rows{{"", "budget", "measured", "at", ""}};
    long held = 0, missed = 0;
    for (const Summary& one : all) {
        held += one.holds() ? 1 : 0;
        missed += one.missed != 0 ? 1 : 0;
        rows.push_back({one.budget.name, describe(one.budget, one.reference),
                        one.worst ? describe(one.budget.kind, one.worst->measured) : "-",
                        one.worst ? one.worst->line : "-",
                        one.missed != 0 ? "MISSED"
                        : one.holds()   ? "holds"
                                        : "not measured"});
    }
    print_rows(rows);
    const long rest = static_cast<long>(all.size()) - held - missed;
    fmt::print("budgets: {} hold, {} missed{}\n", held, missed,
               rest == 0 ? "" : fmt::format(", {} not measured", rest));
}

void print_notes(const Workers& workers) {
    fmt::print("\n");
    for (const Contestant& one : contestants()) {
        if (!one.settings.empty() && workers.about().contains(one.name)) {
            fmt::print("{} is tuned: {}\n", one.name, one.settings);
        }
    }
    for (const auto& [name, reason] : workers.missing()) {
        fmt::print("{} did not take part: {}\n", name, reason);
    }
    for (const std::string& death : workers.deaths()) fmt::print("{}\n", death);
}

}  // namespace bench
