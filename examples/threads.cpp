// A buffer acquired on one thread and released on another comes back to the first.

#include <cistern/pool.hpp>
#include <deque>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

/// A queue of frames between two threads; an empty optional ends it.
class Frames {
public:
    void push(std::optional<cistern::Buffer> frame) {
        const std::scoped_lock hold(lock_);
        frames_.push_back(std::move(frame));
    }
    bool pop(std::optional<cistern::Buffer>& frame) {
        const std::scoped_lock hold(lock_);
        if (frames_.empty()) return false;
        frame = std::move(frames_.front());
        frames_.pop_front();
        return true;
    }

private:
    std::mutex lock_;
    std::deque<std::optional<cistern::Buffer>> frames_;
};

int main() {
    cistern::Pool pool{cistern::Memory::host(), {.max_bytes = 64 << 20}};
    Frames frames;
    std::thread consumer([&frames] {
        for (std::optional<cistern::Buffer> frame;;) {
            if (!frames.pop(frame)) {
                std::this_thread::yield();
            } else if (!frame) {
                return;
            } else {
                frame.reset();  // released here, by a thread that did not acquire it
            }
        }
    });
    for (int sent = 0; sent < 1000;) {
        cistern::Buffer frame = pool.try_acquire(1 << 20);
        if (frame.empty()) {  // 64 MiB are under way: let the consumer catch up
            std::this_thread::yield();
            continue;
        }
        *static_cast<char*>(frame.data()) = 'x';
        frames.push(std::move(frame));
        ++sent;
    }
    frames.push(std::nullopt);
    consumer.join();

    const cistern::PoolStats stats = pool.stats();
    std::cout << "acquired " << stats.acquires << ", released " << stats.releases << ", at most "
              << (stats.held_bytes.peak <= (64 << 20) ? "64 MiB" : "too much") << " held\n";
}
