#pragma once
// Threads for tests: started together, joined at the end of scope.

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace cistern::test {

/// Runs `body(i)` on `count` threads at once and waits for all of them.
template <class Body>
void on_threads(std::size_t count, Body body) {
    std::atomic<std::size_t> ready{0};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
            ++ready;
            while (ready != count) std::this_thread::yield();
            body(i);
        });
    }
    for (std::thread& thread : threads) thread.join();
}

/// Runs a body again and again on a thread of its own until it goes out of scope.
class Meanwhile {
public:
    template <class Body>
    explicit Meanwhile(Body body)
        : thread_([this, body]() mutable {
              while (!stop_) body();
          }) {}
    Meanwhile(const Meanwhile&) = delete;
    Meanwhile& operator=(const Meanwhile&) = delete;
    ~Meanwhile() {
        stop_ = true;
        thread_.join();
    }

private:
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

}  // namespace cistern::test
