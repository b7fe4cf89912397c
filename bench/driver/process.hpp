#pragma once
// A worker process: asked one line of JSON, it answers one.

#include <sys/types.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// The worker ended without an answer.
class WorkerDied : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

class Process {
public:
    using Environment = std::vector<std::pair<std::string, std::string>>;

    /// Starts `program argument` with these variables set besides ours. `silent`: what it says on
    /// standard error is dropped. Throws std::runtime_error.
    Process(const std::string& program, const std::string& argument, const Environment& added,
            bool silent);
    ~Process();
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    /// Throws WorkerDied, saying how.
    nlohmann::json ask(const nlohmann::json& request);

private:
    std::string reason();

    pid_t id_ = -1;
    std::FILE* requests_ = nullptr;
    std::FILE* answers_ = nullptr;
};

}  // namespace bench
