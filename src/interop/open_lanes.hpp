#pragma once
// Lending in stream order to callers that hold no StreamPool.

#include <cstddef>

#include "cistern/buffer.hpp"
#include "cistern/pool.hpp"

namespace cistern::detail {

/// Lends in the order of a stream that nobody vouches for: it may be destroyed at any time. Throws as
/// Pool::on and Pool::acquire.
Buffer acquire_on_any(const Pool& pool, std::size_t bytes, void* stream);

/// From here on work on this stream uses the buffer: it waits for what the buffer's own was given before, and
/// the buffer is lent again only after it. Throws InvalidArgument, DeviceError.
void hand_over(Buffer& buffer, void* stream);

}  // namespace cistern::detail
