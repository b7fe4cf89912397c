// The forked process answers through a pipe and ends without running destructors or exit handlers.

#include "cases/fresh.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace bench {

double in_fork(double (*measure)(std::size_t bytes), std::size_t bytes) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("no process");
    if (child == 0) {
        const double ns = measure(bytes);
        _exit(write(ends[1], &ns, sizeof ns) == sizeof ns ? 0 : 1);
    }
    close(ends[1]);
    double ns = 0;
    const bool answered = read(ends[0], &ns, sizeof ns) == sizeof ns;
    close(ends[0]);
    waitpid(child, nullptr, 0);
    if (!answered) throw std::runtime_error("the forked process failed");
    return ns;
}

}  // namespace bench
