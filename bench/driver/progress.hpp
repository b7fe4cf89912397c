#pragma once
// Says on standard error what is being measured: one changing line on a terminal, else one line per
// group.

#include <cstddef>
#include <string>

namespace bench {

class Progress {
public:
    explicit Progress(std::size_t cases);
    ~Progress() { clear(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void start_group(const std::string& title);
    void start_case(const std::string& label);
    void step(const std::string& what);
    /// Removes the line, so that a table can be printed.
    void clear();

private:
    bool terminal_;
    bool shown_ = false;
    std::size_t cases_, done_ = 0;
    std::string label_;
};

}  // namespace bench
