#pragma once
// Arrays with a host and a device side that follow each other, and a pool that keeps them by exact
// shape and type.
//
//     UnifiedPool pool;
//     auto buffer = pool.acquire<float>({1024, 1024});
//     for (float& x : buffer->host_writable()) x = 1;    // marks the host side newer
//     launch(buffer->device());                          // copies first
//     pool.release(std::move(buffer));
//
// Where there is no device, device() is host(). A buffer belongs to one thread at a time; the pool is
// thread-safe.

#include <algorithm>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cistern/buffer.hpp"
#include "cistern/error.hpp"
#include "cistern/memory.hpp"
#include "cistern/pool.hpp"
#include "cistern/presets.hpp"
#include "cistern/shape.hpp"
#include "cistern/stream.hpp"

namespace [[gnu::visibility("default")]] cistern {

class UnifiedPool;

/// Which side of a unified buffer has bytes, and which has the newer ones.
enum class BufferState {
    uninitialized = 1,
    host_only,
    device_only,
    synchronized,
    host_dirty,
    device_dirty,
};
/// Returns "HOST_ONLY" and so on.
std::string to_string(BufferState state);

/// Extents known at run time. Throws InvalidArgument for a negative one.
class UnifiedShape {
public:
    template <std::integral N>
    UnifiedShape(N extent) : extents_{checked(extent, 0)} {}
    UnifiedShape(std::initializer_list<std::ptrdiff_t> extents)
        : UnifiedShape(std::vector<std::ptrdiff_t>(extents)) {}
    UnifiedShape(const std::vector<std::ptrdiff_t>& extents) {
        for (const std::ptrdiff_t extent : extents)
            extents_.push_back(checked(extent, extents_.size()));
    }
    UnifiedShape(std::vector<std::size_t> extents) noexcept : extents_(std::move(extents)) {}

    [[nodiscard]] const std::vector<std::size_t>& extents() const noexcept { return extents_; }

private:
    template <std::integral N>
    static std::size_t checked(N extent, std::size_t dimension) {
        if constexpr (std::is_signed_v<N>) {
            if (extent < 0) detail::throw_negative_extent(extent, dimension);
        }
        return static_cast<std::size_t>(extent);
    }

    std::vector<std::size_t> extents_;
};

/// Where the two sides of a buffer live.
struct UnifiedPlaces {
    Pool host = default_pool();
    std::optional<Pool> device = std::nullopt;
    bool pinned = false;  // `host` is page-locked
};

namespace detail {

/// A unified buffer without its type.
class UnifiedBase {
public:
    UnifiedBase(UnifiedPlaces places, std::vector<std::size_t> shape, std::size_t element_bytes,
                bool allowed_on_device, const char* type_name);
    UnifiedBase(const UnifiedBase&) = delete;
    UnifiedBase& operator=(const UnifiedBase&) = delete;
    virtual ~UnifiedBase() = default;

    [[nodiscard]] const std::vector<std::size_t>& shape() const noexcept { return shape_; }
    /// Returns the number of elements; of bytes.
    [[nodiscard]] std::size_t size() const noexcept { return elements_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] BufferState state() const noexcept { return state_; }
    [[nodiscard]] bool is_allocated() const noexcept {
        return state_ != BufferState::uninitialized;
    }
    [[nodiscard]] bool pinned() const noexcept { return places_.pinned; }
    [[nodiscard]] bool has_device() const noexcept { return places_.device.has_value(); }

    /// Gives both sides back to their pools.
    void free() noexcept;

    /// Says that one side was written and is newer than the other.
    void mark_host_dirty();
    void mark_device_dirty();
    /// Copies the newer side to the other, where both exist and differ.
    void synchronize();
    /// Makes sure that this side exists and has the newest bytes.
    void sync_to_device();
    void sync_to_host();
    /// The same by copies in a stream's order, which the host does not wait for where its side is pinned.
    /// Before the host reads what came, it has to wait for the stream. Where there is no device, the
    /// stream means nothing.
    void sync_to_device(Stream stream);
    void sync_to_host(Stream stream);

protected:
    void allocate_sides(bool host, bool device);
    void* host_data();
    void* device_data();
    void* writable_host();
    void zero();
    void need() const;
    void check_count(std::size_t elements) const;

private:
    friend class cistern::UnifiedPool;
    [[nodiscard]] MemorySource& device_source() const;
    void to_device();
    void to_host();
    void copy_on(Stream stream, Buffer& to, Buffer& from);

    UnifiedPlaces places_;
    std::vector<std::size_t> shape_;
    std::size_t elements_ = 0, bytes_ = 0;
    BufferState state_ = BufferState::uninitialized;
    Buffer host_, device_;
    // The pool's, guarded by its lock.
    const void* pool_ = nullptr;
    bool lent_ = false;
    std::size_t type_ = 0;
};

template <class T>
inline constexpr bool allowed_on_device =
    !std::is_same_v<T, long double> && !std::is_same_v<T, std::complex<long double>>;

}  // namespace detail

template <Element T>
class UnifiedBuffer : public detail::UnifiedBase {
public:
    using value_type = T;

    /// Nothing is allocated yet. Throws InvalidArgument for a negative extent, more bytes than can be
    /// counted, or a type that the device does not have.
    explicit UnifiedBuffer(const UnifiedShape& shape, UnifiedPlaces places = {})
        : UnifiedBase(std::move(places), shape.extents(), sizeof(T), detail::allowed_on_device<T>,
                      "long double") {}

    /// Gives the buffer the sides it lacks. Where there is no device there is a host side always.
    UnifiedBuffer& allocate(bool host = true, bool device = true) {
        allocate_sides(host, device);
        return *this;
    }
    UnifiedBuffer& zeros() {
        zero();
        return *this;
    }
    UnifiedBuffer& fill(const T& value) {
        if (!is_allocated()) allocate();
        std::ranges::fill(host_writable(), value);
        return *this;
    }

    /// Returns the host side, copied first if the device's is newer. To write, take host_writable(),
    /// which marks it. Throws BufferNotAllocated.
    [[nodiscard]] std::span<const T> host() { return {static_cast<T*>(host_data()), size()}; }
    [[nodiscard]] std::span<T> host_writable() {
        return {static_cast<T*>(writable_host()), size()};
    }
    /// Returns the address of the device side, copied first if the host's is newer; the host's where
    /// there is no device.
    [[nodiscard]] T* device() { return static_cast<T*>(device_data()); }

    /// Copies all elements from the host or to it. Throws InvalidArgument if the number differs.
    UnifiedBuffer& copy_from(std::span<const T> values) {
        check_count(values.size());
        if (!is_allocated()) allocate();
        std::ranges::copy(values, host_writable().begin());
        return *this;
    }
    void copy_to(std::span<T> values) {
        check_count(values.size());
        std::ranges::copy(host(), values.begin());
    }
    [[nodiscard]] std::vector<T> to_vector() {
        const std::span<const T> values = host();
        return {values.begin(), values.end()};
    }

    /// An element, read on the host; assigning to it marks the host side newer.
    class Reference {
    public:
        operator T() const { return buffer_.host()[index_]; }
        Reference& operator=(const T& value) {
            buffer_.host_writable()[index_] = value;
            return *this;
        }

    private:
        friend class UnifiedBuffer;
        Reference(UnifiedBuffer& buffer, std::size_t index) : buffer_(buffer), index_(index) {}
        UnifiedBuffer& buffer_;
        std::size_t index_;
    };
    /// Throws InvalidArgument if there is no such element.
    [[nodiscard]] Reference operator[](std::size_t index) {
        if (index >= size()) detail::throw_index_out_of_range(index, size());
        return {*this, index};
    }
};

struct UnifiedOptions {
    std::size_t max_pool_size = 100;                      // buffers kept, the oldest going first
    std::size_t max_buffer_bytes = std::size_t{1} << 30;  // a larger one is never kept
    Memory host = Memory::host();
    std::optional<Memory> device = std::nullopt;
    std::optional<Memory> pinned = std::nullopt;  // else pinned means `host`, said once
};

struct UnifiedStats {
    std::size_t pool_size = 0;  // buffers kept now
    std::uint64_t total_acquired = 0, total_released = 0, cache_hits = 0, cache_misses = 0;
    friend bool operator==(const UnifiedStats&, const UnifiedStats&) = default;
};

template <Element T>
class UnifiedLease;

class UnifiedPool {
public:
    explicit UnifiedPool(UnifiedOptions options = {});

    /// Returns a buffer that is allocated: the last released of exactly this type, shape and
    /// pinned-ness, with what it held, or a new one. Throws InvalidArgument, OutOfMemory.
    template <Element T>
    [[nodiscard]] std::shared_ptr<UnifiedBuffer<T>> acquire(const UnifiedShape& shape,
                                                            bool pinned = false) {
        const std::size_t type = type_of<T>();
        std::shared_ptr<detail::UnifiedBase> kept = take(type, shape.extents(), pinned);
        if (kept == nullptr) {
            kept = std::make_shared<UnifiedBuffer<T>>(shape, places(pinned));
        }
        auto buffer = std::static_pointer_cast<UnifiedBuffer<T>>(std::move(kept));
        buffer->allocate();
        lend(*buffer, type);
        return buffer;
    }
    /// Takes a buffer back and leaves the pointer empty. Throws InvalidArgument, changing nothing, if
    /// it is null, was released already, or is another pool's.
    template <Element T>
    void release(std::shared_ptr<UnifiedBuffer<T>>&& buffer) {
        give(buffer);
        buffer.reset();
    }
    /// A buffer for the length of a scope: it releases itself.
    template <Element T>
    [[nodiscard]] UnifiedLease<T> buffer(const UnifiedShape& shape, bool pinned = false) {
        return {*this, acquire<T>(shape, pinned)};
    }

    [[nodiscard]] UnifiedStats stats() const;
    [[nodiscard]] std::size_t pool_size() const { return stats().pool_size; }
    /// Returns the bytes of the buffers that are kept.
    [[nodiscard]] std::size_t total_bytes() const;
    /// Lets go of what is kept. The counters stay.
    void clear();

private:
    template <Element T>
    static std::size_t type_of() noexcept {
        return reinterpret_cast<std::size_t>(&detail::type_tag<T>);
    }
    std::shared_ptr<detail::UnifiedBase> take(std::size_t type,
                                              const std::vector<std::size_t>& shape, bool pinned);
    void lend(detail::UnifiedBase& buffer, std::size_t type) noexcept;
    void give(const std::shared_ptr<detail::UnifiedBase>& buffer);
    [[nodiscard]] UnifiedPlaces places(bool pinned) const;

    class State;
    std::shared_ptr<State> state_;
};

template <Element T>
class UnifiedLease {
public:
    UnifiedLease(UnifiedPool pool, std::shared_ptr<UnifiedBuffer<T>> buffer) noexcept
        : pool_(std::move(pool)), buffer_(std::move(buffer)) {}
    UnifiedLease(UnifiedLease&&) noexcept = default;
    UnifiedLease& operator=(UnifiedLease&&) = delete;
    ~UnifiedLease() {
        try {
            if (buffer_ != nullptr) pool_.release(std::move(buffer_));
        } catch (const InvalidArgument&) {  // released by hand already
        }
    }

    [[nodiscard]] UnifiedBuffer<T>& operator*() const noexcept { return *buffer_; }
    [[nodiscard]] UnifiedBuffer<T>* operator->() const noexcept { return buffer_.get(); }

private:
    UnifiedPool pool_;
    std::shared_ptr<UnifiedBuffer<T>> buffer_;
};

/// The process's unified pool, on the first CUDA device and pinned memory where there is one. Lives until
/// the process ends.
UnifiedPool& memory_pool();

}  // namespace cistern
