#pragma once
// Two threads on two cores that start together.

#include <atomic>
#include <functional>
#include <thread>

namespace bench {

/// Puts the calling thread on the last core this process may use, or on the one before it.
void pin_main_thread();
void pin_partner_thread();
int usable_cores();

/// A second thread on a second core. Asleep between jobs, so that it disturbs nothing. Throws
/// Skipped where there is only one core.
class Partner {
public:
    Partner();
    ~Partner();
    Partner(const Partner&) = delete;
    Partner& operator=(const Partner&) = delete;

    /// Runs `theirs` on the second thread and `ours` on this one, starting together. Returns the ns
    /// until both are done.
    double run(std::function<void()> theirs, const std::function<void()>& ours);

private:
    enum class Stage { asleep, woken, spinning, going, done, leaving };
    void serve();
    void await(Stage stage) const;

    std::atomic<Stage> stage_{Stage::asleep};
    std::function<void()> job_;
    std::thread thread_;
};

}  // namespace bench
