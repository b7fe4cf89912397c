#include "cistern/error.hpp"
#include "cistern/ipc.hpp"
#include "memory/shareable.hpp"

namespace cistern {

SharedBuffer share(const Buffer& buffer) {
    if (buffer.empty()) throw InvalidArgument("an empty buffer cannot be shared");
    const Memory memory = buffer.memory();
    if (const auto* const source = dynamic_cast<const Shareable*>(memory.source().get())) {
        return source->share(buffer.data(), buffer.size());
    }
    throw InvalidArgument(
        memory.kind() == MemoryKind::device
            ? "memory '" + memory.name() +
                  "' cannot be shared: nothing could be mapped here, so it has no handles"
            : "memory '" + memory.name() + "' cannot be shared: only device memory can");
}

}  // namespace cistern
