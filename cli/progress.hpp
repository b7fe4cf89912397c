#pragma once
// A progress bar on stderr where that is a terminal; nothing otherwise.
//
//     Progress progress;
//     progress.show("replaying", 0.25);      // the line goes away with `progress`

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace cistern::cli {

class Progress {
public:
    Progress() : visible_(isatty(STDERR_FILENO) == 1) {}
    ~Progress() { clear(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// Shows how much is done, `fraction` from 0 to 1; at most ten times a second unless the label
    /// changes.
    void show(std::string_view label, double fraction) {
        if (!visible_) return;
        const auto now = std::chrono::steady_clock::now();
        if (label == label_ && now - shown_ < std::chrono::milliseconds(100)) return;
        shown_ = now;
        label_ = label;
        constexpr double width = 30;
        const double clamped = std::clamp(fraction, 0.0, 1.0);
        const std::string bar(static_cast<std::size_t>(clamped * width), '#');
        fmt::print(stderr, "\r\033[K[{:<30}] {:3.0f} %  {}", bar, clamped * 100, label);
        std::fflush(stderr);
    }

    void clear() {
        if (label_.empty()) return;
        fmt::print(stderr, "\r\033[K");
        std::fflush(stderr);
        label_.clear();
    }

private:
    bool visible_;
    std::string label_;
    std::chrono::steady_clock::time_point shown_;
};

}  // namespace cistern::cli
