#pragma once
// Who takes part. Each contestant is a worker process with its own allocator and settings.

#include <string>
#include <utility>
#include <vector>

namespace bench {

struct Contestant {
    std::string name;                         // as plans and tables call it
    std::string source;                       // what the worker measures (worker/main.cpp)
    std::string worker = "shared";            // linked to the shared or the static library
    std::vector<std::string> libraries = {};  // preloaded: the first of these that is installed
    std::vector<std::pair<std::string, std::string>> environment = {};
    std::string settings = {};  // what was tuned, for people
    [[nodiscard]] bool is_cistern() const { return source.starts_with("cistern"); }
    [[nodiscard]] bool is_peer() const { return !is_cistern() && source != "floor"; }
};

/// Returns everybody, in the order tables show them.
const std::vector<Contestant>& contestants();
const Contestant& contestant(const std::string& name);

}  // namespace bench
