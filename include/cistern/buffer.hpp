#pragma once
// A buffer is a block on loan: it returns itself when it goes out of scope, once, on any thread, even
// after the last handle of its pool is gone.
//
//     Buffer buffer = pool.acquire(1 << 20);
//     std::memset(buffer.data(), 0, buffer.size());
//
// Move-only. A moved-from, released or zero-byte buffer is empty().

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cistern/detail/front.hpp"
#include "cistern/memory.hpp"

namespace [[gnu::visibility("default")]] cistern {

class Pool;

class Buffer {
public:
    Buffer() noexcept = default;
    Buffer(Buffer&& other) noexcept
        : core_(other.core_),
          block_(std::exchange(other.block_, nullptr)),
          data_(std::exchange(other.data_, nullptr)),
          bytes_(std::exchange(other.bytes_, 0)),
          generation_(other.generation_),
          rack_(other.rack_) {}
    Buffer& operator=(Buffer&& other) noexcept {
        Buffer(std::move(other)).swap(*this);
        return *this;
    }
    [[gnu::always_inline]] ~Buffer() {
        if (block_ != nullptr) detail::give(*core_, *block_, generation_, bytes_, rack_);
    }

    [[nodiscard]] void* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
    /// Returns the bytes of the block. Those beyond size() are waste: not the holder's to use.
    [[nodiscard]] std::size_t capacity() const noexcept {
        return block_ == nullptr ? 0 : block_->bytes;
    }
    [[nodiscard]] bool empty() const noexcept { return block_ == nullptr; }
    /// Returns the memory the bytes are in. Throws InvalidArgument for an empty buffer.
    [[nodiscard]] Memory memory() const;

    /// Gives the bytes back now, as the destructor would; of an empty buffer, does nothing.
    void release() noexcept { Buffer().swap(*this); }

    void swap(Buffer& other) noexcept {
        std::swap(core_, other.core_);
        std::swap(block_, other.block_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(generation_, other.generation_);
        std::swap(rack_, other.rack_);
    }

private:
    friend class Pool;
    [[gnu::always_inline]] Buffer(detail::CoreFront& core, const detail::Loan& loan,
                                  std::size_t bytes) noexcept {
        if (loan.block == nullptr) return;
        core_ = &core;
        block_ = loan.block;
        data_ = loan.block->data;
        bytes_ = bytes;
        generation_ = loan.block->generation;
        rack_ = loan.rack;
    }

    detail::CoreFront* core_ = nullptr;
    detail::BlockFront* block_ = nullptr;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
    std::uint64_t generation_ = 0;
    std::size_t rack_ = 0;  // where the next acquire of these bytes will look first
};

}  // namespace cistern
