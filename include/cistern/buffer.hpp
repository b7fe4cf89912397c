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

class Core;
class Lender;
class Pool;
namespace detail {
struct Interop;
}

class Buffer {
public:
    Buffer() noexcept = default;
    Buffer(Buffer&& other) noexcept
        : block_(std::exchange(other.block_, nullptr)),
          generation_(other.generation_),
          slot_(other.slot_),
          rack_(other.rack_) {}
    Buffer& operator=(Buffer&& other) noexcept {
        Buffer(std::move(other)).swap(*this);
        return *this;
    }
    [[gnu::always_inline]] ~Buffer() {
        if (!empty()) detail::give(*block_, generation_, slot_, rack_);
    }

    [[nodiscard]] void* data() const noexcept { return empty() ? nullptr : block_->data; }
    [[nodiscard]] std::size_t size() const noexcept { return empty() ? 0 : block_->asked; }
    /// Returns the bytes of the block. Those beyond size() are waste: not the holder's to use.
    [[nodiscard]] std::size_t capacity() const noexcept { return empty() ? 0 : block_->bytes; }
    [[nodiscard]] bool empty() const noexcept { return block_ == nullptr; }
    /// Returns the memory the bytes are in. Throws InvalidArgument for an empty buffer.
    [[nodiscard]] Memory memory() const;

    /// Gives the bytes back now, as the destructor would; of an empty buffer, does nothing.
    void release() noexcept { Buffer().swap(*this); }

    void swap(Buffer& other) noexcept {
        std::swap(block_, other.block_);
        std::swap(generation_, other.generation_);
        std::swap(slot_, other.slot_);
        std::swap(rack_, other.rack_);
    }

private:
    friend class Lender;
    friend class Pool;
    friend class Core;
    friend struct detail::Interop;  // allocators hand out bare addresses
    [[gnu::always_inline]] Buffer(const detail::CoreFront& core,
                                  const detail::Loan& loan) noexcept {
        if (loan.block == nullptr) return;
        block_ = loan.block;
        generation_ = static_cast<std::uint32_t>(loan.block->generation) ^ loan.mark;
        slot_ = core.slot;
        rack_ = static_cast<std::uint16_t>(loan.rack);
    }

    // 16 bytes, because handles travel between threads too: each line of them is one to wait for.
    detail::BlockFront* block_ = nullptr;
    std::uint32_t generation_ = 0;  // the lower half of the block's, marked
    std::uint16_t slot_ = 0;        // of the pool, which keeps it while anything is lent
    std::uint16_t rack_ = 0;        // where the next acquire of these bytes will look first
};

}  // namespace cistern
