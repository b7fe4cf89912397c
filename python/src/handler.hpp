#pragma once
// A NumPy memory handler (NEP 49) over a pool: what frees the arrays that the pool lends, and what NumPy
// allocates with where the pool serves NumPy itself.
//
// Every array's memory begins with a header, so that a free by bare pointer needs no table:
//
//     data - 64   the handle of the buffer (pooled only)
//     data - 16   a tag: who owns the bytes, and how many NumPy's allocator was asked for
//     data        what the user sees; 64-byte aligned if pooled
//
// The tag decides what a free does, never the size that NumPy passes to it. Nothing here calls Python,
// so a free may happen on any thread and while the interpreter ends.

#include <cstddef>

#include "cistern/pool.hpp"
#include "numpy_api.hpp"

namespace cistern::python {

/// Looks NumPy's own allocator up, for what is too small for the pool. To be called first.
void import_allocator() noexcept;

class Handler {
public:
    /// Serves requests of at least `min_bytes` from the pool, smaller ones from NumPy's allocator.
    Handler(Pool pool, std::size_t min_bytes);

    /// Returns a new capsule that NumPy takes as a handler; it owns the Handler.
    static PyObject* make(const Pool& pool, std::size_t min_bytes);
    /// Returns the Handler in one of our capsules.
    static Handler& of(PyObject* capsule) noexcept;
    /// Returns whether a capsule is one of ours.
    static bool ours(PyObject* capsule) noexcept;

    Pool& pool() noexcept { return pool_; }
    [[nodiscard]] std::size_t header_bytes() const noexcept { return header_bytes_; }

    /// Lends `bytes` bytes behind a header. Throws like Pool::acquire.
    [[gnu::always_inline]] void* lend(std::size_t bytes) {
        if (separate_types_) return lend_typed(bytes, 0, false);
        return place(pool_.acquire(bytes + header_bytes_));
    }
    void* lend_zeroed(std::size_t bytes);
    /// The same for one element type, where the pool separates types.
    void* lend_typed(std::size_t bytes, std::size_t type, bool zeroed);
    [[nodiscard]] bool separates_types() const noexcept { return separate_types_; }
    /// Gives back what lend() returned.
    static void give_back(void* data) noexcept;
    /// Makes what lend() returned longer; returns where it is now. Throws like Pool::grow.
    void* grow(void* data, std::size_t bytes);

    // What NumPy calls: nothing throws.
    static void* allocate(void* context, std::size_t bytes) noexcept;
    static void* allocate_zeroed(void* context, std::size_t count, std::size_t bytes) noexcept;
    static void* reallocate(void* context, void* data, std::size_t bytes) noexcept;
    static void release(void* context, void* data, std::size_t bytes) noexcept;

private:
    [[gnu::always_inline]] void* place(Buffer&& buffer) noexcept;

    PyDataMem_Handler numpy_;  // what the capsule points to: first, so that both have one address
    Pool pool_;
    std::size_t min_bytes_;
    std::size_t header_bytes_;
    bool separate_types_;
};

struct Tag {
    std::size_t bytes;  // that NumPy's allocator was asked for
    std::size_t owner;
};
inline constexpr std::size_t owned_by_pool = 0xC157'E211'B10C'0001;
inline constexpr std::size_t owned_by_numpy = 0xC157'E211'B10C'0002;
inline constexpr std::size_t least_header = 64;

inline Tag& tag_of(void* data) noexcept { return static_cast<Tag*>(data)[-1]; }
inline Buffer& handle_of(void* data) noexcept {
    return *reinterpret_cast<Buffer*>(static_cast<std::byte*>(data) - least_header);
}
static_assert(sizeof(Buffer) + sizeof(Tag) <= least_header);

inline void* Handler::place(Buffer&& buffer) noexcept {
    void* const data = static_cast<std::byte*>(buffer.data()) + header_bytes_;
    tag_of(data) = {0, owned_by_pool};
    new (&handle_of(data)) Buffer(std::move(buffer));
    return data;
}

inline void Handler::give_back(void* data) noexcept {
    // The handle leaves the bytes before they are returned.
    const Buffer buffer(std::move(handle_of(data)));
}

}  // namespace cistern::python
