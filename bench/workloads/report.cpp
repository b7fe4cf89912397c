#include "report.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

namespace cistern::workloads {

nlohmann::ordered_json json_of(const Workload& workload, Store store, Scale scale,
                               const Report& report) {
    nlohmann::ordered_json json{{"workload", workload.name},
                                {"store", name_of(store)},
                                {"scale", name_of(scale)},
                                {"steps", report.steps},
                                {"seconds", report.seconds},
                                {"page_faults", report.page_faults},
                                {"peak_held_bytes", report.peak_held_bytes},
                                {"peak_live_bytes", report.peak_live_bytes},
                                {"requests", report.requests},
                                {"hits", nullptr},
                                {"checksum", report.checksum}};
    if (report.hits) json["hits"] = *report.hits;
    return json;
}

std::string output_of_self(std::vector<std::string> arguments, const std::string& what) {
    // Otherwise its threads, though never used, spin for a while on cores that a run needs.
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    arguments.insert(arguments.begin(), "self");
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);

    std::array<int, 2> ends = {};
    if (pipe(ends.data()) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    pid_t child = 0;
    const int error =
        posix_spawn(&child, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    std::string output;
    if (error == 0) {
        std::array<char, 4096> part = {};
        for (ssize_t n = 0; (n = read(ends[0], part.data(), part.size())) > 0;) {
            output.append(part.data(), static_cast<std::size_t>(n));
        }
    }
    close(ends[0]);
    if (error != 0) throw std::system_error(error, std::generic_category(), "posix_spawn");
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        throw std::runtime_error(what + " failed (status " + std::to_string(status) + ")");
    }
    return output;
}

}  // namespace cistern::workloads
