#pragma once
// A pool lends array memory and keeps it warm for the next borrower.
//
//     Pool pool;                                          // host memory, good defaults
//     auto u = pool.array<float>(ny, nx);                 // returns to the pool at the end of scope
//     auto [v, w] = pool.arrays(shape<float>(ny, nx), shape<double>(n));
//     std::cout << pool.stats();
//
// `Pool` is a handle: copies share one pool. Thread-safe, except that one handle must not be
// assigned to while another thread uses that same handle. Buffers may outlive every handle.

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "cistern/array.hpp"
#include "cistern/buffer.hpp"
#include "cistern/error.hpp"
#include "cistern/memory.hpp"
#include "cistern/shape.hpp"
#include "cistern/stats.hpp"

namespace [[gnu::visibility("default")]] cistern {

inline constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
inline constexpr std::chrono::milliseconds forever = std::chrono::milliseconds::max();

struct Elastic {};   // split and coalesce
struct ExactFit {};  // only a block of exactly these bytes
struct BestFit {
    double max_waste = 0.25;
};  // smallest idle block that leaves at most this share
    // of itself unused; 1 = any
struct FixedBlock {
    std::size_t bytes = 0;
};  // every block has this size; more is an error
using Fit = std::variant<Elastic, ExactFit, BestFit, FixedBlock>;

enum class Evict { oldest, smallest, largest };

/// The limits of a pool. All are exact: no snapshot ever shows more.
struct Limits {
    std::size_t max_bytes = no_limit;  // lent and idle together
    std::size_t max_idle_bytes = default_max_idle_bytes();
    std::size_t max_idle_buffers = no_limit;
    std::size_t max_buffer_bytes = no_limit;           // a larger buffer is never kept
    std::chrono::milliseconds max_idle_age = forever;  // checked when the pool is used or read;
                                                       // makes every release take the lock
};

struct PoolOptions {
    std::string name = {};
    Fit fit = Elastic{};
    std::size_t alignment = 64;
    std::size_t max_bytes = no_limit, max_idle_bytes = default_max_idle_bytes();
    std::size_t max_idle_buffers = no_limit, max_buffer_bytes = no_limit;
    std::chrono::milliseconds max_idle_age = forever;
    Evict evict = Evict::oldest;
    bool separate_types = false;   // idle bytes of one element type never serve another
    bool wipe_on_release = false;  // zero every byte a user gave back
};

template <Element T>
class Vector;
class Stream;
class StreamPool;

class Pool;
namespace detail {
template <class T>
inline constinit char type_tag = 0;  // its address names the type
struct Interop;
/// Throws InvalidArgument, saying who `needs` it, if the host cannot reach the pool's memory.
const Pool& of_host(const Pool& pool, const char* needs);
}  // namespace detail

/// What a pool lends, in one order of use: the verbs that Pool and StreamPool share.
class Lender {
public:
    /// Lends at least `bytes` bytes: idle ones if the fit allows, else new ones. Their contents are
    /// whatever the last user left. Zero bytes are an empty buffer that takes nothing.
    /// When memory runs out, frees what is idle and tries again; then throws OutOfMemory.
    [[nodiscard, gnu::always_inline]] Buffer acquire(std::size_t bytes) {
        return {*core_, detail::take(*core_, bytes)};
    }
    /// Like acquire, but returns an empty buffer instead of throwing OutOfMemory.
    [[nodiscard, gnu::always_inline]] Buffer try_acquire(std::size_t bytes) {
        return {*core_, detail::take(*core_, bytes, 0, true)};
    }
    /// Like acquire, for elements of type T: where the pool separates types, only bytes that were
    /// last lent for T serve.
    template <Element T>
    [[nodiscard, gnu::always_inline]] Buffer acquire_for(std::size_t bytes) {
        check_alignment<T>();
        return {*core_, detail::take(*core_, bytes, type_of<T>())};
    }
    /// Like acquire, and every byte is zero. Fresh pages are not zeroed twice.
    [[nodiscard]] Buffer acquire_zeroed(std::size_t bytes) { return zeroed(bytes, 0); }

    /// Gives a buffer back and leaves it empty. Throws InvalidArgument, changing nothing, if it is
    /// empty, was released already, or belongs to another pool.
    void release(Buffer&& buffer);

    template <Element T, std::integral... E>
    [[nodiscard, gnu::always_inline]] Array<T, sizeof...(E)> array(E... extents) {
        return of_shape(Shape<T, sizeof...(E)>(extents...));
    }
    /// The same with extents known only at run time. Throws InvalidArgument if their number is not
    /// `Rank`.
    template <Element T, std::size_t Rank>
    [[nodiscard]] Array<T, Rank> array(std::span<const std::ptrdiff_t> extents) {
        if (extents.size() != Rank) detail::throw_rank_mismatch(extents.size(), Rank);
        return [&]<std::size_t... I>(std::index_sequence<I...>) {
            return of_shape(Shape<T, Rank>(extents[I]...));
        }
        (std::make_index_sequence<Rank>{});
    }
    template <Element T, std::integral... E>
    [[nodiscard]] Array<T, sizeof...(E)> zeros(E... extents) {
        const Shape<T, sizeof...(E)> shape(extents...);
        check_alignment<T>();
        return {zeroed(shape.bytes(), type_of<T>()), shape};
    }
    /// Several arrays at once; if one cannot be had, none is. Use with structured bindings.
    template <Element... T, std::size_t... Rank>
    [[nodiscard]] std::tuple<Array<T, Rank>...> arrays(const Shape<T, Rank>&... shapes) {
        return std::tuple<Array<T, Rank>...>{of_shape(shapes)...};
    }

private:
    friend class Pool;
    friend class StreamPool;
    friend struct detail::Interop;
    explicit Lender(detail::CoreFront* core) noexcept : core_(core) {}

    template <Element T>
    static std::size_t type_of() noexcept {
        return reinterpret_cast<std::size_t>(&detail::type_tag<T>);
    }
    template <Element T, std::size_t Rank>
    [[gnu::always_inline]] Array<T, Rank> of_shape(const Shape<T, Rank>& shape) {
        return {acquire_for<T>(shape.bytes()), shape};
    }
    /// Throws InvalidArgument for elements that need more alignment than the pool's blocks have.
    template <Element T>
    void check_alignment() const {
        if constexpr (alignof(T) > 64) {
            if (alignof(T) > core_->grain_mask + 1) {
                detail::throw_not_aligned(alignof(T), core_->grain_mask + 1);
            }
        }
    }
    Buffer zeroed(std::size_t bytes, std::size_t type);

    detail::CoreFront* core_;
};

class Pool : public Lender {
public:
    /// Throws InvalidArgument if the options make no sense, naming the value.
    explicit Pool(Memory memory = Memory::host(), PoolOptions options = {});
    // A handle always names a pool: moving copies it.
    Pool(const Pool&) = default;
    Pool& operator=(const Pool&) = default;
    ~Pool() = default;

    /// The same verbs in the order of a CUDA stream. Include cistern/stream.hpp to use it. Throws
    /// InvalidArgument for a memory without streams, or a stream of another device.
    [[nodiscard]] StreamPool on(Stream stream) const;

    /// Makes a buffer of this pool `bytes` bytes long; smaller ones never shrink. What it holds stays;
    /// its address may change. Where the memory allows, the pages stay too: what follows is added, or
    /// the pages are moved, so that only the new part is ever fetched. Throws like acquire and
    /// release, changing nothing.
    void grow(Buffer& buffer, std::size_t bytes);

    /// Gives the pool bytes that it did not allocate; it lends them and calls `deleter(data)` when
    /// it lets them go (at once, if a limit says so). Throws InvalidArgument if `data` is null or not
    /// aligned as the pool's blocks are, or `bytes` is no multiple of that (or not the size of a
    /// FixedBlock); then the bytes remain the caller's.
    void adopt(void* data, std::size_t bytes, std::function<void(void*)> deleter);

    /// A vector of size 0 with room for `capacity` elements. Include cistern/vector.hpp to use it.
    template <Element T>
    [[nodiscard]] Vector<T> vector(std::size_t capacity);

    /// Gives idle bytes back to the memory until at most `keep_idle_bytes` are left, the ones
    /// `PoolOptions::evict` names first. Returns how many bytes were given back.
    std::size_t trim(std::size_t keep_idle_bytes = 0);
    /// Takes effect at once: evicts what is above. Throws InvalidArgument, changing nothing, if the
    /// limits contradict each other or more than `max_bytes` are lent.
    void set_limits(const Limits& limits);
    /// Adds a function to call, with the bytes that are missing, before OutOfMemory is thrown. It may
    /// release buffers of any pool. It runs on the thread that ran out, with no lock held.
    void on_out_of_memory(std::function<void(std::size_t bytes)> callback);

    [[nodiscard]] PoolStats stats() const;
    [[nodiscard]] Explanation explain() const;
    /// The options as given, with the limits now in force.
    [[nodiscard]] PoolOptions options() const;
    [[nodiscard]] Memory memory() const;

    friend bool operator==(const Pool& a, const Pool& b) noexcept { return a.handle_ == b.handle_; }

private:
    friend struct detail::Interop;  // the C ABI and the allocators
    Buffer of_type(std::size_t bytes, std::size_t type);

    std::shared_ptr<detail::CoreFront> handle_;  // the last copy lets the pool go
};

/// The process's pool on host memory. Lives until the process ends.
Pool& default_pool();
/// The process's pool on this kind of memory, of this device. Throws Unavailable where there is none.
Pool& default_pool(MemoryKind kind, int device = 0);

std::ostream& operator<<(std::ostream& out, const Pool& pool);

}  // namespace cistern
