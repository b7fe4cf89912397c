#pragma once
// Which captures go on. To mark or to wait for all work of a context ends every capture in it, and the driver cannot
// be asked whether there is one; nor can a stream that may be gone. So a stream of our own joins each capture that
// uses a pool and adds nothing to it: it belongs to that capture until its end, and can be asked at any time.

#include <atomic>

#include "memory/cuda_driver.hpp"

namespace cistern::cuda {

/// What the driver says of a stream's capture; status 0: none.
struct Capture {
    int status = 0;
    unsigned long long id = 0;
    Graph graph = nullptr;
};
Result ask(const Driver& driver, Stream stream, Capture& capture) noexcept;

/// The captures of one device's streams that are known. Never destroyed, nor are its own streams.
class Captures {
public:
    static Captures& of(const DeviceContext& device);

    explicit Captures(const DeviceContext& device) noexcept : device_(device) {}
    /// Remembers the capture that a stream is part of. It stays unknown if the driver refuses.
    void watch(Stream captured, unsigned long long id) noexcept;
    /// Whether one that was remembered goes on.
    [[nodiscard]] bool goes_on(unsigned long long id) noexcept;
    /// Whether a blocking stream is captured. That the driver tells, and work on the legacy stream would end it.
    [[nodiscard]] bool blocking() const noexcept;
    /// Whether that or a capture that was remembered goes on.
    [[nodiscard]] bool any() noexcept;
    /// Waits for all work of the device; false, without waiting, while a capture goes on.
    [[nodiscard]] bool wait_for_all() noexcept;

private:
    struct Watcher {
        Stream stream = nullptr;
        Event event = nullptr;
        // The capture it has joined. From who had it join, or saw its end, to who asks or takes it: the stream's state.
        std::atomic<unsigned long long> capture{0};
        Watcher* next = nullptr;
    };
    [[nodiscard]] Watcher* first() const noexcept {
        return watchers_.load(std::memory_order_acquire);
    }
    bool goes_on(Watcher& watcher) noexcept;
    Watcher* take() noexcept;
    Watcher* make() noexcept;

    const DeviceContext& device_;
    std::atomic<Watcher*> watchers_{nullptr};  // publishes what a new one points to
};

}  // namespace cistern::cuda
