#pragma once
// The pools of the standard library, and Cistern behind the same interface.

#include <cistern/pmr.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <type_traits>
#include <utility>

namespace bench {

class ResourceLoan {
public:
    ResourceLoan(std::pmr::memory_resource& resource, std::size_t bytes)
        : resource_(&resource), data_(resource.allocate(bytes)), bytes_(bytes) {}
    ResourceLoan(ResourceLoan&& other) noexcept
        : resource_(other.resource_),
          data_(std::exchange(other.data_, nullptr)),
          bytes_(other.bytes_) {}
    ResourceLoan& operator=(ResourceLoan&& other) noexcept {
        std::swap(resource_, other.resource_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~ResourceLoan() {
        if (data_ != nullptr) resource_->deallocate(data_, bytes_);
    }
    [[nodiscard]] void* data() const { return data_; }

private:
    std::pmr::memory_resource* resource_;
    void* data_;
    std::size_t bytes_;
};

template <class Resource, bool AnyThread>
class ResourceSource {
public:
    static constexpr bool any_size = true;
    static constexpr bool any_thread = AnyThread;

    explicit ResourceSource(std::size_t /*bytes*/) {}

    [[gnu::always_inline]] ResourceLoan acquire(std::size_t bytes) { return {resource_, bytes}; }
    ResourceLoan acquire_zeroed(std::size_t bytes) {
        ResourceLoan loan = acquire(bytes);
        std::memset(loan.data(), 0, bytes);
        return loan;
    }

private:
    static Resource make() {
        if constexpr (std::is_constructible_v<Resource, std::pmr::pool_options>) {
            // As large as the library lets pools be (libstdc++: 4 MiB); the rest goes upstream.
            return Resource(std::pmr::pool_options{.max_blocks_per_chunk = 0,
                                                   .largest_required_pool_block = SIZE_MAX / 4});
        } else {
            return Resource(cistern::Pool{});
        }
    }
    Resource resource_ = make();
};

using PmrSynchronized = ResourceSource<std::pmr::synchronized_pool_resource, true>;
using PmrUnsynchronized = ResourceSource<std::pmr::unsynchronized_pool_resource, false>;
using CisternResource = ResourceSource<cistern::PoolResource, true>;

}  // namespace bench
