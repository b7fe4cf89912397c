#pragma once
// A mutex for sections that are short but for rare system calls: waits a moment before it sleeps,
// since waking up costs more than most of what it guards.

#include <mutex>

namespace cistern {

/// Tells the processor that this thread waits for another.
#if defined(__x86_64__)
inline void spin_wait() noexcept { __builtin_ia32_pause(); }
#else
inline void spin_wait() noexcept {}
#endif

class ShortLock {
public:
    void lock() noexcept {
        constexpr int tries = 200;
        for (int i = 0; i < tries; ++i) {
            if (mutex_.try_lock()) return;
            spin_wait();
        }
        mutex_.lock();
    }
    bool try_lock() noexcept { return mutex_.try_lock(); }
    void unlock() noexcept { mutex_.unlock(); }

private:
    std::mutex mutex_;
};

}  // namespace cistern
