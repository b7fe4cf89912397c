// Allocators hand back a bare pointer, so the loan is remembered beside the pool: a table from
// address to handle, in shards with a lock each. One table for the process; never destroyed. No
// pool is called while a shard is locked.

#include "interop/loans.hpp"

#include <pthread.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/size_class.hpp"
#include "cistern/pmr.hpp"
#include "interop/text.hpp"

namespace cistern::detail {

namespace {

using Loans = std::unordered_map<const void*, Buffer>;

// The table grows by hand, so that putting a node back never allocates.
struct Shard {
    std::mutex lock;
    Loans loans;

    Shard() {
        loans.max_load_factor(1e6F);
        loans.rehash(16);
    }
    void make_room() noexcept {
        if (loans.size() < loans.bucket_count()) return;
        try {
            loans.rehash(2 * loans.size());
        } catch (const std::bad_alloc&) {  // a crowded table still works
        }
    }
};

using Shards = std::array<Shard, 16>;

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
    return shards()[(address / smallest_grain * 0x9E3779B97F4A7C15U) >> 60];
}

std::size_t offset_in(const Buffer& buffer, const void* data) {
    return static_cast<std::size_t>(static_cast<const std::byte*>(data) -
                                    static_cast<const std::byte*>(buffer.data()));
}

/// Finds the loan at `data` in its locked shard.
Loans::iterator find_in(Shard& shard, const Pool& pool, const void* data) {
    const auto loan = shard.loans.find(data);
    if (loan == shard.loans.end()) {
        throw InvalidArgument("nothing is lent at this address: " + text_of_address(data));
    }
    if (!Interop::lent_by(pool, loan->second)) {
        throw InvalidArgument("what is lent at this address belongs to another pool: " +
                              text_of_address(data));
    }
    return loan;
}

/// Takes a loan out of the table.
Loans::node_type take_out(const Pool& pool, const void* data) {
    Shard& shard = shard_of(data);
    const std::scoped_lock hold(shard.lock);
    return shard.loans.extract(find_in(shard, pool, data));
}

/// Puts a loan in, at the address that it names.
void put_in(Loans::node_type&& loan) noexcept {
    Shard& shard = shard_of(loan.key());
    const std::scoped_lock hold(shard.lock);
    shard.loans.insert(std::move(loan));
    shard.make_room();
}

void* remember_at(void* data, Buffer&& buffer) {
    Shard& shard = shard_of(data);
    const std::scoped_lock hold(shard.lock);
    shard.loans.emplace(data, std::move(buffer));
    shard.make_room();
    return data;
}

void* grow(Pool& pool, void* data, std::size_t bytes) {
    Loans::node_type loan = take_out(pool, data);
    Buffer& buffer = loan.mapped();
    const std::size_t offset = offset_in(buffer, data);
    try {
        std::size_t asked = 0;
        if (__builtin_add_overflow(bytes, offset, &asked)) {
            throw OutOfMemory("more bytes than can be addressed: " + std::to_string(bytes) + " B");
        }
        pool.grow(buffer, asked);
    } catch (...) {
        put_in(std::move(loan));
        throw;
    }
    auto* const grown = static_cast<std::byte*>(buffer.data()) + offset;
    loan.key() = grown;
    put_in(std::move(loan));
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
    return remember_at(data, std::move(buffer));
}

void* remember(Buffer&& buffer) {
    void* const data = buffer.data();
    return remember_at(data, std::move(buffer));
}

Buffer recall(const void* data) noexcept {
    Shard& shard = shard_of(data);
    const std::scoped_lock hold(shard.lock);
    Loans::node_type loan = shard.loans.extract(data);
    return loan.empty() ? Buffer() : std::move(loan.mapped());
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
    const std::scoped_lock hold(shard.lock);
    const Buffer& buffer = find_in(shard, pool, data)->second;
    return buffer.size() - offset_in(buffer, data);
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
