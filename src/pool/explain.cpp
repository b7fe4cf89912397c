// What a pool holds, for whom, and why it still does.

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <ostream>
#include <set>
#include <sstream>

#include "base/bytes.hpp"
#include "base/size_class.hpp"
#include "memory/clock.hpp"
#include "pool/core.hpp"
#include "pool/options.hpp"

namespace cistern {

namespace {

using namespace std::chrono_literals;
constexpr std::array<std::chrono::milliseconds, 5> age_steps = {0ms, 1s, 10s, 60s, 600s};

/// Collects blocks by class and idle ones by age.
class Survey {
public:
    explicit Survey(std::uint64_t now) : now_(now) {
        for (std::size_t i = 0; i < ages_.size(); ++i) ages_[i].at_least = age_steps[i];
    }
    void lent(std::size_t bytes) {
        ClassReport& row = row_of(bytes);
        ++row.lent_buffers;
        row.lent_bytes += bytes;
    }
    /// Bytes that a graph keeps: lent, in no buffer.
    void kept(std::size_t bytes) { row_of(bytes).lent_bytes += bytes; }
    void idle(std::size_t bytes, std::uint64_t since) {
        ClassReport& row = row_of(bytes);
        ++row.idle_buffers;
        row.idle_bytes += bytes;
        const auto age = std::chrono::nanoseconds(now_ - std::min(now_, since));
        std::size_t step = ages_.size() - 1;
        while (step > 0 && age < age_steps[step]) --step;
        ++ages_[step].idle_buffers;
        ages_[step].idle_bytes += bytes;
    }
    /// A block counted as lent turned out to be in a magazine.
    void not_lent(std::size_t bytes, std::uint64_t since) {
        ClassReport& row = row_of(bytes);
        --row.lent_buffers;
        row.lent_bytes -= bytes;
        idle(bytes, since);
    }
    void report(Explanation& explanation) const {
        for (const auto& [index, row] : classes_) explanation.classes.push_back(row);
        for (const AgeReport& row : ages_) {
            if (row.idle_buffers != 0) explanation.ages.push_back(row);
        }
    }

private:
    ClassReport& row_of(std::size_t bytes) {
        ClassReport& row = classes_[detail::class_of_last(bytes - 1)];
        row.up_to_bytes = class_end(detail::class_of_last(bytes - 1));
        return row;
    }

    std::uint64_t now_;
    std::map<std::size_t, ClassReport> classes_;
    std::array<AgeReport, age_steps.size()> ages_{};
};

std::vector<std::string> reasons(const Explanation& held, const PoolOptions& options,
                                 std::uint64_t lent_peak, std::size_t splinters) {
    std::vector<std::string> why;
    const auto text = [](std::uint64_t bytes) { return text_of_bytes(bytes); };
    if (held.idle_bytes == 0) {
        why.emplace_back(held.lent_bytes == 0 ? "nothing is held"
                                              : "everything held is lent: it returns when its "
                                                "buffers are released");
        return why;
    }
    why.push_back(
        text(held.idle_bytes) + " are kept for the next borrower: below max_idle_bytes " +
        (options.max_idle_bytes == no_limit ? "(no limit)" : text(options.max_idle_bytes)) +
        "; trim() gives them back now");
    if (options.max_idle_age == forever) {
        why.emplace_back(
            "idle bytes never age: max_idle_age gives back what nobody asks for, for a lock in "
            "every release");
    }
    if (held.magazine_bytes > held.idle_bytes / 2 && held.threads > 1) {
        why.push_back(
            text(held.magazine_bytes) + " are in the magazines of " + std::to_string(held.threads) +
            " threads: they come back before the pool grows much, and when a thread ends");
    }
    if (splinters > 0) {
        why.push_back(std::to_string(splinters) +
                      " idle holes are smaller than a page: bytes between lent buffers");
    }
    if (held.held_bytes - held.held_bytes / 8 > lent_peak) {
        why.push_back("no more than " + text(lent_peak) + " were ever lent at once, and " +
                      text(held.held_bytes) + " are held: a lower max_idle_bytes may do");
    }
    return why;
}

}  // namespace

Explanation Core::explain() {
    Lock lock(lock_);
    age_out(true);
    Explanation explanation;
    explanation.pool = options_.name;
    explanation.memory = memory_.name();
    explanation.fit = text_of_fit(options_.fit);

    const std::uint64_t now = coarse_now();
    Survey survey(now);
    std::size_t splinters = 0;
    const Seizure seizure(*this);  // so that every block is in one place while they are counted
    if (arena_) {
        arena_->for_each([&](const Block& block) {
            if (block.state == BlockState::out) survey.lent(block.bytes);
            if (block.state != BlockState::idle || !splits_) return;
            if (block.holes->kept) return survey.kept(block.bytes);
            survey.idle(block.bytes, block.released_at);
            if (block.bytes < 4096) ++splinters;
        });
    }
    for (const Block* block = outside_.first(); block != nullptr; block = Wholes::after(*block)) {
        if (block->state == BlockState::out) survey.lent(block->bytes);
    }
    shelf_.for_each([&](const Block& block) { survey.idle(block.bytes, block.released_at); });
    const auto walk = [&](const detail::BlockFront* front) {
        for (; front != &detail::no_block; front = front->below) {
            const auto& block = static_cast<const Block&>(*front);
            survey.not_lent(block.bytes,
                            options_.max_idle_age == forever ? now : block.released_at);
        }
    };
    std::set<const detail::ThreadFront*> threads;  // which have a magazine for each stream
    for (const ThreadMagazine* m = magazines_.first(); m != nullptr; m = Magazines::after(*m)) {
        threads.insert(m->owner);
        if (m->holds()) survey.not_lent(m->hand->bytes, now);
        for (detail::Rack const rack : m->racks) walk(rack);
    }
    for (const Lane* lane = lanes_.first(); lane != nullptr; lane = Lanes::after(*lane)) {
        for (const Block* block = lane->set_aside.first(); block != nullptr;
             block = Batches::after(*block)) {
            survey.kept(block->bytes);
        }
        for (const Batches& batches : lane->depot) {
            for (const Block* batch = batches.first(); batch != nullptr;
                 batch = Batches::after(*batch)) {
                walk(batch);
            }
        }
    }
    for (const Block* block = parked_.first(); block != nullptr; block = Batches::after(*block)) {
        survey.not_lent(block->bytes, now);
    }

    explanation.threads = threads.size();

    const Totals totals = note_all_peaks();
    explanation.held_bytes = held_;
    explanation.idle_bytes = totals.idle_bytes;
    explanation.lent_bytes = totals.lent_bytes;
    explanation.magazine_bytes = totals.magazine_bytes;
    explanation.arena_bytes = totals.idle_bytes - totals.magazine_bytes;
    survey.report(explanation);
    explanation.why = reasons(explanation, options_, lent_peak_, splinters);
    return explanation;
}

std::string Explanation::json() const {
    std::ostringstream out;
    out << "{\"pool\":" << json_string(pool) << ",\"memory\":" << json_string(memory)
        << ",\"fit\":" << json_string(fit) << ",\"held_bytes\":" << held_bytes
        << ",\"lent_bytes\":" << lent_bytes << ",\"idle_bytes\":" << idle_bytes
        << ",\"magazine_bytes\":" << magazine_bytes << ",\"arena_bytes\":" << arena_bytes
        << ",\"threads\":" << threads << ",\"classes\":[";
    const char* separator = "";
    for (const ClassReport& row : classes) {
        out << separator << "{\"up_to_bytes\":" << row.up_to_bytes
            << ",\"lent_buffers\":" << row.lent_buffers << ",\"lent_bytes\":" << row.lent_bytes
            << ",\"idle_buffers\":" << row.idle_buffers << ",\"idle_bytes\":" << row.idle_bytes
            << '}';
        separator = ",";
    }
    out << "],\"ages\":[";
    separator = "";
    for (const AgeReport& row : ages) {
        out << separator << "{\"at_least_ms\":" << row.at_least.count()
            << ",\"idle_buffers\":" << row.idle_buffers << ",\"idle_bytes\":" << row.idle_bytes
            << '}';
        separator = ",";
    }
    out << "],\"keys\":[";
    separator = "";
    for (const KeyReport& row : keys) {
        out << separator << "{\"key\":" << json_string(row.key)
            << ",\"lent_buffers\":" << row.lent_buffers << ",\"lent_bytes\":" << row.lent_bytes
            << '}';
        separator = ",";
    }
    out << "],\"why\":[";
    separator = "";
    for (const std::string& sentence : why) {
        out << separator << json_string(sentence);
        separator = ",";
    }
    out << "]}";
    return out.str();
}

std::ostream& operator<<(std::ostream& out, const Explanation& e) {
    std::ostringstream text;
    text << "pool '" << e.pool << "' on " << e.memory << " (" << e.fit << ")\n"
         << "  held " << text_of_bytes(e.held_bytes) << " = lent " << text_of_bytes(e.lent_bytes)
         << " + idle " << text_of_bytes(e.idle_bytes)
         << "\n  idle: " << text_of_bytes(e.magazine_bytes) << " in the magazines of " << e.threads
         << (e.threads == 1 ? " thread, " : " threads, ") << text_of_bytes(e.arena_bytes)
         << " in the arena\n";
    const auto cell = [&text](const std::string& value, std::size_t width) {
        text << std::string(width - std::min(width, value.size()), ' ') << value;
    };
    if (!e.classes.empty()) {
        text << "  blocks up to      lent buffers, bytes      idle buffers, bytes\n";
    }
    for (const ClassReport& row : e.classes) {
        cell(text_of_bytes(row.up_to_bytes), 14);
        cell(std::to_string(row.lent_buffers), 13);
        cell(text_of_bytes(row.lent_bytes), 12);
        cell(std::to_string(row.idle_buffers), 13);
        cell(text_of_bytes(row.idle_bytes), 12);
        text << '\n';
    }
    for (const AgeReport& row : e.ages) {
        text << "  idle for at least "
             << std::chrono::duration_cast<std::chrono::seconds>(row.at_least).count()
             << " s: " << row.idle_buffers << " blocks, " << text_of_bytes(row.idle_bytes) << '\n';
    }
    for (const KeyReport& row : e.keys) {
        text << "  key '" << row.key << "': " << row.lent_buffers
             << (row.lent_buffers == 1 ? " buffer, " : " buffers, ")
             << text_of_bytes(row.lent_bytes) << '\n';
    }
    for (const std::string& sentence : e.why) text << "  - " << sentence << '\n';
    return out << text.str();
}

}  // namespace cistern
