// Standard allocators hand back a bare pointer, so the loan is remembered beside the pool: a table from
// address to handle, in shards with a lock each. One table for the process; never destroyed.

#include "cistern/pmr.hpp"

#include <pthread.h>

#include <array>
#include <bit>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/size_class.hpp"

namespace cistern::detail {

namespace {

struct Shard {
    std::mutex lock;
    std::unordered_map<const void*, Buffer> loans;
};

using Shards = std::array<Shard, 64>;

Shards& shards() {
    static auto* const table = new Shards;
    return *table;
}

// A fork must not copy a shard that is being changed. Registered when the library is loaded: a fork
// that has begun does not run what is registered later.
[[maybe_unused]] const int registered_at_load = [] {
    const auto lock = [] {
        for (Shard& shard : shards()) shard.lock.lock();
    };
    const auto unlock = [] {
        for (Shard& shard : shards()) shard.lock.unlock();
    };
    return pthread_atfork(lock, unlock, unlock);
}();

Shard& shard_of(const void* data) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    return shards()[(address / smallest_grain * 0x9E3779B97F4A7C15U) >> 58];
}

}  // namespace

void* allocate_from(Pool& pool, std::size_t bytes, std::size_t alignment) {
    if (!std::has_single_bit(alignment)) {
        throw InvalidArgument("alignment is not a power of two: " + std::to_string(alignment));
    }
    // Blocks are aligned to 64 bytes at least; for more, take more and hand out a part.
    const std::size_t extra = alignment > smallest_grain ? alignment - smallest_grain : 0;
    std::size_t asked = 0;
    if (__builtin_add_overflow(bytes == 0 ? 1 : bytes, extra, &asked)) {
        throw OutOfMemory("more bytes than can be addressed: " + std::to_string(bytes) + " B");
    }
    Buffer buffer = pool.acquire(asked);
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
    auto* const data = static_cast<std::byte*>(buffer.data()) + (-address & (alignment - 1));
    Shard& shard = shard_of(data);
    const std::scoped_lock hold(shard.lock);
    shard.loans.emplace(data, std::move(buffer));
    return data;
}

void deallocate_to(Pool&, void* data, std::size_t, std::size_t) noexcept {
    Buffer buffer;  // released once the shard's lock is free
    Shard& shard = shard_of(data);
    const std::scoped_lock hold(shard.lock);
    const auto loan = shard.loans.find(data);
    if (loan == shard.loans.end()) return;
    buffer = std::move(loan->second);
    shard.loans.erase(loan);
}

}  // namespace cistern::detail
