#pragma once
// A few threads that share out tasks and wait for each other, as an OpenMP loop would.

#include <atomic>
#include <barrier>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace cistern::cli {

class Team {
public:
    /// Starts `threads` - 1 threads; the caller of for_each is the last one.
    explicit Team(std::size_t threads)
        : begin_(static_cast<std::ptrdiff_t>(threads)), end_(static_cast<std::ptrdiff_t>(threads)) {
        for (std::size_t i = 1; i < threads; ++i) {
            threads_.emplace_back([this] { serve(); });
        }
    }
    ~Team() {
        task_ = nullptr;
        begin_.arrive_and_wait();
    }
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    /// Calls `task(0)` to `task(count - 1)`, each once, and returns when all are done. A task that
    /// throws ends the process.
    void for_each(std::size_t count, std::function<void(std::size_t)> task) {
        task_ = std::move(task);
        count_ = count;
        next_ = 0;
        begin_.arrive_and_wait();
        work();
        end_.arrive_and_wait();
    }

private:
    void serve() {
        for (;;) {
            begin_.arrive_and_wait();
            if (!task_) return;
            work();
            end_.arrive_and_wait();
        }
    }
    void work() noexcept {
        for (std::size_t i = next_++; i < count_; i = next_++) task_(i);
    }

    std::barrier<> begin_, end_;
    std::function<void(std::size_t)> task_;
    std::size_t count_ = 0;
    std::atomic<std::size_t> next_{0};
    std::vector<std::jthread> threads_;  // last: they end before what they use
};

}  // namespace cistern::cli
