#pragma once
// A pool in the order of a CUDA stream.
//
//     Pool pool{Memory::device()};
//     StreamPool ordered = pool.on(stream);              // a cudaStream_t or CUstream
//     auto u = ordered.array<float>(ny, nx);
//     kernel<<<grid, block, 0, stream>>>(u.data());
//                                                        // u goes back when the scope ends: the kernel
//                                                        // may still run, what comes after it waits
//
// What a stream gives back, the same stream gets again without any synchronisation: its work runs in
// order. Another stream gets it only when it would otherwise ask the memory for more, and then waits for
// one event; the host waits only when bytes go back to the driver.
//
// - A StreamPool has to be gone before its stream is destroyed. Buffers may be released later.
// - A buffer that other streams work with too needs also_used_on() before it is released; such a stream has
//   to exist until then.
// - While a stream is being captured into a graph, `on(stream)` lends memory that stays the graph's until
//   the graph and all its instances are gone. Call it after the capture has begun.
// - Without a stream, a pool on device memory lends in the order of the legacy default stream.
// - Page-locked memory is written by the host at once, so there `on(stream)` marks buffers as used on
//   that stream, and lends them again once its work is done.
//
// Copies share one lane of the pool. Thread-safe, except that the per-thread default stream belongs to
// its thread.

#include <memory>

#include "cistern/pool.hpp"

namespace [[gnu::visibility("default")]] cistern {

/// A CUDA stream: cudaStream_t, CUstream, null or one of the default streams. Not owned.
class Stream {
public:
    Stream(void* handle) noexcept : handle_(handle) {}  // NOLINT(google-explicit-constructor)
    [[nodiscard]] void* handle() const noexcept { return handle_; }

    friend bool operator==(Stream, Stream) = default;

private:
    void* handle_;
};

/// The verbs of a pool in a stream's order.
class StreamPool : public Lender {
public:
    [[nodiscard]] const Pool& pool() const noexcept { return pool_; }
    [[nodiscard]] Stream stream() const noexcept;

private:
    friend class Pool;
    StreamPool(const Pool& pool, std::shared_ptr<detail::CoreFront> lane);

    Pool pool_;
    std::shared_ptr<detail::CoreFront> lane_;
};

/// Says that work on this stream uses a buffer too: its bytes are lent again only when that work, as far
/// as it was launched before the release, is done. Throws InvalidArgument for an empty buffer or for a
/// memory without streams.
void also_used_on(Buffer& buffer, Stream stream);

}  // namespace cistern
