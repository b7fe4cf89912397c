#include "call.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "control.hpp"

namespace stand_in {

namespace {

struct Fault {
    std::string function;
    unsigned wait, times;  // calls to let pass, then to fail
    Result error;
};

struct Calls {
    std::mutex lock;
    std::map<std::string, unsigned long long, std::less<>> counts;
    std::vector<Fault> faults;
    void (*hook)(void* data, const char* function) = nullptr;
    void* hook_data = nullptr;
};

/// Never destroyed: threads of streams may outlive the statics.
Calls& calls() {
    static auto* const all = new Calls;
    return *all;
}

std::atomic<bool> initialized{false}, poisoned{false}, gone{false}, in_child{false};
thread_local int callbacks = 0;
thread_local bool in_hook = false;

/// Like the real driver, this one is gone once its library's statics are, and after fork().
struct End {
    End() {
        pthread_atfork(nullptr, nullptr, [] { in_child = true; });
    }
    ~End() { gone = true; }
} end;

void run_hook(const char* function) {
    void (*hook)(void*, const char*) = nullptr;
    void* data = nullptr;
    {
        const std::scoped_lock hold(calls().lock);
        hook = calls().hook;
        data = calls().hook_data;
    }
    if (hook == nullptr || in_hook) return;
    in_hook = true;
    hook(data, function);
    in_hook = false;
}

/// Counts the call; returns the error that a test wants of it.
Result count(const char* function) {
    const std::scoped_lock hold(calls().lock);
    ++calls().counts[function];
    for (Fault& fault : calls().faults) {
        if (fault.function != function) continue;
        if (fault.wait > 0) {
            --fault.wait;
        } else if (fault.times > 0) {
            --fault.times;
            return fault.error;
        }
    }
    return success;
}

}  // namespace

Result enter(const char* function, unsigned needs) {
    if (in_child) return not_initialized;
    if (gone) return error_deinitialized;
    run_hook(function);
    if (const Result wanted = count(function); wanted != success) return wanted;
    if (needs == nothing) return success;
    if (callbacks > 0) return not_permitted;
    if (!initialized) return not_initialized;
    if ((needs & device) == device && poisoned) return illegal_address;
    if ((needs & context) == context && current_context() == nullptr) return invalid_context;
    if ((needs & no_capture) != 0 && disturbs_a_capture()) return capture_unsupported;
    return success;
}

void poison() noexcept { poisoned = true; }
bool is_poisoned() noexcept { return poisoned; }
void initialize() noexcept { initialized = true; }

InCallback::InCallback() noexcept { ++callbacks; }
InCallback::~InCallback() { --callbacks; }

unsigned long long environment(const char* name, unsigned long long otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

void stop(const char* why) {
    std::fprintf(stderr, "stand-in for the CUDA driver: %s\n", why);
    std::abort();
}

namespace {

constexpr cistern::test::DriverControl control{
    .calls = [](const char* function) -> unsigned long long {
        const std::scoped_lock hold(calls().lock);
        const auto found = calls().counts.find(std::string_view(function));
        return found != calls().counts.end() ? found->second : 0;
    },
    .fail =
        [](const char* function, unsigned nth, unsigned times, int error) {
            const std::scoped_lock hold(calls().lock);
            calls().faults.push_back({function, nth - 1, times, error});
        },
    .stop_failing =
        [] {
            const std::scoped_lock hold(calls().lock);
            calls().faults.clear();
        },
    .poison = [] { poison(); },
    .bytes_in_use = [](int device) { return bytes_in_use(device); },
    .managed_bytes = [] { return managed_bytes(); },
    .set_total_bytes = [](int device, std::size_t bytes) { set_total_bytes(device, bytes); },
    .set_attribute = [](int attribute, int value) { set_attribute(attribute, value); },
    .set_reuse_streams = [](bool reuse) { set_reuse_streams(reuse); },
    .set_hook =
        [](void (*hook)(void*, const char*), void* data) {
            const std::scoped_lock hold(calls().lock);
            calls().hook = hook;
            calls().hook_data = data;
        },
    .handles = [] { return handle_count(); },
    .ranges = [] { return range_count(); },
};

}  // namespace

}  // namespace stand_in

STAND_IN_EXPORT const cistern::test::DriverControl* cistern_test_cuda_control() {
    return &stand_in::control;
}
