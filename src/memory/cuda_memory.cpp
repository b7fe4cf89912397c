// The memories of CUDA: device, pinned and managed.
//
// Device memory is physical handles mapped into one reserved range. To map a handle costs 30 to 50 µs,
// whatever its size up to 32 MiB (H200, `cistern_bench_gpu mapping`), and only whole handles can be unmapped:
// small ones leave less idle, large ones grow faster, so a growth has at most 6 of them up to 384 MiB, fewer where
// they would be smaller than 1/512 of all that is mapped. Where a device or process refuses to map, segments are
// allocations of cuMemAlloc, and so they are in managed memory: no block spans two.
//
// Pinned memory is host pages, touched by several threads and registered: ten times as fast as
// cuMemHostAlloc for the first GiB. No copy may span two registrations, so they are seams.

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/size_class.hpp"
#include "cistern/error.hpp"
#include "memory/cuda_streams.hpp"
#include "memory/limits.hpp"
#include "memory/shareable.hpp"
#include "memory/sparse.hpp"
#include "memory/watch.hpp"

namespace cistern {

namespace {

using cuda::Address, cuda::DeviceContext, cuda::Entered, cuda::Handle, cuda::Result;

constexpr std::size_t unit = 2 << 20;
constexpr std::size_t largest_handle = 64 << 20;
constexpr std::size_t handles_per_growth = 6;  // unless they were larger than that
constexpr std::size_t share_of_mapped = 512;   // a handle is no smaller part of it
constexpr std::size_t most_ahead = 8 << 20;    // mapped when less is needed

Address address_of(const void* data) noexcept { return reinterpret_cast<Address>(data); }
void* pointer_to(Address address) noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's type of addresses is a number
    return reinterpret_cast<void*>(address);
}

/// Copies between any two memories, once the default stream's work is done.
void copy_now(const DeviceContext& device, void* to, const void* from, std::size_t bytes) {
    const Entered entered(device);
    cuda::check("cannot copy", device.driver().copy(address_of(to), address_of(from), bytes));
}

/// How much to map when `bytes` are needed: a share of what is held, so that many small growths are few.
std::size_t growth_for(std::size_t bytes, std::size_t held) noexcept {
    return std::max(bytes, std::clamp(round_down(held / 64, unit), unit, most_ahead));
}

/// The size of the handles of a growth: small beside it and beside all that is `mapped`, since only whole ones can
/// be given back, but not smaller, since each has its price.
std::size_t handle_for(std::size_t bytes, std::size_t mapped, std::size_t page) noexcept {
    const std::size_t share =
        std::max(bytes / handles_per_growth, std::min(bytes, mapped / share_of_mapped));
    return std::clamp(round_up(share, page), page, std::max(page, largest_handle));
}

/// Which segments there are, and what is known of each.
template <class Of>
class Segments {
public:
    using Part = MappedSource::Part;

    /// Throws std::bad_alloc, changing nothing.
    void add(std::byte* begin, std::size_t bytes, Of of) {
        const std::scoped_lock hold(lock_);
        all_.emplace(begin, Segment{bytes, of});
    }
    /// Removes the segments that lie in a part; calls f(begin, bytes, of) for each, with no lock held.
    template <class F>
    void remove(std::byte* begin, std::size_t bytes, F f) noexcept {
        for (;;) {
            typename Map::node_type node;
            {
                const std::scoped_lock hold(lock_);
                const auto found = all_.lower_bound(begin);
                if (found == all_.end() || found->first >= begin + bytes) return;
                node = all_.extract(found);
            }
            f(node.key(), node.mapped().bytes, node.mapped().of);
        }
    }
    [[nodiscard]] Part within(std::byte* begin, std::byte* end, std::size_t enough,
                              std::size_t most) const noexcept {
        const std::scoped_lock hold(lock_);
        Part part;
        std::size_t bytes = 0;
        for (auto it = all_.lower_bound(end); it != all_.begin() && bytes < enough;) {
            --it;
            std::byte* const segment_end = it->first + it->second.bytes;
            if (it->first < begin) break;
            if (segment_end > end) continue;
            if (it->second.bytes > most - bytes) break;
            if (part.end == nullptr) part.end = segment_end;
            part.begin = it->first;
            bytes += it->second.bytes;
        }
        return part;
    }
    [[nodiscard]] std::size_t count(const std::byte* begin, std::size_t bytes) const noexcept {
        std::size_t segments = 0;
        for_each_touching(begin, bytes, [&](const std::byte*, std::size_t, Of) { ++segments; });
        return segments;
    }
    /// Calls f(begin, bytes, of) for the segments that a part touches.
    template <class F>
    void for_each_touching(const std::byte* begin, std::size_t bytes, F f) const {
        const std::scoped_lock hold(lock_);
        auto it = all_.upper_bound(const_cast<std::byte*>(begin));
        if (it != all_.begin() && begin - std::prev(it)->first <
                                      static_cast<std::ptrdiff_t>(std::prev(it)->second.bytes)) {
            --it;
        }
        for (; it != all_.end() && it->first < begin + bytes; ++it) {
            f(it->first, it->second.bytes, it->second.of);
        }
    }

private:
    struct Segment {
        std::size_t bytes;
        Of of;
    };
    using Map = std::map<std::byte*, Segment>;
    mutable std::mutex lock_;  // never held during a call to the driver
    Map all_;
};

// --- Device -----------------------------------------------------------------------------------------

class DeviceSource final : public MappedSource, public cuda::Streams, public Shareable {
public:
    explicit DeviceSource(const DeviceContext& on) : Streams(on) {
        properties_.location.id = on.ordinal();
        properties_.requested_handle_types =
            on.has(cuda::attribute_file_descriptors) ? cuda::handle_is_file : 0;
        std::size_t granularity = 0;
        const Entered entered(on);
        cuda::check("cannot map device memory",
                    on.driver().granularity(&granularity, &properties_, 0));
        page_ = std::max(unit, granularity);
    }

    [[nodiscard]] std::string name() const override {
        return "cuda:" + std::to_string(device().ordinal());
    }
    [[nodiscard]] MemoryKind kind() const noexcept override { return MemoryKind::device; }
    [[nodiscard]] int device_id() const noexcept override { return device().ordinal(); }
    [[nodiscard]] bool host_accessible() const noexcept override { return false; }
    [[nodiscard]] bool host_uses() const noexcept override { return false; }
    [[nodiscard]] std::size_t usual_max_idle_bytes() const noexcept override {
        return std::getenv("CISTERN_MAX_IDLE_BYTES") != nullptr ? 0 : device().total_bytes();
    }

    void zero(void* data, std::size_t bytes) noexcept override {
        const Entered entered(device());
        driver().set_async(address_of(data), 0, bytes, cuda::legacy_stream());
    }
    void copy(void* to, const void* from, std::size_t bytes) override {
        copy_now(device(), to, from, bytes);
    }
    using Streams::copy;
    using Streams::zero;

    void* allocate(std::size_t bytes, std::size_t /*alignment: of cuMemAlloc*/) override {
        const Entered entered(device());
        Address data = 0;
        const Result result = driver().allocate(&data, bytes);
        if (result == cuda::error_out_of_memory) return nullptr;
        cuda::check("cannot allocate device memory", result);
        return pointer_to(data);
    }
    void deallocate(void* data, std::size_t, std::size_t) noexcept override {
        const Entered entered(device());
        driver().free(address_of(data));
    }

    [[nodiscard]] std::size_t range_bytes(std::size_t bytes) const noexcept override {
        const std::size_t usual = round_up(device().total_bytes(), page_) * 4;
        return bytes <= usual / 4 ? usual : round_up(bytes, page_);
    }
    void* reserve(std::size_t bytes) override {
        const Entered entered(device());
        Address data = 0;
        if (bytes > PTRDIFF_MAX) return nullptr;
        return driver().reserve(&data, bytes, page_, 0, 0) == cuda::success ? pointer_to(data)
                                                                            : nullptr;
    }
    void unreserve(void* range, std::size_t bytes) noexcept override {
        const Entered entered(device());
        driver().unreserve(address_of(range), bytes);
    }
    [[nodiscard]] std::size_t page() const noexcept override { return page_; }
    [[nodiscard]] bool seams() const noexcept override { return false; }
    [[nodiscard]] std::size_t growth(std::size_t bytes, std::size_t held) const noexcept override {
        return growth_for(bytes, held);
    }
    [[nodiscard]] Part segments_within(std::byte* begin, std::byte* end, std::size_t enough,
                                       std::size_t most) const noexcept override {
        return segments_.within(begin, end, enough, most);
    }
    [[nodiscard]] std::size_t segments_in(const std::byte* begin,
                                          std::size_t bytes) const noexcept override {
        return segments_.count(begin, bytes);
    }

    [[nodiscard]] bool moves() const noexcept override { return true; }

    bool map(void* data, std::size_t bytes, Parts moved) override {
        const Entered entered(device());
        auto* const begin = static_cast<std::byte*>(data);
        std::size_t done = 0;
        Result result = cuda::success;
        const auto add = [&](std::size_t part, Handle handle, bool again) {
            result = driver().map(address_of(begin + done), part, 0, handle, 0);
            if (result != cuda::success) return;
            bool counted = false;
            try {
                if (again) places_.add(handle);
                counted = again;
                segments_.add(begin + done, part, handle);
                done += part;
            } catch (const std::bad_alloc&) {
                driver().unmap(address_of(begin + done), part);
                if (counted) places_.remove(handle);
                result = cuda::error_out_of_memory;
            }
        };
        std::vector<std::pair<std::size_t, Handle>> old;
        for (const auto& [from, to] : moved) {
            segments_.for_each_touching(from, static_cast<std::size_t>(to - from),
                                        [&](const std::byte*, std::size_t part, Handle handle) {
                                            old.emplace_back(part, handle);
                                        });
        }
        for (const auto& [part, handle] : old) {
            if (result == cuda::success) add(part, handle, true);
        }
        const std::size_t fresh = bytes - done;
        // Relaxed, here and below: the sum alone counts.
        const std::size_t total = created_.load(std::memory_order_relaxed) + fresh;
        const std::size_t handle_bytes = handle_for(fresh, total, page_);
        while (done < bytes && result == cuda::success) {
            const std::size_t part = std::min(bytes - done, handle_bytes);
            Handle handle = 0;
            result = driver().create(&handle, part, &properties_, 0);
            if (result != cuda::success) break;
            created_.fetch_add(part, std::memory_order_relaxed);
            add(part, handle, false);
            if (result != cuda::success) release(handle, part);
        }
        if (result == cuda::success) {
            const cuda::AccessDescription access{.location = properties_.location};
            result = driver().set_access(address_of(data), bytes, &access, 1);
        }
        if (result == cuda::success) return true;
        unmap(data, done);
        if (result == cuda::error_out_of_memory) return false;
        throw DeviceError(cuda::text_of("cannot map device memory", result));
    }
    std::size_t unmap(void* data, std::size_t bytes) noexcept override {
        const Entered entered(device());
        std::size_t gone = 0;
        segments_.remove(static_cast<std::byte*>(data), bytes,
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
        if (properties_.requested_handle_types != cuda::handle_is_file) {
            throw Unavailable("memory '" + name() +
                              "' cannot be shared: the device exports no file descriptors");
        }
        const auto* const begin = static_cast<const std::byte*>(data);
        SharedBuffer shared;
        shared.size = bytes;
        std::vector<Handle> handles;
        segments_.for_each_touching(begin, bytes,
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
            cuda::check("cannot export device memory",
                        driver().export_handle(&file, handles[i], cuda::handle_is_file, 0));
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

    cuda::AllocationProperties properties_;
    std::size_t page_ = unit;
    Segments<Handle> segments_;
    Places places_;
    std::atomic<std::size_t> created_{0};
};

/// Managed memory, and device memory where nothing can be mapped: every segment is an allocation.
class PlainSource final : public MappedSource, public cuda::Streams {
public:
    PlainSource(const DeviceContext& on, MemoryKind kind) : Streams(on), kind_(kind) {}

    [[nodiscard]] std::string name() const override {
        return (kind_ == MemoryKind::managed ? "managed:" : "cuda:") +
               std::to_string(device().ordinal());
    }
    [[nodiscard]] MemoryKind kind() const noexcept override { return kind_; }
    [[nodiscard]] int device_id() const noexcept override { return device().ordinal(); }
    [[nodiscard]] bool host_accessible() const noexcept override {
        return kind_ == MemoryKind::managed;
    }
    [[nodiscard]] bool host_uses() const noexcept override { return host_accessible(); }
    [[nodiscard]] std::size_t usual_max_idle_bytes() const noexcept override {
        return std::getenv("CISTERN_MAX_IDLE_BYTES") != nullptr ? 0 : device().total_bytes();
    }

    void* allocate(std::size_t bytes, std::size_t alignment) override {
        const std::size_t shift = alignment > driver_alignment ? alignment : 0;
        if (bytes > PTRDIFF_MAX - shift) return nullptr;
        const Entered entered(device());
        Address start = 0;
        const Result result =
            kind_ == MemoryKind::managed
                ? driver().allocate_managed(&start, bytes + shift, cuda::attach_global)
                : driver().allocate(&start, bytes + shift);
        if (result == cuda::error_out_of_memory) return nullptr;
        cuda::check("cannot allocate device memory", result);
        void* const data = pointer_to(round_up(start, std::max(alignment, driver_alignment)));
        try {
            segments_.add(static_cast<std::byte*>(data), bytes, start);
        } catch (const std::bad_alloc&) {
            driver().free(start);
            return nullptr;
        }
        return data;
    }
    void deallocate(void* data, std::size_t bytes, std::size_t) noexcept override {
        unmap(data, bytes);
    }
    void zero(void* data, std::size_t bytes) noexcept override {
        if (host_accessible()) return MemorySource::zero(data, bytes);
        const Entered entered(device());
        driver().set_async(address_of(data), 0, bytes, cuda::legacy_stream());
    }
    void copy(void* to, const void* from, std::size_t bytes) override {
        copy_now(device(), to, from, bytes);
    }
    using Streams::copy;
    using Streams::zero;

    [[nodiscard]] bool keeps_addresses() const noexcept override { return false; }
    [[nodiscard]] std::size_t range_bytes(std::size_t bytes) const noexcept override {
        return bytes;
    }
    void* reserve(std::size_t) override { return nullptr; }
    void unreserve(void*, std::size_t) noexcept override {}
    [[nodiscard]] std::size_t page() const noexcept override { return unit; }
    [[nodiscard]] bool seams() const noexcept override { return true; }
    [[nodiscard]] std::size_t growth(std::size_t bytes, std::size_t held) const noexcept override {
        return growth_for(bytes, held);
    }
    [[nodiscard]] Part segments_within(std::byte* begin, std::byte* end, std::size_t enough,
                                       std::size_t most) const noexcept override {
        return segments_.within(begin, end, enough, most);
    }
    [[nodiscard]] std::size_t segments_in(const std::byte* begin,
                                          std::size_t bytes) const noexcept override {
        return segments_.count(begin, bytes);
    }
    [[nodiscard]] bool moves() const noexcept override { return false; }
    bool map(void*, std::size_t, Parts) override { return false; }
    std::size_t unmap(void* data, std::size_t bytes) noexcept override {
        const Entered entered(device());
        std::size_t gone = 0;
        segments_.remove(static_cast<std::byte*>(data), bytes,
                         [&](std::byte* begin, std::size_t part, Address start) {
                             if (host_accessible()) mark_defined(begin, part);
                             driver().free(start);
                             gone += part;
                         });
        return gone;
    }

private:
    static constexpr std::size_t driver_alignment = 256;  // of what the driver allocates

    MemoryKind kind_;
    Segments<Address> segments_;  // and where their allocations begin
};

// --- Pinned -----------------------------------------------------------------------------------------

class PinnedSource final : public MappedSource, public cuda::Streams {
public:
    explicit PinnedSource(const DeviceContext& on) : Streams(on), host_(Memory::host()) {}

    [[nodiscard]] std::string name() const override {
        return "pinned:" + std::to_string(device().ordinal());
    }
    [[nodiscard]] MemoryKind kind() const noexcept override { return MemoryKind::pinned; }
    [[nodiscard]] int device_id() const noexcept override { return device().ordinal(); }
    [[nodiscard]] bool host_uses() const noexcept override { return true; }
    [[nodiscard]] std::size_t usual_max_idle_bytes() const noexcept override { return 0; }
    using MemorySource::copy;
    using MemorySource::zero;
    using Streams::copy;
    using Streams::zero;

    void* allocate(std::size_t bytes, std::size_t) override {
        void* const data = reserve(round_up(bytes, unit));
        if (data == nullptr) return nullptr;
        if (map(data, round_up(bytes, unit), {})) return data;
        unreserve(data, round_up(bytes, unit));
        return nullptr;
    }
    void deallocate(void* data, std::size_t bytes, std::size_t) noexcept override {
        unmap(data, round_up(bytes, unit));
        unreserve(data, round_up(bytes, unit));
    }

    [[nodiscard]] std::size_t range_bytes(std::size_t bytes) const noexcept override {
        return sparse().range_bytes(bytes);
    }
    void* reserve(std::size_t bytes) override { return sparse().reserve(bytes); }
    void unreserve(void* range, std::size_t bytes) noexcept override {
        sparse().unreserve(range, bytes);
    }
    [[nodiscard]] std::size_t page() const noexcept override { return unit; }
    [[nodiscard]] bool seams() const noexcept override { return true; }
    [[nodiscard]] std::size_t growth(std::size_t bytes, std::size_t held) const noexcept override {
        return growth_for(bytes, held);
    }
    [[nodiscard]] Part segments_within(std::byte* begin, std::byte* end, std::size_t enough,
                                       std::size_t most) const noexcept override {
        return segments_.within(begin, end, enough, most);
    }
    [[nodiscard]] std::size_t segments_in(const std::byte* begin,
                                          std::size_t bytes) const noexcept override {
        return segments_.count(begin, bytes);
    }

    [[nodiscard]] bool moves() const noexcept override { return false; }

    bool map(void* data, std::size_t bytes, Parts /*moved: none*/) override {
        // Relaxed: the sum alone decides.
        if (pinned_.fetch_add(bytes, std::memory_order_relaxed) + bytes > process_memory_limit()) {
            pinned_.fetch_sub(bytes, std::memory_order_relaxed);
            return false;
        }
        auto* const begin = static_cast<std::byte*>(data);
        madvise(begin, bytes, MADV_HUGEPAGE);
        mark_defined(begin, bytes);  // nobody's until now
        touch(begin, bytes);
        const Entered entered(device());
        Result result = driver().register_host(data, bytes, cuda::register_portable);
        if (result == cuda::success) {
            try {
                segments_.add(begin, bytes, 0);
                host_bytes_held.fetch_add(bytes, std::memory_order_relaxed);
                return true;
            } catch (const std::bad_alloc&) {
                driver().unregister_host(data);
                result = cuda::error_out_of_memory;
            }
        }
        madvise(begin, bytes, MADV_DONTNEED);
        pinned_.fetch_sub(bytes, std::memory_order_relaxed);
        if (result == cuda::error_out_of_memory) return false;
        throw DeviceError(cuda::text_of("cannot pin host memory", result));
    }
    std::size_t unmap(void* data, std::size_t bytes) noexcept override {
        const Entered entered(device());
        std::size_t gone = 0;
        segments_.remove(static_cast<std::byte*>(data), bytes,
                         [&](std::byte* begin, std::size_t part, int) {
                             driver().unregister_host(begin);
                             madvise(begin, part, MADV_DONTNEED);
                             pinned_.fetch_sub(part, std::memory_order_relaxed);
                             host_bytes_held.fetch_sub(part, std::memory_order_relaxed);
                             gone += part;
                         });
        return gone;
    }

private:
    [[nodiscard]] SparseSource& sparse() const noexcept {
        return static_cast<SparseSource&>(*host_.source());
    }

    /// Has pages come, on several threads where it pays: registering finds them then, and needs not
    /// fetch them one by one.
    static void touch(std::byte* begin, std::size_t bytes) noexcept {
        constexpr std::size_t per_thread = 16 << 20;
        constexpr std::size_t most_threads = 16;
        const std::size_t wanted = std::clamp<std::size_t>(
            bytes / per_thread, 1,
            std::min<std::size_t>(most_threads, std::max(1U, std::thread::hardware_concurrency())));
        const std::size_t part = round_up(bytes / wanted, unit);
        const auto write = [begin, bytes, part](std::size_t first) {
            for (std::size_t at = first; at < std::min(bytes, first + part); at += 4096) {
                // Volatile: every page has to be written to.
                *reinterpret_cast<volatile char*>(begin + at) = 0;
            }
        };
        std::vector<std::thread> threads;
        std::size_t at = part;
        try {
            for (; at < bytes; at += part) threads.emplace_back(write, at);
        } catch (...) {  // fewer threads, then
            for (; at < bytes; at += part) write(at);
        }
        write(0);
        for (std::thread& thread : threads) thread.join();
    }

    Memory host_;  // for its ranges
    std::atomic<std::size_t> pinned_{0};
    Segments<int> segments_;
};

/// One source for each device, so that pools on it find each other when it runs out. Never destroyed.
template <class Make>
Memory shared_source(int ordinal, Make make) {
    static std::mutex lock;
    static auto* const sources = new std::vector<std::shared_ptr<MemorySource>>;
    const DeviceContext& device = DeviceContext::of(ordinal);
    const std::scoped_lock hold(lock);
    if (sources->size() <= static_cast<std::size_t>(ordinal)) {
        sources->resize(static_cast<std::size_t>(ordinal) + 1);
    }
    auto& source = sources->at(static_cast<std::size_t>(ordinal));
    if (source == nullptr) source = make(device);
    return Memory(source);
}

}  // namespace

bool cuda_available() noexcept { return cuda::driver() != nullptr; }

Memory Memory::device(int device) {
    return shared_source(device, [](const DeviceContext& on) -> std::shared_ptr<MemorySource> {
        if (on.has(cuda::attribute_virtual_memory)) {
            auto source = std::make_shared<DeviceSource>(on);
            // Some processes may not map; a small range tells.
            if (void* const range = source->reserve(source->page())) {
                source->unreserve(range, source->page());
                return source;
            }
        }
        return std::make_shared<PlainSource>(on, MemoryKind::device);
    });
}

Memory Memory::pinned(int device) {
    return shared_source(device, [](const DeviceContext& on) -> std::shared_ptr<MemorySource> {
        return std::make_shared<PinnedSource>(on);
    });
}

Memory Memory::managed(int device) {
    return shared_source(device, [](const DeviceContext& on) -> std::shared_ptr<MemorySource> {
        if (!on.has(cuda::attribute_managed_memory)) {
            throw Unavailable("device has no managed memory: " + std::to_string(on.ordinal()));
        }
        return std::make_shared<PlainSource>(on, MemoryKind::managed);
    });
}

}  // namespace cistern
