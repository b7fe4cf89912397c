#pragma once
// Every function of the stand-in starts with call(): it counts, fails where a test asked for it, and
// refuses what the real driver refuses before it looks at the arguments.

#include "memory/cuda_driver.hpp"

#define STAND_IN_EXPORT extern "C" __attribute__((visibility("default")))

namespace stand_in {

using namespace cistern::cuda;

enum : Result {
    invalid_value = 1,
    not_initialized = 3,
    invalid_device = 101,
    invalid_context = 201,
    operating_system = 304,
    invalid_handle = 400,
    illegal_state = 401,
    illegal_address = 700,
    already_registered = 712,
    not_registered = 713,
    not_permitted = 800,
    not_supported = 801,
    capture_unsupported = 900,
    capture_invalidated = 901,
    capture_merge = 902,
    capture_unmatched = 903,
    capture_unjoined = 904,
    capture_isolation = 905,
    capture_implicit = 906,
    captured_event = 907,
    capture_wrong_thread = 908,
};

/// What a function needs; sums of these.
enum Needs : unsigned {
    nothing = 0,
    start = 1,             // cuInit() was called
    device = 2 + start,    // and no kernel has poisoned it
    context = 4 + device,  // and the thread has a current context
    no_capture = 8,        // it might wait for, or disturb, work that is being captured
};

Result enter(const char* function, unsigned needs);

/// As a real driver does: who has filled a stream's queue waits, or a thread that launches without end would fill the
/// memory, and whoever waits for its streams would never see the end.
void wait_for_room();

template <class Body>
Result call(const char* function, unsigned needs, Body body) {
    if (const Result refused = enter(function, needs); refused != success) return refused;
    const Result result = body();
    wait_for_room();
    return result;
}

void poison() noexcept;
bool is_poisoned() noexcept;
void initialize() noexcept;

/// Says that this thread runs a user's function, which must not call the driver, while it lives.
class InCallback {
public:
    InCallback() noexcept;
    InCallback(const InCallback&) = delete;
    InCallback& operator=(const InCallback&) = delete;
    ~InCallback();
};

/// Returns a number from the environment.
unsigned long long environment(const char* name, unsigned long long otherwise);

[[noreturn]] void stop(const char* why);

// context.cpp
int device_count() noexcept;
Context current_context() noexcept;
int ordinal_of(Context context) noexcept;
Context context_of(int ordinal) noexcept;
void set_attribute(int attribute, int value);

// memory.cpp
std::size_t bytes_in_use(int device);
std::size_t managed_bytes();
std::size_t total_bytes(int device);
void set_total_bytes(int device, std::size_t bytes);
std::size_t handle_count();
std::size_t range_count();

// streams.cpp
void set_reuse_streams(bool reuse);

// graphs.cpp
/// Whether some capture forbids this thread what might disturb it; if so, that capture is invalid.
bool disturbs_a_capture();

}  // namespace stand_in
