#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace bench {

Progress::Progress(std::size_t cases) : terminal_(isatty(STDERR_FILENO) == 1), cases_(cases) {}

void Progress::start_group(const std::string& title) {
    if (!terminal_) fmt::print(stderr, "{}/{} {}\n", done_ + 1, cases_, title);
}

void Progress::start_case(const std::string& label) {
    label_ = label;
    ++done_;
}

void Progress::step(const std::string& what) {
    if (!terminal_) return;
    // Not wider than a small terminal: a line that wraps cannot be taken back.
    fmt::print(stderr, "\r\033[K{:.78}", fmt::format("{}/{} {}: {}", done_, cases_, label_, what));
    std::fflush(stderr);
    shown_ = true;
}

void Progress::clear() {
    if (!shown_) return;
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
    shown_ = false;
}

}  // namespace bench
