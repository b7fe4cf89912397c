#pragma once
// What the benchmark asks of the driver beside Cistern: streams, kernels, its own allocators.

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace bench {

/// Ends the program, naming the call, unless the result is success.
void check(const char* call, CUresult result);
#define BENCH_CHECK(call) ::bench::check(#call, call)

/// The first device, its primary context current on the calling thread.
class Device {
public:
    Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    ~Device();

    /// Makes the context current on another thread.
    void enter() const;
    [[nodiscard]] std::string name() const;

    /// Launches: writes `value` to `words` words; counts those that differ from it in errors().
    void fill(CUstream stream, void* data, std::size_t words, std::uint32_t value) const;
    void compare(CUstream stream, void* data, std::size_t words, std::uint32_t value) const;
    /// Returns how many words differed, once all work is done.
    [[nodiscard]] std::uint64_t errors() const;

private:
    CUdevice device_ = 0;
    CUcontext context_ = nullptr;
    CUmodule module_ = nullptr;
    CUfunction fill_ = nullptr, compare_ = nullptr;
    CUdeviceptr errors_ = 0;
};

class StreamOf {
public:
    StreamOf() { BENCH_CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING)); }
    StreamOf(const StreamOf&) = delete;
    StreamOf& operator=(const StreamOf&) = delete;
    ~StreamOf() { cuStreamDestroy(stream_); }
    [[nodiscard]] CUstream get() const noexcept { return stream_; }

private:
    CUstream stream_ = nullptr;
};

}  // namespace bench
