// The command `cistern`. Exit codes: 0 success, 1 failure, 2 wrong usage or bad input.

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>

#include "cistern/error.hpp"
#include "cistern/version.hpp"
#include "commands.hpp"

namespace {

constexpr int failure = 1, bad_input = 2;

int complain(int code, const char* text) noexcept {
    std::fprintf(stderr, "cistern: %s\n", text);
    return code;
}

/// Returns the commands that --help shows, for an error.
std::string command_names(const CLI::App& app) {
    std::string names;
    for (const CLI::App* command : app.get_subcommands({})) {
        if (command->get_group().empty()) continue;
        names += (names.empty() ? "" : ", ") + command->get_name();
    }
    return names;
}

/// Returns the exit code of --help and --version; throws what is wrong with the rest.
int explain_usage(CLI::App& app, const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
        return app.exit(error);  // --help, --version
    }
    const auto chosen = app.get_subcommands();
    if (chosen.empty()) {
        const auto extras = app.remaining();
        if (extras.empty()) {
            fmt::print(stderr, "{}", app.help());
            return bad_input;
        }
        const char* const kind = extras.front().starts_with('-') ? "option" : "command";
        throw cistern::InvalidArgument(fmt::format("unknown {} '{}'; the commands are: {}", kind,
                                                   extras.front(), command_names(app)));
    }
    throw cistern::InvalidArgument(
        fmt::format("{}\nTry 'cistern {} --help'.", error.what(), chosen.front()->get_name()));
}

int run(int argc, char** argv) {
    CLI::App app{"Cistern lends array memory and keeps it warm for the next borrower.", "cistern"};
    app.set_version_flag("--version", std::string("cistern ") + cistern::version());
    app.require_subcommand(1);
    app.footer(
        "Examples:\n"
        "  cistern demo                        what a pool saves on this machine\n"
        "  cistern replay trace.csv.gz         what a pool would have held for a program\n"
        "  cistern replay --help               options and more examples");
    cistern::cli::add_demo(app);
    cistern::cli::add_demo_run(app);
    cistern::cli::add_replay(app);

    try {
        app.parse(argc, argv);
        return 0;
    } catch (const CLI::ParseError& error) {
        return explain_usage(app, error);
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const int code = run(argc, argv);
        const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
        return written ? code : complain(failure, "cannot write the output");
    } catch (const cistern::InvalidArgument& error) {
        return complain(bad_input, error.what());
    } catch (const std::exception& error) {
        return complain(failure, error.what());
    }
}
