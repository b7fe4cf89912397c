#pragma once
// Handles of the C ABI: numbers that name a place in a table and the generation of what stands there.
// Tables are never freed and a number is never given out twice, so a stale handle always shows.
//
//     handle = generation (33 bits), place (28 bits), kind (2 bits); never 0, never negative
//
// A place whose generations are used up is not used again.

#include <pthread.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/short_lock.hpp"
#include "cistern/buffer.hpp"
#include "cistern/error.hpp"

namespace cistern::detail {

enum class HandleKind : std::uint8_t { none, pool, buffer, keyed };

struct Handle {
    HandleKind kind = HandleKind::none;
    std::uint64_t place = 0;
    std::uint64_t generation = 0;

    static constexpr std::uint64_t places = std::uint64_t{1} << 28;
    static constexpr std::uint64_t last_generation = (std::uint64_t{1} << 33) - 1;

    static Handle from(std::uint64_t number) noexcept {
        return {static_cast<HandleKind>(number & 3), number >> 2 & (places - 1), number >> 30};
    }
    [[nodiscard]] std::uint64_t number() const noexcept {
        return generation << 30 | place << 2 | static_cast<std::uint64_t>(kind);
    }
};

class InvalidHandle : public InvalidArgument {
public:
    using InvalidArgument::InvalidArgument;
};

/// Says what is wrong with a handle that does not name a live `kind`; `newest` is the last generation
/// at its place.
[[noreturn]] void throw_invalid(Handle handle, HandleKind kind, std::uint64_t newest);

/// Returns a number from 0 to `count` - 1 (a power of two), the same for each call of a thread.
std::size_t thread_number(std::size_t count) noexcept;

/// Keeps a fork from copying a table that is being changed. To be called when the library is loaded: a
/// fork that has begun does not run what is registered later.
template <class AnyTable>
int survive_fork() {
    const auto lock = [] { AnyTable::instance().lock(); };
    const auto unlock = [] { AnyTable::instance().unlock(); };
    return pthread_atfork(lock, unlock, unlock);
}

/// Buffers on loan. Each thread takes places from its own shard; a handle knows its shard.
class BufferTable {
public:
    static BufferTable& instance() noexcept;
    constexpr BufferTable() = default;

    /// Throws std::bad_alloc; then the buffer is released.
    std::uint64_t add(Buffer&& buffer);
    /// Returns what the handle named, which it then no longer does. Throws InvalidHandle.
    Buffer remove(std::uint64_t number);
    /// Returns read(buffer), called while the buffer cannot be released. Throws InvalidHandle.
    template <class Read>
    auto read(std::uint64_t number, Read&& read) {
        const Handle handle = Handle::from(number);
        Shard& shard = shard_of(handle);
        const std::scoped_lock hold(shard.lock);
        return read(std::as_const(place_of(shard, handle).buffer));
    }

    /// Calls change(buffer), while the buffer cannot be released. Throws InvalidHandle.
    template <class Change>
    void change(std::uint64_t number, Change&& change) {
        const Handle handle = Handle::from(number);
        Shard& shard = shard_of(handle);
        const std::scoped_lock hold(shard.lock);
        change(place_of(shard, handle).buffer);
    }

    void lock() noexcept;  // for fork
    void unlock() noexcept;

private:
    static constexpr std::size_t shard_count = 16;
    static constexpr std::uint32_t no_place = ~std::uint32_t{0};
    struct Place {
        Buffer buffer;
        std::uint64_t generation = 0;  // of the handle that is out, or was last
        std::uint32_t next_free = no_place;
        bool lent = false;
    };
    static constexpr std::uint32_t first_chunk = 64;
    struct alignas(64) Shard {
        ShortLock lock;
        std::uint32_t used = 0;
        std::uint32_t first_free = no_place;
        std::array<Place*, 19> chunks{};  // each twice as long as the one before

        Place*& chunk_of(std::uint32_t local) noexcept {
            return chunks[static_cast<std::size_t>(std::bit_width(local + first_chunk) -
                                                   std::bit_width(first_chunk))];
        }
        Place& at(std::uint32_t local) noexcept {
            const std::uint32_t number = local + first_chunk;
            return chunk_of(local)[number - std::bit_floor(number)];
        }
        /// Returns the number of a place that is free. Throws OutOfMemory.
        std::uint32_t free_place();
    };
    Shard& shard_of(const Handle& handle) noexcept { return shards_[handle.place % shard_count]; }
    static std::uint32_t local_of(const Handle& handle) noexcept {
        return static_cast<std::uint32_t>(handle.place / shard_count);
    }
    static Place& place_of(Shard& shard, const Handle& handle);

    std::array<Shard, shard_count> shards_;
};

/// Things that are used far more often than made. A thread that uses one counts itself in, on a
/// counter few others touch; what is removed meanwhile goes with the last that leaves.
template <class Thing, HandleKind Kind>
class Table {
    enum Stage : std::uint64_t { free = 0, live = 1, dying = 2 };
    struct alignas(64) Count {
        std::atomic<std::uint32_t> inside{0};
    };
    struct Place {
        std::array<Count, 16> counts;
        std::atomic<std::uint64_t> state{0};  // generation * 4 + stage
        std::optional<Thing> thing;
        Place* next_free = nullptr;
        std::uint64_t number = 0;
    };

public:
    static constexpr std::uint64_t place_count = 1 << 16;

    static Table& instance() noexcept {
        static constinit Table table;
        return table;
    }
    constexpr Table() = default;

    /// Throws OutOfMemory if there are too many.
    std::uint64_t add(Thing thing) {
        const std::scoped_lock hold(lock_);
        Place* place = first_free_;
        if (place != nullptr) {
            first_free_ = place->next_free;
        } else {
            if (used_ == place_count) {
                throw OutOfMemory("too many handles of this kind: " + std::to_string(used_) +
                                  ", limit " + std::to_string(place_count));
            }
            place = new Place;
            place->number = used_;
            places_[used_++].store(place, std::memory_order_release);
        }
        place->thing.emplace(std::move(thing));
        const std::uint64_t generation = (place->state.load(std::memory_order_relaxed) >> 2) + 1;
        place->state.store(generation << 2 | live);
        return Handle{Kind, place->number, generation}.number();
    }

    /// Ends a handle. Throws InvalidHandle.
    void remove(std::uint64_t number) {
        const Handle handle = Handle::from(number);
        Place& place = place_of(handle);
        std::uint64_t state = handle.generation << 2 | live;
        if (!place.state.compare_exchange_strong(state, handle.generation << 2 | dying)) {
            throw_invalid(handle, Kind, state >> 2);
        }
        bury_if_left(place);
    }

    /// Keeps a thing while it lives. Throws InvalidHandle.
    class Visit {
    public:
        Visit(Table& table, std::uint64_t number)
            : table_(table),
              place_(table.place_of(Handle::from(number))),
              count_(place_.counts[thread_number(place_.counts.size())]) {
            // The order of these two and of the two in remove() is total: either this sees that the
            // thing is dying, or bury_if_left() sees that someone is inside.
            count_.inside.fetch_add(1);
            const Handle handle = Handle::from(number);
            const std::uint64_t state = place_.state.load();
            if (state == (handle.generation << 2 | live)) return;
            leave();
            throw_invalid(handle, Kind, state >> 2);
        }
        Visit(const Visit&) = delete;
        Visit& operator=(const Visit&) = delete;
        ~Visit() { leave(); }
        Thing& operator*() const noexcept { return *place_.thing; }
        Thing* operator->() const noexcept { return &*place_.thing; }

    private:
        void leave() noexcept {
            count_.inside.fetch_sub(1);
            if ((place_.state.load() & 3) == dying) [[unlikely]]
                table_.bury_if_left(place_);
        }
        Table& table_;
        Place& place_;
        Count& count_;
    };
    Visit visit(std::uint64_t number) { return Visit(*this, number); }

    void lock() noexcept { lock_.lock(); }  // for fork
    void unlock() noexcept { lock_.unlock(); }

private:
    Place& place_of(const Handle& handle) {
        Place* const place = handle.kind == Kind && handle.place < place_count
                                 ? places_[handle.place].load(std::memory_order_acquire)
                                 : nullptr;
        if (place == nullptr) throw_invalid(handle, Kind, 0);
        return *place;
    }

    void bury_if_left(Place& place) noexcept {
        std::uint64_t state = place.state.load();
        if ((state & 3) != dying) return;
        for (const Count& count : place.counts) {
            if (count.inside.load() != 0) return;  // whoever it is buries when leaving
        }
        const std::uint64_t generation = state >> 2;
        // One of those who found it empty wins; the thing is the winner's alone.
        if (!place.state.compare_exchange_strong(state, generation << 2 | free)) return;
        place.thing.reset();
        if (generation == Handle::last_generation) return;
        const std::scoped_lock hold(lock_);
        place.next_free = first_free_;
        first_free_ = &place;
    }

    std::mutex lock_;
    std::uint64_t used_ = 0;
    Place* first_free_ = nullptr;
    std::array<std::atomic<Place*>, place_count> places_{};
};

}  // namespace cistern::detail
