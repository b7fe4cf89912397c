// Managed memory, and device memory where a device or process refuses to map: every segment is an allocation of the
// driver's, with addresses of its own. No block spans two.

#include <algorithm>
#include <new>

#include "memory/cuda_source.hpp"
#include "memory/watch.hpp"

namespace cistern::cuda {

namespace {

constexpr std::size_t driver_alignment = 256;  // of what the driver allocates

class PlainSource final : public SegmentedSource<Address> {  // where its allocation begins
public:
    using SegmentedSource::SegmentedSource;

    void* allocate(std::size_t bytes, std::size_t alignment) override {
        const std::size_t shift = alignment > driver_alignment ? alignment : 0;
        if (bytes > PTRDIFF_MAX - shift) return nullptr;
        const Entered entered(device());
        Address start = 0;
        const Result result = kind() == MemoryKind::managed
                                  ? driver().allocate_managed(&start, bytes + shift, attach_global)
                                  : driver().allocate(&start, bytes + shift);
        if (result == error_out_of_memory) return nullptr;
        check("cannot allocate device memory", result);
        void* const data = pointer_to(round_up(start, std::max(alignment, driver_alignment)));
        try {
            segments().add(static_cast<std::byte*>(data), bytes, start);
        } catch (const std::bad_alloc&) {
            driver().free(start);
            return nullptr;
        }
        return data;
    }
    void deallocate(void* data, std::size_t bytes, std::size_t) noexcept override {
        unmap(data, bytes);
    }
    /// Managed memory may be more than the device has.
    [[nodiscard]] bool could_lend(std::size_t bytes, std::size_t /*held*/) const noexcept override {
        return kind() == MemoryKind::managed || bytes <= device().total_bytes();
    }
    [[nodiscard]] bool keeps_addresses() const noexcept override { return false; }
    [[nodiscard]] std::size_t range_bytes(std::size_t bytes) const noexcept override {
        return bytes;
    }
    void* reserve(std::size_t) override { return nullptr; }
    void unreserve(void*, std::size_t) noexcept override {}
    [[nodiscard]] std::size_t page() const noexcept override { return unit; }
    [[nodiscard]] bool seams() const noexcept override { return true; }
    [[nodiscard]] bool moves() const noexcept override { return false; }
    bool map(void*, std::size_t, Parts) override { return false; }
    std::size_t unmap(void* data, std::size_t bytes) noexcept override {
        const Entered entered(device());
        std::size_t gone = 0;
        segments().remove(static_cast<std::byte*>(data), bytes,
                          [&](std::byte* begin, std::size_t part, Address start) {
                              if (host_accessible()) mark_defined(begin, part);
                              driver().free(start);
                              gone += part;
                          });
        return gone;
    }
};

}  // namespace

std::shared_ptr<MemorySource> make_plain_source(const DeviceContext& on, MemoryKind kind) {
    return std::make_shared<PlainSource>(on, kind);
}

}  // namespace cistern::cuda
