#pragma once
// Runs a piece of a test in a forked child and says how it ended.

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace cistern::test {

/// How a child ended: its exit code, or what killed it.
struct Ending {
    bool exited = false, timed_out = false;
    int code = 0;  // the exit code, or the signal
};

/// Forks, runs `body` in the child, which ends with _exit(body()), and waits at most 20 seconds.
template <class Body>
Ending in_child(Body&& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > deadline) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return {.exited = false, .timed_out = true, .code = SIGKILL};
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (WIFEXITED(status)) return {.exited = true, .timed_out = false, .code = WEXITSTATUS(status)};
    return {.exited = false, .timed_out = false, .code = WTERMSIG(status)};
}

}  // namespace cistern::test
