// Which core a thread runs on, and the second thread of the tasks that need one.

#include "cores.hpp"

#include <sched.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "clock.hpp"
#include "task.hpp"

namespace bench {
namespace {

std::vector<std::size_t> usable() {
    static const std::vector<std::size_t> cores = [] {
        cpu_set_t set;
        CPU_ZERO(&set);
        std::vector<std::size_t> found;
        if (sched_getaffinity(0, sizeof set, &set) != 0) return found;
        for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
            if (CPU_ISSET(core, &set)) found.push_back(core);
        }
        return found;
    }();
    return cores;
}

void pin_to_last_but(std::size_t others) {
    const std::vector<std::size_t> cores = usable();
    if (cores.size() <= others) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cores[cores.size() - 1 - others], &set);
    sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

void pin_main_thread() { pin_to_last_but(0); }
void pin_partner_thread() { pin_to_last_but(1); }
int usable_cores() { return static_cast<int>(usable().size()); }

Partner::Partner() {
    if (usable_cores() < 2) throw Skipped("needs two cores");
    thread_ = std::thread([this] { serve(); });
}

Partner::~Partner() {
    stage_.store(Stage::leaving, std::memory_order_release);
    stage_.notify_all();
    thread_.join();
}

double Partner::run(std::function<void()> theirs, const std::function<void()>& ours) {
    job_ = std::move(theirs);
    stage_.store(Stage::woken, std::memory_order_release);
    stage_.notify_all();
    await(Stage::spinning);
    const double start = now_ns();
    stage_.store(Stage::going, std::memory_order_release);
    ours();
    await(Stage::done);
    return now_ns() - start;
}

/// Spins: a thread that slept would come late.
void Partner::await(Stage stage) const {
    while (stage_.load(std::memory_order_acquire) != stage) {
    }
}

void Partner::serve() {
    pin_partner_thread();
    Stage seen = Stage::asleep;
    for (;;) {
        stage_.wait(seen, std::memory_order_acquire);
        seen = stage_.load(std::memory_order_acquire);
        if (seen == Stage::leaving) return;
        if (seen != Stage::woken) continue;
        stage_.store(Stage::spinning, std::memory_order_release);
        await(Stage::going);
        job_();
        stage_.store(Stage::done, std::memory_order_release);
        seen = Stage::done;
    }
}

}  // namespace bench
