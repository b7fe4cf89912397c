#pragma once
// File descriptors of this process, and pairs of sockets.

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "cistern/ipc.hpp"

namespace cistern::test {

inline std::size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

inline std::pair<FileDescriptor, FileDescriptor> socket_pair(int type = SOCK_STREAM) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        throw std::runtime_error("there are no sockets");
    }
    return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

}  // namespace cistern::test
