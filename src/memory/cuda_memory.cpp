// The memories of CUDA: device, pinned and managed.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cistern/error.hpp"
#include "memory/cuda_source.hpp"

namespace cistern {

namespace {

using cuda::DeviceContext;

std::shared_ptr<MemorySource> make_device(const DeviceContext& on) {
    std::shared_ptr<MemorySource> mapped = cuda::make_device_source(on);
    return mapped != nullptr ? mapped : cuda::make_plain_source(on, MemoryKind::device);
}

std::shared_ptr<MemorySource> make_managed(const DeviceContext& on) {
    if (!on.has(cuda::attribute_managed_memory)) {
        throw Unavailable("device has no managed memory: " + std::to_string(on.ordinal()));
    }
    return cuda::make_plain_source(on, MemoryKind::managed);
}

/// One source for each device, so that pools on it find each other when it runs out. Never destroyed.
template <auto Make>
Memory shared_source(int ordinal) {
    static std::mutex lock;
    static auto* const sources = new std::vector<std::shared_ptr<MemorySource>>;
    const DeviceContext& device = DeviceContext::of(ordinal);
    const std::scoped_lock hold(lock);
    if (sources->size() <= static_cast<std::size_t>(ordinal)) {
        sources->resize(static_cast<std::size_t>(ordinal) + 1);
    }
    auto& source = sources->at(static_cast<std::size_t>(ordinal));
    if (source == nullptr) source = Make(device);
    return Memory(source);
}

}  // namespace

bool cuda_available() noexcept { return cuda::driver() != nullptr; }

Memory Memory::device(int device) { return shared_source<make_device>(device); }
Memory Memory::pinned(int device) { return shared_source<cuda::make_pinned_source>(device); }
Memory Memory::managed(int device) { return shared_source<make_managed>(device); }

Memory Memory::of(MemoryKind kind, int device) {
    switch (kind) {
        case MemoryKind::host:
            return host();
        case MemoryKind::pinned:
            return pinned(device);
        case MemoryKind::device:
            return Memory::device(device);
        case MemoryKind::managed:
            return managed(device);
    }
    throw InvalidArgument("there is no such memory: " + std::to_string(static_cast<int>(kind)));
}

}  // namespace cistern
