// Device memory: physical handles mapped into one reserved range.
//
// To map a handle costs 30 to 50 µs, whatever its size up to 32 MiB (H200, `cistern_bench_gpu mapping`), and only
// whole handles can be unmapped: small ones leave less idle, large ones grow faster, so a growth has at most 6 of them
// up to 384 MiB, fewer where they would be smaller than 1/1024 of all that is mapped.

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "cistern/error.hpp"
#include "memory/cuda_source.hpp"
#include "memory/shareable.hpp"

namespace cistern::cuda {

namespace {

constexpr std::size_t largest_handle = 64 << 20;
constexpr std::size_t handles_per_growth = 6;  // unless they were larger than that
constexpr std::size_t share_of_mapped = 1024;  // a handle is no smaller part of it

/// The size of the handles of a growth: small beside it and beside all that is `mapped`, since only whole ones can
/// be given back, but not smaller, since each has its price.
std::size_t handle_for(std::size_t bytes, std::size_t mapped, std::size_t page) noexcept {
    const std::size_t share =
        std::max(bytes / handles_per_growth, std::min(bytes, mapped / share_of_mapped));
    return std::clamp(round_up(share, page), page, std::max(page, largest_handle));
}

class DeviceSource final : public SegmentedSource<Handle>, public Shareable {
public:
    explicit DeviceSource(const DeviceContext& on) : SegmentedSource(on, MemoryKind::device) {
        properties_.location.id = on.ordinal();
        properties_.requested_handle_types =
            on.has(attribute_file_descriptors) ? handle_is_file : 0;
        std::size_t granularity = 0;
        const Entered entered(on);
        check("cannot map device memory", on.driver().granularity(&granularity, &properties_, 0));
        page_ = std::max(unit, granularity);
    }

    void* allocate(std::size_t bytes, std::size_t /*alignment: of cuMemAlloc*/) override {
        const Entered entered(device());
        Address data = 0;
        const Result result = driver().allocate(&data, bytes);
        if (result == error_out_of_memory) return nullptr;
        check("cannot allocate device memory", result);
        return pointer_to(data);
    }
    void deallocate(void* data, std::size_t, std::size_t) noexcept override {
        const Entered entered(device());
        driver().free(address_of(data));
    }

    [[nodiscard]] bool could_lend(std::size_t bytes, std::size_t /*held*/) const noexcept override {
        return bytes <= device().total_bytes();
    }
    [[nodiscard]] std::size_t range_bytes(std::size_t bytes) const noexcept override {
        const std::size_t usual = round_up(device().total_bytes(), page_) * 4;
        return bytes <= usual / 4 ? usual : round_up(bytes, page_);
    }
    void* reserve(std::size_t bytes) override {
        const Entered entered(device());
        Address data = 0;
        if (bytes > PTRDIFF_MAX) return nullptr;
        return driver().reserve(&data, bytes, page_, 0, 0) == success ? pointer_to(data) : nullptr;
    }
    void unreserve(void* range, std::size_t bytes) noexcept override {
        const Entered entered(device());
        driver().unreserve(address_of(range), bytes);
    }
    [[nodiscard]] std::size_t page() const noexcept override { return page_; }
    [[nodiscard]] bool seams() const noexcept override { return false; }
    [[nodiscard]] bool moves() const noexcept override { return true; }

    bool map(void* data, std::size_t bytes, Parts moved) override {
        const Entered entered(device());
        auto* const begin = static_cast<std::byte*>(data);
        std::size_t done = 0;
        Result result = success;
        const auto add = [&](std::size_t part, Handle handle, bool again) {
            result = driver().map(address_of(begin + done), part, 0, handle, 0);
            if (result != success) return;
            bool counted = false;
            try {
                if (again) places_.add(handle);
                counted = again;
                segments().add(begin + done, part, handle);
                done += part;
            } catch (const std::bad_alloc&) {
                driver().unmap(address_of(begin + done), part);
                if (counted) places_.remove(handle);
                result = error_out_of_memory;
            }
        };
        std::vector<std::pair<std::size_t, Handle>> old;
        for (const auto& [from, to] : moved) {
            segments().for_each_touching(from, static_cast<std::size_t>(to - from),
                                         [&](const std::byte*, std::size_t part, Handle handle) {
                                             old.emplace_back(part, handle);
                                         });
        }
        for (const auto& [part, handle] : old) {
            if (result == success) add(part, handle, true);
        }
        const std::size_t fresh = bytes - done;
        // Relaxed, here and below: the sum alone counts.
        const std::size_t total = created_.load(std::memory_order_relaxed) + fresh;
        const std::size_t handle_bytes = handle_for(fresh, total, page_);
        while (done < bytes && result == success) {
            const std::size_t part = std::min(bytes - done, handle_bytes);
            Handle handle = 0;
            result = driver().create(&handle, part, &properties_, 0);
            if (result != success) break;
            created_.fetch_add(part, std::memory_order_relaxed);
            add(part, handle, false);
            if (result != success) release(handle, part);
        }
        if (result == success) {
            const AccessDescription access{.location = properties_.location};
            result = driver().set_access(address_of(data), bytes, &access, 1);
        }
        if (result == success) return true;
        unmap(data, done);
        if (result == error_out_of_memory) return false;
        throw DeviceError(text_of("cannot map device memory", result));
    }
    std::size_t unmap(void* data, std::size_t bytes) noexcept override {
        const Entered entered(device());
        std::size_t gone = 0;
        segments().remove(static_cast<std::byte*>(data), bytes,
                          [&](std::byte* begin, std::size_t part, Handle handle) {
                              driver().unmap(address_of(begin), part);
                              if (places_.remove(handle)) return;
                              release(handle, part);
                              gone += part;
                          });
        return gone;
    }

    /// A segment is unmapped, and its handle released, only where no block that is lent touches it. The
    /// caller keeps these bytes lent, so their handles stay while they are exported with no lock held;
    /// afterwards each descriptor keeps its memory by itself.
    [[nodiscard]] SharedBuffer share(const void* data, std::size_t bytes) const override {
        if (properties_.requested_handle_types != handle_is_file) {
            throw Unavailable("memory '" + name() +
                              "' cannot be shared: the device exports no file descriptors");
        }
        const auto* const begin = static_cast<const std::byte*>(data);
        SharedBuffer shared;
        shared.size = bytes;
        std::vector<Handle> handles;
        segments().for_each_touching(begin, bytes,
                                     [&](const std::byte* at, std::size_t part, Handle handle) {
                                         if (handles.empty())
                                             shared.offset = static_cast<std::size_t>(begin - at);
                                         handles.push_back(handle);
                                         shared.parts.push_back({FileDescriptor(), part});
                                     });
        if (handles.empty()) {
            throw InvalidArgument("these bytes of memory '" + name() +
                                  "' cannot be shared: they were adopted, and have no handles");
        }
        shared.device = device().uuid();
        const Entered entered(device());
        for (std::size_t i = 0; i < handles.size(); ++i) {
            int file = -1;
            check("cannot export device memory",
                  driver().export_handle(&file, handles[i], handle_is_file, 0));
            fcntl(file, F_SETFD, FD_CLOEXEC);
            shared.parts[i].file = FileDescriptor(file);
        }
        return shared;
    }

private:
    /// Handles that are mapped more than once, and how many times more.
    class Places {
    public:
        void add(Handle handle) {
            const std::scoped_lock hold(lock_);
            ++more_[handle];
        }
        /// False if there is but one.
        bool remove(Handle handle) noexcept {
            const std::scoped_lock hold(lock_);
            const auto found = more_.find(handle);
            if (found == more_.end()) return false;
            if (--found->second == 0) more_.erase(found);
            return true;
        }

    private:
        std::mutex lock_;  // never held during a call to the driver
        std::map<Handle, std::size_t> more_;
    };
    void release(Handle handle, std::size_t bytes) noexcept {
        driver().release(handle);
        created_.fetch_sub(bytes, std::memory_order_relaxed);
    }

    AllocationProperties properties_;
    std::size_t page_ = unit;
    Places places_;
    std::atomic<std::size_t> created_{0};
};

}  // namespace

std::shared_ptr<MemorySource> make_device_source(const DeviceContext& on) {
    if (!on.has(attribute_virtual_memory)) return nullptr;
    auto source = std::make_shared<DeviceSource>(on);
    // Some processes may not map; a small range tells.
    void* const range = source->reserve(source->page());
    if (range == nullptr) return nullptr;
    source->unreserve(range, source->page());
    return source;
}

}  // namespace cistern::cuda
