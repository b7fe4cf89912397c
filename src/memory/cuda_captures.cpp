#include "memory/cuda_captures.hpp"

#include <map>
#include <mutex>
#include <new>

namespace cistern::cuda {

namespace {

constexpr unsigned long long nothing = 0, joining = ~0ull;  // no capture has these numbers

}  // namespace

Result ask(const Driver& driver, Stream stream, Capture& capture) noexcept {
    const void* nodes = nullptr;
    std::size_t count = 0;
    return driver.capture_info(stream, &capture.status, &capture.id, &capture.graph, &nodes,
                               &count);
}

Captures& Captures::of(const DeviceContext& device) {
    static std::mutex lock;
    static auto* const all = new std::map<const DeviceContext*, Captures>;
    const std::scoped_lock hold(lock);
    return all->try_emplace(&device, device).first->second;
}

void Captures::watch(Stream captured, unsigned long long id) noexcept {
    for (const Watcher* w = first(); w != nullptr; w = w->next) {
        if (w->capture.load(std::memory_order_acquire) == id) return;
    }
    Watcher* const watcher = take();
    if (watcher == nullptr) return;
    const Entered entered(device_);
    const Driver& driver = device_.driver();
    const bool joined = driver.record_event(watcher->event, captured) == success &&
                        driver.stream_wait(watcher->stream, watcher->event, 0) == success;
    watcher->capture.store(joined ? id : nothing, std::memory_order_release);
}

bool Captures::goes_on(unsigned long long id) noexcept {
    const Entered entered(device_);
    for (const Watcher* w = first(); w != nullptr; w = w->next) {
        if (w->capture.load(std::memory_order_acquire) != id) continue;
        Capture capture;  // meanwhile it may be another one's
        const Result result = ask(device_.driver(), w->stream, capture);
        if (result == success && capture.status != 0 && capture.id == id) return true;
    }
    return false;
}

bool Captures::blocking() const noexcept {
    const Entered entered(device_);
    Capture none;
    return ask(device_.driver(), legacy_stream(), none) == error_capture_implicit;
}

bool Captures::any() noexcept {
    if (blocking()) return true;
    for (Watcher* w = first(); w != nullptr; w = w->next) {
        if (goes_on(*w)) return true;
    }
    return false;
}

bool Captures::goes_on(Watcher& watcher) noexcept {
    unsigned long long id = watcher.capture.load(std::memory_order_acquire);
    for (;;) {
        if (id == nothing || id == joining) return id == joining;
        const Entered entered(device_);
        Capture capture;
        const Result result = ask(device_.driver(), watcher.stream, capture);
        if (result == success && capture.status != 0) return true;
        // Over, unless another has seen that too, and the watcher has joined the next one.
        if (watcher.capture.compare_exchange_strong(id, nothing, std::memory_order_acq_rel)) {
            return false;
        }
    }
}

bool Captures::wait_for_all() noexcept {
    if (any()) return false;
    const Entered entered(device_);
    return !is_of_a_capture(device_.driver().synchronize());  // one that nobody knew of
}

/// Returns a watcher that the caller alone may have join a capture, or null if none can be had.
Captures::Watcher* Captures::take() noexcept {
    for (Watcher* w = first(); w != nullptr; w = w->next) {
        unsigned long long id = nothing;
        if (goes_on(*w)) continue;
        if (w->capture.compare_exchange_strong(id, joining, std::memory_order_acq_rel)) return w;
    }
    return make();
}

Captures::Watcher* Captures::make() noexcept {
    auto* const watcher = new (std::nothrow) Watcher;
    if (watcher == nullptr) return nullptr;
    const Entered entered(device_);
    const Driver& driver = device_.driver();
    if (driver.create_event(&watcher->event, event_without_timing) != success) {
        delete watcher;
        return nullptr;
    }
    if (driver.create_stream(&watcher->stream, stream_non_blocking) != success) {
        driver.destroy_event(watcher->event);
        delete watcher;
        return nullptr;
    }
    watcher->capture.store(joining, std::memory_order_relaxed);  // published with the list
    watcher->next = watchers_.load(std::memory_order_relaxed);
    while (!watchers_.compare_exchange_weak(watcher->next, watcher, std::memory_order_acq_rel)) {
    }
    return watcher;
}

}  // namespace cistern::cuda
