#pragma once
// Four programs that ask for arrays as real ones do, each on three stores: Cistern, plain malloc, and
// the rule of the project that the program comes from. The arithmetic does not depend on the store.
//
//     const Workload& cells = find("cells");
//     Report report = cells.run(Store::cistern, Scale::small, {.steps = 2});
//
// A run measures its whole process (page faults, peak memory), so give each a process of its own.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

namespace cistern::workloads {

enum class Store { cistern, malloc, seed };
enum class Scale { small, medium, recorded };  // for tests; for the demo; the real sizes

/// A run ends after these steps or seconds, whichever comes first, but not within a step.
struct Budget {
    std::uint64_t steps = 1;
    double seconds = std::numeric_limits<double>::infinity();
};

struct Report {
    std::uint64_t steps = 0;
    double seconds = 0;
    double checksum = 0;  // equal for all stores after equally many steps
    std::uint64_t page_faults = 0;
    std::uint64_t peak_held_bytes = 0;  // what the process grew by: peak RSS minus RSS at the start
    std::uint64_t peak_live_bytes = 0;  // what the program had asked for and not given back
    std::uint64_t requests = 0;
    std::optional<std::uint64_t> hits;  // requests served from idle bytes; malloc does not say
};

struct Workload {
    std::string_view name;
    std::string_view what;  // one line
    std::string_view seed;  // the rule of the project that it comes from, one line
    Report (*run)(Store store, Scale scale, const Budget& budget);
};

std::span<const Workload> all();
/// Throws InvalidArgument, naming those that exist.
const Workload& find(std::string_view name);

std::string_view name_of(Store store);
std::string_view name_of(Scale scale);
/// Throw InvalidArgument, naming those that exist.
Store store_named(std::string_view name);
Scale scale_named(std::string_view name);

}  // namespace cistern::workloads
