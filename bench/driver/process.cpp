// Two pipes and a child. The child ends when its standard input does.

#include "process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace bench {
namespace {

std::vector<std::string> environment_with(const Process::Environment& added) {
    std::vector<std::string> all;
    for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
    for (const auto& [name, value] : added) {
        const std::string start = name + '=';
        std::erase_if(all, [&](const std::string& old) { return old.starts_with(start); });
        all.push_back(start + value);
    }
    return all;
}

}  // namespace

Process::Process(const std::string& program, const std::string& argument, const Environment& added,
                 bool silent) {
    std::signal(SIGPIPE, SIG_IGN);
    std::array<int, 2> in{}, out{};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) {
        throw std::runtime_error("no pipe");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    if (silent) {
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    }

    std::vector<std::string> words{program, argument}, variables = environment_with(added);
    std::vector<char*> argv, envp;
    for (std::string& word : words) argv.push_back(word.data());
    for (std::string& variable : variables) envp.push_back(variable.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    const int error =
        posix_spawn(&id_, program.c_str(), &actions, nullptr, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    if (error != 0) throw std::runtime_error(program + ": " + std::strerror(error));
    requests_ = fdopen(in[1], "w");
    answers_ = fdopen(out[0], "r");
}

Process::~Process() {
    if (requests_ != nullptr) std::fclose(requests_);
    if (answers_ != nullptr) std::fclose(answers_);
    if (id_ > 0) waitpid(id_, nullptr, 0);
}

nlohmann::json Process::ask(const nlohmann::json& request) {
    if (id_ <= 0) throw WorkerDied("is gone");
    const std::string line = request.dump() + '\n';
    std::fputs(line.c_str(), requests_);
    std::fflush(requests_);
    char* answer = nullptr;
    std::size_t room = 0;
    const ssize_t bytes = getline(&answer, &room, answers_);
    const std::string text(answer == nullptr ? "" : answer);
    std::free(answer);
    if (bytes <= 0) throw WorkerDied(reason());
    return nlohmann::json::parse(text);
}

std::string Process::reason() {
    int status = 0;
    waitpid(std::exchange(id_, -1), &status, 0);
    if (WIFSIGNALED(status)) return std::string("died: ") + strsignal(WTERMSIG(status));
    return "ended with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace bench
