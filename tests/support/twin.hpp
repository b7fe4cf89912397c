#pragma once
// A second handle to one block: what a user gets who copies a buffer's bytes behind its back.

#include <cstddef>
#include <cstring>
#include <new>

#include "cistern/buffer.hpp"

namespace cistern::test {

/// Holds a bitwise copy of a buffer and never destroys it unless told to.
class Twin {
public:
    explicit Twin(const Buffer& buffer) {
        std::memcpy(storage_, static_cast<const void*>(&buffer), sizeof(Buffer));
    }
    Buffer& get() { return *std::launder(reinterpret_cast<Buffer*>(storage_)); }
    void destroy() { get().~Buffer(); }

private:
    alignas(Buffer) std::byte storage_[sizeof(Buffer)];
};

}  // namespace cistern::test
