#pragma once
// One growing buffer per key: for loops that ask for the same few arrays again and again, in sizes
// that change.
//
//     KeyedPool pool;
//     for (const Cell& cell : cells) {
//         ArrayView<double, 2> coeff = pool.get<double>("coeff", cell.rows, 4033);
//         ...
//     }
//
// A request that fits in the bytes of the key's buffer is a hit, whatever its shape and type; one that
// does not is a grow, and keeps the pages. Every view is contiguous. A view lasts until its key grows
// or the pool is cleared; get_shared() gives one that lasts as long as it is held.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cistern/array.hpp"
#include "cistern/pool.hpp"
#include "cistern/presets.hpp"
#include "cistern/shape.hpp"

namespace [[gnu::visibility("default")]] cistern {

struct KeyStats {
    std::uint64_t hits = 0, misses = 0, grows = 0;  // the first request for a key is its miss
    friend bool operator==(const KeyStats&, const KeyStats&) = default;
};

/// What a thread gets that asks for a key which another living thread has asked for.
enum class SameKey {
    error,       // InvalidArgument
    own_buffer,  // a buffer of its own under the same key
};

struct KeyedOptions {
    SameKey same_key = SameKey::error;
};

/// A view that keeps its bytes alive.
template <Element T, std::size_t Rank>
struct SharedArray : ArrayView<T, Rank> {
    std::shared_ptr<const void> owner;
};

class KeyedPool {
public:
    /// Keeps its buffers in `pool`. Copies of the handle share one keyed pool. Thread-safe.
    explicit KeyedPool(const Pool& pool = Pool(Memory::host(), presets::keyed()),
                       KeyedOptions options = {});

    /// Returns the key's array in this shape and type, with whatever it held. Throws, counting and
    /// changing nothing: InvalidArgument for a negative extent, too many bytes or another thread's
    /// key; OutOfMemory.
    template <Element T, std::integral... E>
    [[nodiscard]] ArrayView<T, sizeof...(E)> get(std::string_view key, E... extents) {
        const Shape<T, sizeof...(E)> shape(extents...);
        void* const data = get_bytes(key, shape.bytes(), alignof(T));
        return {static_cast<T*>(data), shape.extents(), shape.elements()};
    }
    /// The same, and the bytes stay as they are while the array or a copy of it lives, also when
    /// the key grows or the pool is cleared.
    template <Element T, std::integral... E>
    [[nodiscard]] SharedArray<T, sizeof...(E)> get_shared(std::string_view key, E... extents) {
        const Shape<T, sizeof...(E)> shape(extents...);
        std::shared_ptr<const void> owner;
        void* const data = get_bytes(key, shape.bytes(), alignof(T), &owner);
        return {{static_cast<T*>(data), shape.extents(), shape.elements()}, std::move(owner)};
    }
    /// Returns `bytes` bytes; what the above are made of.
    void* get_bytes(std::string_view key, std::size_t bytes, std::size_t alignment = 1,
                    std::shared_ptr<const void>* owner = nullptr);

    /// Returns the counts of a key, all zero if nobody asked for it; of all keys.
    [[nodiscard]] KeyStats stats(std::string_view key) const;
    [[nodiscard]] std::map<std::string, KeyStats, std::less<>> stats() const;
    /// Returns the bytes of a key's buffers; of all keys'.
    [[nodiscard]] std::size_t memory_bytes(std::string_view key) const;
    [[nodiscard]] std::size_t memory_bytes() const;
    [[nodiscard]] std::vector<std::string> keys() const;
    /// Returns what the pool below holds and why, with a row for each key.
    [[nodiscard]] Explanation explain() const;
    /// Forgets every key, its buffers and its counts.
    void clear();

    [[nodiscard]] const Pool& pool() const noexcept;

    friend bool operator==(const KeyedPool&, const KeyedPool&) = default;

private:
    class State;
    std::shared_ptr<State> state_;
};

}  // namespace cistern
