#pragma once
// A mutex for sections that are short but for rare system calls: waits a moment before it sleeps,
// since waking up costs more than most of what it guards.

#include <mutex>

namespace cistern {

class ShortLock {
public:
    void lock() noexcept {
        constexpr int tries = 200;
        for (int i = 0; i < tries; ++i) {
            if (mutex_.try_lock()) return;
            pause();
        }
        mutex_.lock();
    }
    bool try_lock() noexcept { return mutex_.try_lock(); }
    void unlock() noexcept { mutex_.unlock(); }

private:
    static void pause() noexcept {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    std::mutex mutex_;
};

}  // namespace cistern
