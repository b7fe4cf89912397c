#pragma once
// What the memories of CUDA have in common, and who makes each.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/bytes.hpp"
#include "base/size_class.hpp"
#include "memory/cuda_streams.hpp"
#include "memory/limits.hpp"
#include "memory/sparse.hpp"

namespace cistern::cuda {

/// Device memory that is mapped; null where the device or the process refuses to map.
std::shared_ptr<MemorySource> make_device_source(const DeviceContext& on);
/// Managed memory, or device memory where nothing can be mapped.
std::shared_ptr<MemorySource> make_plain_source(const DeviceContext& on, MemoryKind kind);
std::shared_ptr<MemorySource> make_pinned_source(const DeviceContext& on);

inline constexpr std::size_t unit = 2 << 20;  // segments are multiples of it

inline void* pointer_to(Address address) noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's type of addresses is a number
    return reinterpret_cast<void*>(address);
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
    /// Removes the segments that lie in a part; calls f(begin, bytes, of) for each, with no lock held. From then on its
    /// addresses may be another's.
    template <class F>
    void remove(std::byte* begin, std::size_t bytes, F f) noexcept {
        std::byte* const end = begin + bytes;
        for (;;) {
            typename Map::node_type node;
            {
                const std::scoped_lock hold(lock_);
                const auto found = all_.lower_bound(begin);
                if (found == all_.end() || found->first >= end) return;
                node = all_.extract(found);
            }
            begin = node.key() + node.mapped().bytes;
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

/// A memory that comes in segments; what is known of each is an `Of`.
template <class Of>
class SegmentedSource : public MappedSource, public Streams {
public:
    SegmentedSource(const DeviceContext& on, MemoryKind kind) : Streams(on), kind_(kind) {}

    [[nodiscard]] std::string name() const final {
        const char* const kind = kind_ == MemoryKind::device    ? "cuda:"
                                 : kind_ == MemoryKind::managed ? "managed:"
                                                                : "pinned:";
        return kind + std::to_string(device().ordinal());
    }
    [[nodiscard]] MemoryKind kind() const noexcept final { return kind_; }
    [[nodiscard]] int device_id() const noexcept final { return device().ordinal(); }
    [[nodiscard]] bool host_accessible() const noexcept final {
        return kind_ != MemoryKind::device;
    }
    [[nodiscard]] bool host_uses() const noexcept final { return host_accessible(); }
    [[nodiscard]] std::size_t usual_max_idle_bytes() const noexcept final {
        const bool of_host = kind_ == MemoryKind::pinned;
        return of_host || max_idle_bytes_of_environment() ? 0 : device().total_bytes();
    }

    [[nodiscard]] std::string space() const final {
        std::size_t free = 0, total = 0;
        const Entered entered(device());
        const bool told =
            kind_ == MemoryKind::device && driver().memory_info(&free, &total) == success;
        return told ? ", the device has " + exact_text_of_bytes(total) + ", free " +
                          exact_text_of_bytes(free)
                    : "";
    }

    void zero(void* data, std::size_t bytes) noexcept final {
        if (host_accessible()) return MemorySource::zero(data, bytes);
        const Entered entered(device());
        driver().set_async(address_of(data), 0, bytes, legacy_stream());
    }
    void copy(void* to, const void* from, std::size_t bytes) final {
        if (kind_ == MemoryKind::pinned) return MemorySource::copy(to, from, bytes);
        const Entered entered(device());  // once the default stream's work is done
        check("cannot copy", driver().copy(address_of(to), address_of(from), bytes));
        check("cannot copy",
              driver().stream_synchronize(legacy_stream()));  // or on the device it goes on
    }
    using Streams::copy;
    using Streams::zero;

    /// A share of what is held, so that many small growths are few.
    [[nodiscard]] std::size_t growth(std::size_t bytes, std::size_t held) const noexcept final {
        constexpr std::size_t most_ahead = 8 << 20;
        return std::max(bytes, std::clamp(round_down(held / 64, unit), unit, most_ahead));
    }
    [[nodiscard]] Part segments_within(std::byte* begin, std::byte* end, std::size_t enough,
                                       std::size_t most) const noexcept final {
        return segments_.within(begin, end, enough, most);
    }
    [[nodiscard]] std::size_t segments_in(const std::byte* begin,
                                          std::size_t bytes) const noexcept final {
        return segments_.count(begin, bytes);
    }

protected:
    [[nodiscard]] Segments<Of>& segments() noexcept { return segments_; }
    [[nodiscard]] const Segments<Of>& segments() const noexcept { return segments_; }

private:
    MemoryKind kind_;
    Segments<Of> segments_;
};

}  // namespace cistern::cuda
