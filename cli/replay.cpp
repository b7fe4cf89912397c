// cistern replay: what pools with these options would have held for a recorded program.

#include "trace/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "cistern/error.hpp"
#include "cistern/pool.hpp"
#include "commands.hpp"
#include "progress.hpp"
#include "units.hpp"

namespace cistern::cli {

namespace {

struct ReplayArguments {
    std::vector<std::string> files;
    trace::ReplayOptions options;
    bool json = false;
};

double parse_share(std::string_view text) {
    double share = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, share);
    if (error != std::errc() || stop != end || !(share >= 0 && share <= 1)) {
        throw InvalidArgument(
            fmt::format("expected best or best:MAX_WASTE, a share from 0 to 1: '{}'", text));
    }
    return share;
}

Fit parse_fit(std::string_view text) {
    const std::size_t colon = text.find(':');
    const std::string_view name = text.substr(0, colon);
    const bool has_value = colon != std::string_view::npos;
    const std::string_view value = has_value ? text.substr(colon + 1) : "";
    if (name == "elastic" && !has_value) return Elastic{};
    if (name == "exact" && !has_value) return ExactFit{};
    if (name == "best") return has_value ? BestFit{.max_waste = parse_share(value)} : BestFit{};
    if (name == "fixed" && has_value) return FixedBlock{.bytes = parse_bytes(value)};
    throw InvalidArgument(fmt::format(
        "unknown fit, expected elastic, exact, best, best:MAX_WASTE or fixed:BYTES: '{}'", text));
}

/// Reads "device" or "device:1".
Memory parse_memory(std::string_view text) {
    const std::size_t colon = text.find(':');
    const std::string_view name = text.substr(0, colon);
    const std::size_t number =
        colon == std::string_view::npos ? 0 : parse_count(text.substr(colon + 1));
    if (number > std::numeric_limits<int>::max()) {
        throw InvalidArgument(fmt::format("no such device: '{}'", text));
    }
    const int device = static_cast<int>(number);
    if (name == "device") return Memory::device(device);
    if (name == "pinned") return Memory::pinned(device);
    if (name == "managed") return Memory::managed(device);
    if (text == "host") return Memory::host();
    if (text == "simulated") return Memory::simulated();
    throw InvalidArgument(
        fmt::format("unknown memory, expected simulated, host, device, pinned or managed, the last "
                    "three with a "
                    "number if need be (device:1): '{}'",
                    text));
}

/// Reads bytes, or "1.1x": a multiple of what the trace has live at its peak.
void parse_max_bytes(std::string_view text, trace::ReplayOptions& options) {
    if (!text.ends_with('x')) {
        options.pool.max_bytes = parse_bytes(text);
        return;
    }
    const char* const end = text.data() + text.size() - 1;
    const auto [stop, error] = std::from_chars(text.data(), end, options.max_over_live);
    if (error != std::errc() || stop != end || !(options.max_over_live > 0) ||
        !std::isfinite(options.max_over_live)) {
        throw InvalidArgument(
            fmt::format("expected bytes, or a multiple of the peak such as 1.1x: '{}'", text));
    }
}

Evict parse_evict(std::string_view text) {
    if (text == "oldest") return Evict::oldest;
    if (text == "smallest") return Evict::smallest;
    if (text == "largest") return Evict::largest;
    throw InvalidArgument(
        fmt::format("unknown order, expected oldest, smallest or largest: '{}'", text));
}

nlohmann::ordered_json json_of(const std::string& file, const trace::ReplayResult& result) {
    return {{"file", file},
            {"events", result.events},
            {"pools", result.pools},
            {"acquires", result.acquires},
            {"hits", result.hits},
            {"misses", result.misses},
            {"missed_bytes", result.missed_bytes},
            {"evictions", result.evictions},
            {"failures", result.failures},
            {"peak_live_bytes", result.peak_live_bytes},
            {"peak_held_bytes", result.peak_held_bytes},
            {"waste_bytes", result.waste_bytes},
            {"moves", result.moves},
            {"moved_bytes", result.moved_bytes},
            {"hit_rate", result.hit_rate()},
            {"held_over_live", result.held_over_live()},
            {"seconds", result.seconds}};
}

void print_json(const std::vector<std::string>& files,
                const std::vector<trace::ReplayResult>& results) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < files.size(); ++i) all.push_back(json_of(files[i], results[i]));
    const auto& shown = files.size() == 1 ? all.front() : all;
    // A file name need not be UTF-8.
    fmt::print("{}\n", shown.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// Returns the file's name without its folder and the endings of traces.
std::string short_name(std::string_view path) {
    path.remove_prefix(path.rfind('/') + 1);  // npos + 1 is 0
    for (const std::string_view ending : {".gz", ".csv"}) {
        if (path.ends_with(ending)) path.remove_suffix(ending.size());
    }
    return std::string(path);
}

void print_table(const std::vector<std::string>& files,
                 const std::vector<trace::ReplayResult>& results, bool limited) {
    constexpr auto row = "{:<{}} {:>9} {:>8} {:>9} {:>9} {:>10} {:>10} {:>9} {:>9} {:>7} {:>8}\n";
    std::size_t width = 5;
    for (const std::string& file : files) width = std::max(width, short_name(file).size());
    fmt::print(fmt::runtime(row), "trace", width, "acquires", "hits", "misses", "evictions",
               "peak live", "peak held", "held/live", "waste", "moves", "seconds");
    double sum = 0, worst = 0;
    std::uint64_t failures = 0;
    for (std::size_t i = 0; i < files.size(); ++i) {
        const trace::ReplayResult& result = results[i];
        fmt::print(fmt::runtime(row), short_name(files[i]), width, text_of_count(result.acquires),
                   fmt::format("{:.1f} %", 100 * result.hit_rate()), text_of_count(result.misses),
                   text_of_count(result.evictions), text_of_bytes(result.peak_live_bytes),
                   text_of_bytes(result.peak_held_bytes),
                   fmt::format("{:.3f}", result.held_over_live()),
                   text_of_bytes(result.waste_bytes), text_of_count(result.moves),
                   fmt::format("{:.3f}", result.seconds));
        sum += result.held_over_live();
        worst = std::max(worst, result.held_over_live());
        failures += result.failures;
    }
    if (files.size() > 1) {
        fmt::print("\npeak held / peak live: mean {:.3f}, worst {:.3f}\n",
                   sum / static_cast<double>(files.size()), worst);
    }
    if (failures > 0) {
        fmt::print("\n{} acquires failed: {}\n", text_of_count(failures),
                   limited ? "--max-bytes is less than the program needs."
                           : "the memory has no room for them.");
    }
}

void run_replay(const ReplayArguments& arguments) {
    std::vector<trace::ReplayResult> results;
    {
        Progress progress;
        for (const std::string& file : arguments.files) {
            const std::string reading = "reading " + short_name(file);
            const std::string playing = "replaying " + short_name(file);
            trace::ReplayOptions options = arguments.options;
            options.progress = [&](double done) { progress.show(playing, done); };
            const trace::Trace trace =
                trace::read_trace(file, [&](double done) { progress.show(reading, done); });
            results.push_back(trace::replay(trace, options));
        }
    }
    if (arguments.json) {
        print_json(arguments.files, results);
    } else {
        const bool limited =
            arguments.options.pool.max_bytes != no_limit || arguments.options.max_over_live != 0;
        print_table(arguments.files, results, limited);
    }
}

/// Declares an option whose text `parse` turns into `target`; what it throws is a usage error.
template <class Target, class Parse>
void add_parsed(CLI::App& command, const std::string& name, Target& target, Parse parse,
                const std::string& type, const std::string& text) {
    const auto read = [name, &target, parse](const std::string& value) {
        try {
            target = parse(value);
        } catch (const InvalidArgument& error) {
            throw CLI::ValidationError(name, error.what());
        }
    };
    command.add_option_function<std::string>(name, read, text)->type_name(type);
}

}  // namespace

void add_replay(CLI::App& app) {
    CLI::App& command = *app.add_subcommand(
        "replay", "Show what pools with these options would have held for a recorded program");
    const auto arguments = std::make_shared<ReplayArguments>();
    PoolOptions& pool = arguments->options.pool;

    command
        .add_option("FILE", arguments->files, "Traces: CSV event,pool,id,bytes,stream; gzip or not")
        ->required()
        ->type_name("");
    add_parsed(command, "--fit", pool.fit, parse_fit, "FIT",
               "elastic (default), exact, best, best:MAX_WASTE (a share, 0 to 1), fixed:BYTES");
    add_parsed(command, "--memory", arguments->options.memory, parse_memory, "MEMORY",
               "simulated (default), host, device, pinned or managed; device:1 for another one");
    command
        .add_option_function<std::string>(
            "--max-bytes",
            [arguments](const std::string& text) {
                try {
                    parse_max_bytes(text, arguments->options);
                } catch (const InvalidArgument& error) {
                    throw CLI::ValidationError("--max-bytes", error.what());
                }
            },
            "Most bytes lent and idle, per pool (default unlimited); 1.1x: times the trace's peak")
        ->type_name("BYTES");
    add_parsed(command, "--max-idle-bytes", pool.max_idle_bytes, parse_bytes, "BYTES",
               fmt::format("Most bytes kept idle, per pool (default here {})",
                           text_of_bytes(pool.max_idle_bytes)));
    add_parsed(
        command, "--max-idle-buffers", pool.max_idle_buffers,
        [](std::string_view text) { return parse_count(text); }, "N",
        "Most buffers kept idle, per pool (default unlimited)");
    add_parsed(command, "--evict", pool.evict, parse_evict, "ORDER",
               "What a limit throws out first: oldest (default), smallest, largest");
    add_parsed(
        command, "--repeat", arguments->options.repeat,
        [](std::string_view text) { return parse_count(text, 1); }, "N",
        "Play each trace N times in the same pools (default 1)");
    command.add_flag("--json", arguments->json,
                     "Print JSON: an object, or an array if there are several files");
    command.footer(
        "Runs the real pool on a memory that owns no bytes, so that traces larger than this\n"
        "machine can be played, or on a real one, whose bytes are not touched. Each pool of a\n"
        "trace is a pool here; peaks are of the sum over pools. BYTES may end in KiB, MiB, GiB\n"
        "or TiB.\n\n"
        "A trace has a header and a row for each event, in time order; an id is used once:\n"
        "  event,pool,id,bytes,stream\n"
        "  a,fluid,0,636800,0          acquires\n"
        "  r,fluid,0,636800,0          releases, repeating what was acquired\n\n"
        "Examples:\n"
        "  cistern replay trace.csv.gz\n"
        "  cistern replay --fit best:0.1 --max-idle-bytes 512MiB --json trace.csv\n"
        "  cistern replay --repeat 100 step.csv.gz other_step.csv.gz");
    command.callback([arguments] { run_replay(*arguments); });
}

}  // namespace cistern::cli
