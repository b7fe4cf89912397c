#pragma once
// What tests see of the stand-in for the CUDA driver, and how they break it. The library exports one
// function, `cistern_test_cuda_control`, which returns this table.
//
// The environment says what machine it is, read when the library is loaded:
//   TEST_CUDA_DEVICES         how many devices, 2 unless told
//   TEST_CUDA_VERSION         of the driver, 13000
//   TEST_CUDA_BYTES           of memory on each device, 1 GiB
//   TEST_CUDA_DELAY_US        the longest random delay before a piece of work, 200
//   TEST_CUDA_HIDDEN          how many devices of the machine come before the first visible one, 0
//   TEST_CUDA_REUSE_STREAMS   1: a new stream gets the handle of one destroyed before
//   TEST_CUDA_DISGUISED       1: tests take it for a real driver, and may not call the function below

#include <cstddef>

namespace cistern::test {

struct DriverControl {
    /// Returns how often a function was called, by its symbol's name.
    unsigned long long (*calls)(const char* function);
    /// Lets the `nth` next call of a function (1 is the next one), and the `times` − 1 after it, fail.
    void (*fail)(const char* function, unsigned nth, unsigned times, int error);
    /// Takes back all that fail() asked for.
    void (*stop_failing)();
    /// Every later call that reaches a device fails with CUDA_ERROR_ILLEGAL_ADDRESS, as after a
    /// kernel that wrote where it must not. There is no way back.
    void (*poison)();
    /// Returns what is allocated on a device: created or mapped handles and plain allocations.
    std::size_t (*bytes_in_use)(int device);
    /// Returns what is allocated as managed memory, which no device's limit counts.
    std::size_t (*managed_bytes)();
    /// Changes a device's memory; what is in use stays.
    void (*set_total_bytes)(int device, std::size_t bytes);
    /// Changes an attribute of all devices.
    void (*set_attribute)(int attribute, int value);
    /// Whether a new stream gets the handle of the one destroyed last.
    void (*set_reuse_streams)(bool reuse);
    /// Calls `hook(data, function)` at the start of every call, on the calling thread; null ends it.
    void (*set_hook)(void (*hook)(void* data, const char* function), void* data);
    /// Return how many handles of physical memory, and how many reserved ranges, this process has.
    std::size_t (*handles)();
    std::size_t (*ranges)();
};

}  // namespace cistern::test
