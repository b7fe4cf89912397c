#pragma once
// A memory whose bytes other processes can map.

#include <cstddef>

#include "cistern/ipc.hpp"

namespace cistern {

class Shareable {
public:
    virtual ~Shareable() = default;
    Shareable() = default;
    Shareable(const Shareable&) = delete;
    Shareable& operator=(const Shareable&) = delete;

    /// Exports bytes that are lent and stay so meanwhile. Throws as share() does.
    [[nodiscard]] virtual SharedBuffer share(const void* data, std::size_t bytes) const = 0;
};

/// The same for any memory; throws InvalidArgument for those whose bytes have no handles.
[[nodiscard]] SharedBuffer share_bytes(const Memory& memory, const void* data, std::size_t bytes);

/// Throws InvalidArgument unless the parts, the offset and the size can belong together.
void check_shared(const SharedBuffer& shared);

}  // namespace cistern
