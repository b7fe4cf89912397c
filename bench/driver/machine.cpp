#include "machine.hpp"

#include <sched.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace bench {
namespace {

/// Returns what follows `name` and a colon in a file of such lines.
std::string value_of(const char* path, const std::string& name) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(':');
        if (!line.starts_with(name) || colon == std::string::npos) continue;
        const std::size_t start = line.find_first_not_of(" \t", colon + 1);
        return start == std::string::npos ? "" : line.substr(start);
    }
    return "";
}

std::string first_line(const char* path) {
    std::string line;
    std::getline(std::ifstream(path) >> std::ws, line);
    return line;
}

std::size_t kibibytes_of(const std::string& name) {
    return std::strtoull(value_of("/proc/meminfo", name).c_str(), nullptr, 10) * 1024;
}

int usable_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

}  // namespace

nlohmann::json machine_facts() {
    utsname system{};
    uname(&system);
    return {{"cpu", value_of("/proc/cpuinfo", "model name")},
            {"cores", usable_cores()},
            {"memory_bytes", kibibytes_of("MemTotal")},
            {"kernel", system.release},
            {"architecture", system.machine},
            {"transparent_hugepage", first_line("/sys/kernel/mm/transparent_hugepage/enabled")},
            {"compiler", __VERSION__}};
}

std::size_t available_memory() { return kibibytes_of("MemAvailable"); }

bool machine_is_busy() {
    double load = 0;
    std::size_t running = 0;  // this program is one of them
    std::ifstream("/proc/loadavg") >> load >> load >> load >> running;
    return running > 1;
}

}  // namespace bench
