// Allocators hand back a bare pointer, so the loan is remembered beside the pool: a table from address to
// block, in shards with a lock each. What a handle knows is kept in the block's descriptor, and so is the chain:
// to remember and to recall never allocates, and touches no line that the release does not need anyway but a
// bucket. One table for the process; never destroyed. No pool is called while a shard is locked.

#include "interop/loans.hpp"

#include <pthread.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "base/short_lock.hpp"
#include "base/size_class.hpp"
#include "cistern/pmr.hpp"
#include "interop/text.hpp"
#include "pool/block.hpp"

namespace cistern::detail {

bool Interop::lent_by(const Pool& pool, const Block& block) noexcept {
    return block.core == &core(pool);
}

Block& Interop::keep(Buffer&& buffer) noexcept {
    Block& block = block_of(*std::exchange(buffer.block_, nullptr));
    block.known = {.generation = buffer.generation_, .slot = buffer.slot_, .rack = buffer.rack_};
    return block;
}

Buffer Interop::restore(Block& block) noexcept {
    Buffer buffer;
    buffer.block_ = &block;
    buffer.generation_ = block.known.generation;
    buffer.slot_ = block.known.slot;
    buffer.rack_ = block.known.rack;
    return buffer;
}

namespace {

std::size_t hash_of(const void* data) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    return address / smallest_grain * 0x9E3779B97F4A7C15U;
}

class alignas(64) Shard {
public:
    void lock() noexcept { lock_.lock(); }
    void unlock() noexcept { lock_.unlock(); }

    /// Adds a loan by its address, and takes one out; null if there is none. The shard is locked.
    void add(Block& block, const void* address) noexcept {
        if (count_ >= bucket_count_) make_room();
        block.known.address = address;
        Block*& bucket = bucket_of(address);
        block.known.next = std::exchange(bucket, &block);
        ++count_;
    }
    Block* remove(const void* address) noexcept {
        Block** const link = find(address);
        Block* const block = *link;
        if (block == nullptr) return nullptr;
        *link = block->known.next;
        --count_;
        return block;
    }
    /// The link to the loan at an address, or to null.
    [[nodiscard]] Block** find(const void* address) noexcept {
        Block** link = &bucket_of(address);
        while (*link != nullptr && (*link)->known.address != address) link = &(*link)->known.next;
        return link;
    }

private:
    [[nodiscard]] Block*& bucket_of(const void* address) noexcept {
        return buckets_[(hash_of(address) >> 20) & (bucket_count_ - 1)];
    }
    /// Twice as many buckets. Without memory for them a crowded table still works.
    void make_room() noexcept {
        auto* const more = new (std::nothrow) Block*[2 * bucket_count_]();
        if (more == nullptr) return;
        Block** const old = std::exchange(buckets_, more);
        const std::size_t old_count = std::exchange(bucket_count_, 2 * bucket_count_);
        for (std::size_t i = 0; i < old_count; ++i) {
            while (Block* const block = old[i]) {
                old[i] = block->known.next;
                block->known.next = std::exchange(bucket_of(block->known.address), block);
            }
        }
        if (old != first_.data()) delete[] old;
    }

    ShortLock lock_;
    std::size_t count_ = 0, bucket_count_ = 16;
    std::array<Block*, 16> first_{};
    Block** buckets_ = first_.data();
};

// Needs no destruction: what is lent may be given back while the process exits.
constinit std::array<Shard, 16> shards;
static_assert(std::is_trivially_destructible_v<Shard>);

// A fork must not copy a shard that is being changed. Registered when the library is loaded: a fork
// that has begun does not run what is registered later.
[[maybe_unused]] const int registered_at_load = [] {
    const auto lock = [] {
        for (Shard& shard : shards) shard.lock();
    };
    const auto unlock = [] {
        for (Shard& shard : shards) shard.unlock();
    };
    return pthread_atfork(lock, unlock, unlock);
}();

Shard& shard_of(const void* data) { return shards[hash_of(data) >> 60]; }

std::size_t offset_in(const Block& block, const void* data) {
    return static_cast<std::size_t>(static_cast<const std::byte*>(data) - block.begin());
}

/// The link to the loan at `data` in its locked shard.
Block** find_in(Shard& shard, const Pool& pool, const void* data) {
    Block** const link = shard.find(data);
    if (*link == nullptr) {
        throw InvalidArgument("nothing is lent at this address: " + text_of_address(data));
    }
    if (!Interop::lent_by(pool, **link)) {
        throw InvalidArgument("what is lent at this address belongs to another pool: " +
                              text_of_address(data));
    }
    return link;
}

/// Takes a loan out of the table.
Buffer take_out(const Pool& pool, const void* data) {
    Shard& shard = shard_of(data);
    const std::scoped_lock hold(shard);
    find_in(shard, pool, data);
    return Interop::restore(*shard.remove(data));
}

/// Puts a loan in, at an address.
void put_in(void* data, Buffer&& buffer) noexcept {
    Block& block = Interop::keep(std::move(buffer));
    Shard& shard = shard_of(data);
    const std::scoped_lock hold(shard);
    shard.add(block, data);
}

void* grow(Pool& pool, void* data, std::size_t bytes) {
    Buffer buffer = take_out(pool, data);
    const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(data) -
                                                 static_cast<std::byte*>(buffer.data()));
    try {
        std::size_t asked = 0;
        if (__builtin_add_overflow(bytes, offset, &asked)) {
            throw OutOfMemory("more bytes than can be addressed: " + std::to_string(bytes) + " B");
        }
        pool.grow(buffer, asked);
    } catch (...) {
        put_in(data, std::move(buffer));
        throw;
    }
    auto* const grown = static_cast<std::byte*>(buffer.data()) + offset;
    put_in(grown, std::move(buffer));
    return grown;
}

}  // namespace

void* lend(Pool& pool, std::size_t bytes, std::size_t alignment, bool zeroed) {
    if (!std::has_single_bit(alignment)) {
        throw InvalidArgument("alignment is not a power of two: " + std::to_string(alignment));
    }
    // Blocks are aligned to 64 bytes at least; for more, take more and hand out a part.
    const std::size_t extra = alignment > smallest_grain ? alignment - smallest_grain : 0;
    std::size_t asked = 0;
    if (__builtin_add_overflow(bytes == 0 ? 1 : bytes, extra, &asked)) {
        throw OutOfMemory("more bytes than can be addressed: " + std::to_string(bytes) + " B");
    }
    Buffer buffer = zeroed ? pool.acquire_zeroed(asked) : pool.acquire(asked);
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
    auto* const data = static_cast<std::byte*>(buffer.data()) + (-address & (alignment - 1));
    put_in(data, std::move(buffer));
    return data;
}

void* remember(Buffer&& buffer) noexcept {
    void* const data = buffer.data();
    put_in(data, std::move(buffer));
    return data;
}

Buffer recall(const void* data) noexcept {
    Shard& shard = shard_of(data);
    const std::scoped_lock hold(shard);
    Block* const block = shard.remove(data);
    return block == nullptr ? Buffer() : Interop::restore(*block);
}

void visit_loan(const void* data, const std::function<void(Buffer&)>& use) {
    Buffer buffer = recall(data);
    if (buffer.empty()) {
        throw InvalidArgument("nothing is lent at this address: " + text_of_address(data));
    }
    try {
        use(buffer);
    } catch (...) {
        remember(std::move(buffer));
        throw;
    }
    remember(std::move(buffer));
}

void take_back(const Pool& pool, void* data) { take_out(pool, data); }

std::size_t usable_bytes(const Pool& pool, const void* data) {
    Shard& shard = shard_of(data);
    const std::scoped_lock hold(shard);
    const Block& block = **find_in(shard, pool, data);
    return block.asked - offset_in(block, data);
}

void* resize(Pool& pool, void* data, std::size_t bytes) {
    const std::size_t usable = usable_bytes(pool, data);
    if (bytes > usable) return grow(pool, data, bytes);
    if (bytes >= usable / 2 || !pool.memory().host_accessible()) return data;
    void* moved = nullptr;
    try {
        moved = lend(pool, bytes, smallest_grain, false);
    } catch (const OutOfMemory&) {
        return data;  // they are enough where they are
    }
    std::memcpy(moved, data, bytes);
    take_back(pool, data);
    return moved;
}

void* allocate_from(Pool& pool, std::size_t bytes, std::size_t alignment) {
    return lend(pool, bytes, alignment, false);
}

void deallocate_to(Pool&, void* data, std::size_t, std::size_t) noexcept { recall(data); }

}  // namespace cistern::detail
