#pragma once
// A pool behind the two interfaces of CUDA's C++ libraries: a memory resource of CCCL (cuda::mr), and an
// allocator for thrust::device_vector and for the temporary memory of Thrust's algorithms. Needs the CUDA
// toolkit; the rest of Cistern does not.
//
//     cistern::cuda_resource resource;                             // the process's pool on device 0
//     void* data = resource.allocate_async(bytes, 256, stream);
//     cuda::mr::async_resource_ref<cuda::mr::device_accessible> ref = resource;
//
//     thrust::device_vector<float, cistern::thrust_allocator<float>> values(n);
//     thrust::sort(thrust::cuda::par_nosync(cistern::thrust_allocator<char>(pool, stream)).on(stream), ...);

// CCCL hides its resources behind this until 3.1: include this header before CCCL's and Thrust's.
#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif

#include <thrust/device_malloc_allocator.h>

#include <cstddef>
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <new>
#include <utility>

#include "cistern/pool.hpp"

namespace [[gnu::visibility("default")]] cistern {

namespace detail {
/// Lends in a stream's order and remembers the loan by its address. Throws as Pool::acquire and Pool::on.
void* allocate_on(const Pool& pool, std::size_t bytes, std::size_t alignment, void* stream);
/// The same for use on any stream at once: waits for the last user.
void* allocate_settled(const Pool& pool, std::size_t bytes, std::size_t alignment);
void deallocate_on(void* data) noexcept;
/// The same when work on this stream may still use the bytes. Returns whether they were on loan.
bool deallocate_on(void* data, void* stream) noexcept;
}  // namespace detail

class cuda_resource {
public:
    explicit cuda_resource(Pool pool = default_pool(MemoryKind::device)) : pool_(std::move(pool)) {}

    void* allocate(std::size_t bytes, std::size_t alignment = default_alignment) {
        return detail::allocate_settled(pool_, bytes, alignment);
    }
    void deallocate(void* data, std::size_t /*bytes*/, std::size_t = default_alignment) noexcept {
        detail::deallocate_on(data);
    }
    void* allocate_async(std::size_t bytes, std::size_t alignment, ::cuda::stream_ref stream) {
        return detail::allocate_on(pool_, bytes, alignment, stream.get());
    }
    void* allocate_async(std::size_t bytes, ::cuda::stream_ref stream) {
        return allocate_async(bytes, default_alignment, stream);
    }
    /// The bytes are lent again after the work of this stream and of the one they were acquired on.
    void deallocate_async(void* data, std::size_t, std::size_t,
                          ::cuda::stream_ref stream) noexcept {
        detail::deallocate_on(data, stream.get());
    }
    void deallocate_async(void* data, std::size_t, ::cuda::stream_ref stream) noexcept {
        detail::deallocate_on(data, stream.get());
    }

    // The same under the names that CCCL has from 3.1 on.
    void* allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment) {
        return allocate(bytes, alignment);
    }
    void deallocate_sync(void* data, std::size_t, std::size_t = default_alignment) noexcept {
        detail::deallocate_on(data);
    }
    void* allocate(::cuda::stream_ref stream, std::size_t bytes,
                   std::size_t alignment = default_alignment) {
        return allocate_async(bytes, alignment, stream);
    }
    void deallocate(::cuda::stream_ref stream, void* data, std::size_t,
                    std::size_t = default_alignment) noexcept {
        detail::deallocate_on(data, stream.get());
    }

    [[nodiscard]] const Pool& pool() const noexcept { return pool_; }
    friend bool operator==(const cuda_resource& a, const cuda_resource& b) noexcept {
        return a.pool_ == b.pool_;
    }
    friend bool operator!=(const cuda_resource& a, const cuda_resource& b) noexcept {
        return !(a == b);
    }
    friend constexpr void get_property(const cuda_resource&,
                                       ::cuda::mr::device_accessible) noexcept {}

private:
    static constexpr std::size_t default_alignment = 256;
    Pool pool_;
};

/// In the order of one stream, the default one unless told otherwise.
template <class T>
class thrust_allocator : public ::thrust::device_malloc_allocator<T> {
    using Base = ::thrust::device_malloc_allocator<T>;

public:
    using value_type = T;
    using pointer = typename Base::pointer;
    using size_type = typename Base::size_type;
    template <class U>
    struct rebind {
        using other = thrust_allocator<U>;
    };

    explicit thrust_allocator(Pool pool = default_pool(MemoryKind::device), void* stream = nullptr)
        : pool_(std::move(pool)), stream_(stream) {}
    template <class U>
    thrust_allocator(const thrust_allocator<U>& other)
        : pool_(other.pool()), stream_(other.stream()) {}

    pointer allocate(size_type count) {
        std::size_t bytes = 0;
        if (__builtin_mul_overflow(count, sizeof(T), &bytes)) throw std::bad_array_new_length();
        return pointer(static_cast<T*>(detail::allocate_on(pool_, bytes, alignof(T), stream_)));
    }
    void deallocate(pointer data, size_type) noexcept {
        detail::deallocate_on(::thrust::raw_pointer_cast(data));
    }

    [[nodiscard]] const Pool& pool() const noexcept { return pool_; }
    [[nodiscard]] void* stream() const noexcept { return stream_; }
    friend bool operator==(const thrust_allocator& a, const thrust_allocator& b) noexcept {
        return a.pool_ == b.pool_ && a.stream_ == b.stream_;
    }
    friend bool operator!=(const thrust_allocator& a, const thrust_allocator& b) noexcept {
        return !(a == b);
    }

private:
    Pool pool_;
    void* stream_;
};

}  // namespace cistern
