#include "interop/handles.hpp"

#include <array>
#include <mutex>
#include <string>
#include <utility>

#include "interop/text.hpp"

namespace cistern::detail {

namespace {

constexpr std::array kind_names = {"nothing", "a pool", "a buffer", "a keyed pool"};
constexpr std::array kind_ends = {"gone", "destroyed", "released", "destroyed"};

constinit std::atomic<std::size_t> threads_seen{0};
constinit thread_local std::size_t number_of_thread = 0;  // from 1; 0 is not yet

[[maybe_unused]] const int registered_at_load = survive_fork<BufferTable>();

}  // namespace

void throw_invalid(Handle handle, HandleKind kind, std::uint64_t newest) {
    const auto wanted = static_cast<std::size_t>(kind);
    const auto found = static_cast<std::size_t>(handle.kind);
    const std::string text = text_in_hex(handle.number());
    if (handle.number() == 0) {
        throw InvalidHandle(std::string("the handle is null where ") + kind_names.at(wanted) +
                            " is needed: 0");
    }
    if (found != wanted) {
        throw InvalidHandle(std::string("the handle names ") + kind_names.at(found) + ", not " +
                            kind_names.at(wanted) + ": " + text);
    }
    if (handle.generation == 0 || handle.generation > newest) {
        throw InvalidHandle("the handle was never given out: " + text);
    }
    throw InvalidHandle(std::string("the handle names ") + kind_names.at(wanted) + " that was " +
                        kind_ends.at(wanted) + ": " + text);
}

std::size_t thread_number(std::size_t count) noexcept {
    // Relaxed: only the number matters.
    if (number_of_thread == 0) [[unlikely]]
        number_of_thread = threads_seen.fetch_add(1, std::memory_order_relaxed) + 1;
    return number_of_thread & (count - 1);
}

BufferTable& BufferTable::instance() noexcept {
    static auto* const table = new BufferTable;
    return *table;
}

std::uint64_t BufferTable::add(Buffer&& buffer) {
    const std::size_t index = thread_number(shard_count);
    Shard& shard = shards_[index];
    const std::scoped_lock hold(shard.lock);
    std::uint32_t local = shard.first_free;
    if (local == no_place) {
        local = static_cast<std::uint32_t>(shard.places.size());
        if (local == Handle::places / shard_count) {
            throw OutOfMemory("too many buffers of one thread on loan: limit " +
                              std::to_string(local));
        }
        shard.places.emplace_back();
    }
    Place& place = shard.places[local];
    shard.first_free = place.next_free;
    place.next_free = no_place;
    place.buffer.swap(buffer);
    place.lent = true;
    ++place.generation;
    return Handle{HandleKind::buffer, local * shard_count + index, place.generation}.number();
}

Buffer BufferTable::remove(std::uint64_t number) {
    const Handle handle = Handle::from(number);
    Shard& shard = shard_of(handle);
    const std::scoped_lock hold(shard.lock);
    Place& place = place_of(shard, handle);
    Buffer buffer = std::move(place.buffer);
    place.lent = false;
    if (place.generation != Handle::last_generation) {
        place.next_free =
            std::exchange(shard.first_free, static_cast<std::uint32_t>(handle.place / shard_count));
    }
    return buffer;
}

BufferTable::Place& BufferTable::place_of(Shard& shard, const Handle& handle) {
    const std::uint64_t local = handle.place / shard_count;
    if (handle.kind != HandleKind::buffer || local >= shard.places.size()) {
        throw_invalid(handle, HandleKind::buffer, 0);
    }
    Place& place = shard.places[local];
    if (place.generation != handle.generation || !place.lent) {
        throw_invalid(handle, HandleKind::buffer, place.generation);
    }
    return place;
}

void BufferTable::lock() noexcept {
    for (Shard& shard : shards_) shard.lock.lock();
}

void BufferTable::unlock() noexcept {
    for (Shard& shard : shards_) shard.lock.unlock();
}

}  // namespace cistern::detail
