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
    static constinit BufferTable table;
    return table;
}

std::uint32_t BufferTable::Shard::free_place() {
    if (first_free != no_place) return std::exchange(first_free, at(first_free).next_free);
    constexpr std::uint32_t limit = Handle::places / shard_count;
    if (used == limit) {
        throw OutOfMemory("too many buffers of one thread are on loan: limit " +
                          std::to_string(limit));
    }
    Place*& chunk = chunk_of(used);
    if (chunk == nullptr) chunk = new Place[std::bit_floor(used + first_chunk)];
    return used++;
}

std::uint64_t BufferTable::add(Buffer&& buffer) {
    const std::size_t index = thread_number(shard_count);
    Shard& shard = shards_[index];
    const std::scoped_lock hold(shard.lock);
    const std::uint32_t local = shard.free_place();
    Place& place = shard.at(local);
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
        place.next_free = std::exchange(shard.first_free, local_of(handle));
    }
    return buffer;
}

BufferTable::Place& BufferTable::place_of(Shard& shard, const Handle& handle) {
    if (handle.kind != HandleKind::buffer || local_of(handle) >= shard.used) {
        throw_invalid(handle, HandleKind::buffer, 0);
    }
    Place& place = shard.at(local_of(handle));
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
