#pragma once
// A mutex for sections that are short but for rare system calls: waits a moment before it sleeps,
// since waking up costs more than most of what it guards.

#include <atomic>

namespace cistern {

/// Tells the processor that this thread waits for another.
#if defined(__x86_64__)
inline void spin_wait() noexcept { __builtin_ia32_pause(); }
#else
inline void spin_wait() noexcept {}
#endif

// Only read while it is taken, and the less often the longer that lasts: each look takes the line from who has the lock,
// who then waits for it to come back. For the same reason a lock is best alone on its line. Two threads that did little
// else took more than twice as long with a look at every pause, on a line with what the lock guards. It is not fair: who
// comes back at once is often quicker than who waits.
class ShortLock {
public:
    void lock() noexcept {
        if (!try_lock()) [[unlikely]]
            wait();
    }
    bool try_lock() noexcept {
        int found = vacant;
        // Relaxed: only whether it is worth a try.
        if (state_.load(std::memory_order_relaxed) != vacant) return false;
        // Acquire: pairs with unlock(), whose thread's work is seen.
        return state_.compare_exchange_strong(found, taken, std::memory_order_acquire,
                                              std::memory_order_relaxed);
    }
    void unlock() noexcept {
        // Release: pairs with whoever takes it next, and may be gone before the waking: that uses the address only.
        if (state_.exchange(vacant, std::memory_order_release) == taken_and_awaited) [[unlikely]]
            wake();
    }

private:
    [[gnu::noinline]] void wait() noexcept {
        constexpr int looks = 12, most_pauses = 32;
        int pauses = 1;
        for (int look = 0; look < looks; ++look) {
            for (int i = 0; i < pauses; ++i) spin_wait();
            if (try_lock()) return;
            if (pauses < most_pauses) pauses *= 2;
        }
        // Acquire: as in try_lock(). Whoever was asleep says so for the others that may be.
        while (state_.exchange(taken_and_awaited, std::memory_order_acquire) != vacant) {
            state_.wait(taken_and_awaited, std::memory_order_relaxed);  // the exchange orders
        }
    }
    [[gnu::noinline]] void wake() noexcept { state_.notify_one(); }

    static constexpr int vacant = 0, taken = 1, taken_and_awaited = 2;
    std::atomic<int> state_{vacant};
};

}  // namespace cistern
