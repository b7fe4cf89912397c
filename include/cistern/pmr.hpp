#pragma once
// A pool for code that takes standard allocators, at any size.
//
//     PoolResource resource{pool};
//     std::pmr::vector<double> values{&resource};
//     std::vector<double, PoolAllocator<double>> more{PoolAllocator<double>{pool}};
//
// Thread-safe as the pool is. The pool lives at least as long as its resources and allocators.

#include <cstddef>
#include <memory_resource>
#include <new>

#include "cistern/pool.hpp"

namespace [[gnu::visibility("default")]] cistern {

namespace detail {
/// Lends bytes as a bare pointer; the handle is kept beside the pool. Throws OutOfMemory, or
/// InvalidArgument for an alignment that is no power of two.
void* allocate_from(Pool& pool, std::size_t bytes, std::size_t alignment);
void deallocate_to(Pool& pool, void* data, std::size_t bytes, std::size_t alignment) noexcept;
}  // namespace detail

class PoolResource : public std::pmr::memory_resource {
public:
    /// Throws InvalidArgument if the host cannot reach the pool's memory.
    explicit PoolResource(const Pool& pool = default_pool())
        : pool_(detail::of_host(pool, "a memory resource")) {}
    [[nodiscard]] const Pool& pool() const noexcept { return pool_; }

private:
    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
        return detail::allocate_from(pool_, bytes, alignment);
    }
    void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override {
        detail::deallocate_to(pool_, data, bytes, alignment);
    }
    [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
        const auto* resource = dynamic_cast<const PoolResource*>(&other);
        return resource != nullptr && resource->pool_ == pool_;
    }

    Pool pool_;
};

template <class T>
class PoolAllocator {
public:
    using value_type = T;

    PoolAllocator() : pool_(default_pool()) {}
    explicit PoolAllocator(const Pool& pool) noexcept : pool_(pool) {}
    template <class U>
    PoolAllocator(const PoolAllocator<U>& other) noexcept : pool_(other.pool()) {}

    [[nodiscard]] T* allocate(std::size_t count) {
        std::size_t bytes = 0;
        if (__builtin_mul_overflow(count, sizeof(T), &bytes)) throw std::bad_array_new_length();
        return static_cast<T*>(detail::allocate_from(pool_, bytes, alignof(T)));
    }
    void deallocate(T* data, std::size_t count) noexcept {
        detail::deallocate_to(pool_, data, count * sizeof(T), alignof(T));
    }
    [[nodiscard]] const Pool& pool() const noexcept { return pool_; }

    template <class U>
    friend bool operator==(const PoolAllocator& a, const PoolAllocator<U>& b) noexcept {
        return a.pool() == b.pool();
    }

private:
    Pool pool_;
};

}  // namespace cistern
