#pragma once
// The subcommands, one file each. `add_NAME` declares the options and what runs when it is chosen;
// a command reports failure by throwing, and main() turns that into a message and an exit code.

#include <CLI/CLI.hpp>

namespace cistern::cli {

void add_demo(CLI::App& app);
void add_demo_run(CLI::App& app);
void add_replay(CLI::App& app);

}  // namespace cistern::cli
