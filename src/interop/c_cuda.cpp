// The C ABI on CUDA's memories, and the hooks that others' allocators call.

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <vector>

#include "cistern/cistern.h"
#include "cistern/stream.hpp"
#include "interop/c_call.hpp"
#include "interop/loans.hpp"
#include "interop/open_lanes.hpp"
#include "interop/text.hpp"
#include "memory/cuda_streams.hpp"
#include "memory/stream_order.hpp"
#include "pool/core.hpp"

namespace cistern::detail {
// What cistern/cuda_resource.hpp calls; that header needs the toolkit.
[[gnu::visibility("default")]] void* allocate_on(const Pool& pool, std::size_t bytes,
                                                 std::size_t alignment, void* stream);
[[gnu::visibility("default")]] void* allocate_settled(const Pool& pool, std::size_t bytes,
                                                      std::size_t alignment);
[[gnu::visibility("default")]] void deallocate_on(void* data) noexcept;
[[gnu::visibility("default")]] bool deallocate_on(void* data, void* stream) noexcept;
}  // namespace cistern::detail

namespace cistern::detail {

Core& Interop::core(const Pool& pool) noexcept { return core_of(*pool.handle_); }

Buffer Interop::lend(CoreFront& lane, std::size_t bytes) { return Lender(&lane).acquire(bytes); }

CoreFront* Interop::by_default(const Pool& pool) noexcept {
    CoreFront& front = *pool.handle_;
    return lane_of(front).ordered() ? &front : nullptr;
}

std::shared_ptr<CoreFront> Interop::open_any(const Pool& pool, void* stream) {
    return core(pool).on(stream, pool.handle_, true);
}

namespace {

Memory memory_of(std::int32_t kind, std::int32_t device) {
    return Memory::of(static_cast<MemoryKind>(kind), device);
}

static_assert(static_cast<int>(MemoryKind::host) == CISTERN_HOST &&
              static_cast<int>(MemoryKind::pinned) == CISTERN_PINNED &&
              static_cast<int>(MemoryKind::device) == CISTERN_DEVICE &&
              static_cast<int>(MemoryKind::managed) == CISTERN_MANAGED);

/// Handles of the process's pools, by kind and device.
class Defaults {
public:
    std::uint64_t handle(std::int32_t kind, std::int32_t device) {
        const std::scoped_lock hold(lock_);
        if (const auto found = handles_.find({kind, device}); found != handles_.end()) {
            return found->second;
        }
        memory_of(kind, device);  // refuses what does not exist
        const Pool& pool = default_pool(static_cast<MemoryKind>(kind), device);
        const std::uint64_t handle = PoolTable::instance().add(pool);
        handles_.emplace(std::pair{kind, device}, handle);
        pools_.push_back(pool);
        return handle;
    }
    bool contains(const Pool& pool) {
        const std::scoped_lock hold(lock_);
        for (const Pool& known : pools_) {
            if (known == pool) return true;
        }
        return pool == default_pool();
    }
    static Defaults& instance() {
        static auto* const all = new Defaults;
        return *all;
    }

private:
    std::mutex lock_;
    std::map<std::pair<std::int32_t, std::int32_t>, std::uint64_t> handles_;
    std::vector<Pool> pools_;
};

const StreamOrder& order_of(const Memory& memory) {
    const auto* const order = dynamic_cast<const StreamOrder*>(memory.source().get());
    if (order != nullptr) return *order;
    throw InvalidArgument("memory '" + memory.name() + "' is used in no stream's order");
}

void check_alignment(const Pool& pool, std::size_t alignment) {
    const std::size_t most = pool.options().alignment;
    if (std::has_single_bit(alignment) && alignment <= most) return;
    throw InvalidArgument("alignment is no power of two, or more than the pool's: " +
                          std::to_string(alignment) + ", pool " + std::to_string(most));
}

/// A stream that nobody vouches for: it may be destroyed before the buffer is released.
StreamInfo fleeting(const Memory& memory, void* stream) {
    StreamInfo info = order_of(memory).look_at(stream);
    info.fleeting = true;
    return info;
}

/// Returns this thread's lane of a stream, kept open because the next call comes soon. Streams may come
/// and go meanwhile; a lane is known by its stream's number, which no other ever has. It does not keep the pool:
/// only its lanes stay when that is gone.
CoreFront& open_lane(const Pool& pool, std::uint64_t id, void* stream) {
    struct Open {
        std::uint64_t stream;
        std::shared_ptr<CoreFront> lane;
    };
    constexpr std::size_t most_kept = 64;
    thread_local std::vector<Open> lanes;
    const Core& core = Interop::core(pool);
    for (const Open& open : lanes) {
        if (open.stream == id && &core_of(*open.lane) == &core) return *open.lane;
    }
    std::erase_if(lanes, [](const Open& open) { return core_of(*open.lane).retired(); });
    if (lanes.size() == most_kept) lanes.erase(lanes.begin());
    lanes.push_back({id, Interop::open_any(pool, stream)});
    return *lanes.back().lane;
}

[[gnu::noinline]] Buffer acquire_on_other(const Pool& pool, std::size_t bytes, void* stream) {
    const StreamInfo info = order_of(pool.memory()).look_at(stream);
    if (info.capture == 0) return Interop::lend(open_lane(pool, info.id, stream), bytes);
    const std::shared_ptr<CoreFront> lane = Interop::open_any(pool, stream);
    return Interop::lend(*lane, bytes);
}

/// Says that a stream works with a buffer which another one's order has.
[[gnu::noinline]] void use_on_other(Buffer& buffer, void* stream) noexcept {
    const auto* const order = dynamic_cast<const StreamOrder*>(buffer.memory().source().get());
    if (order == nullptr) return;
    StreamInfo user{.fleeting = true};  // some stream
    try {
        user = fleeting(buffer.memory(), stream);
    } catch (const InvalidArgument&) {  // another device's
        cuda::wait_for(stream);
    } catch (const std::exception&) {  // its capture has failed
    }
    try {
        Core::mark_used(buffer, user);
    } catch (const std::bad_alloc&) {
        (void)order->wait_for_all();
    }
}

}  // namespace

// What hooks call for each array is short here; all else is out of line.

Buffer acquire_on_any(const Pool& pool, std::size_t bytes, void* stream) {
    if (cuda::is_legacy(stream)) {  // which is never captured, and never gone: nothing to ask for
        if (CoreFront* const lane = Interop::by_default(pool)) return Interop::lend(*lane, bytes);
    }
    return acquire_on_other(pool, bytes, stream);
}

void* allocate_on(const Pool& pool, std::size_t bytes, std::size_t alignment, void* stream) {
    check_alignment(pool, alignment);
    // Zero bytes have an address too: some callers take null for a failure.
    return remember(acquire_on_any(pool, std::max<std::size_t>(bytes, 1), stream));
}

void* allocate_settled(const Pool& pool, std::size_t bytes, std::size_t alignment) {
    check_alignment(pool, alignment);
    Buffer buffer = Pool(pool).acquire(std::max<std::size_t>(bytes, 1));
    if (const auto* const order = dynamic_cast<StreamOrder*>(pool.memory().source().get())) {
        void* const event = order->make_event();
        try {
            const StreamInfo legacy = order->look_at(nullptr);
            if (!order->record(event, legacy)) throw DeviceError(captured_beside);
        } catch (...) {
            order->drop_event(event);
            throw;
        }
        const bool waited = order->wait_on_host(event);
        order->drop_event(event);
        if (!waited) throw DeviceError(captured_beside);
    }
    return remember(std::move(buffer));
}

void deallocate_on(void* data) noexcept {
    if (data != nullptr) recall(data);
}

bool deallocate_on(void* data, void* stream) noexcept {
    Buffer buffer = recall(data);
    if (buffer.empty()) return false;
    // Each thread's default stream has the same handle.
    if (cuda::is_per_thread(stream) || !Core::lent_on(buffer, stream)) use_on_other(buffer, stream);
    return true;
}

void hand_over(Buffer& buffer, void* stream) {
    const StreamInfo info = fleeting(buffer.memory(), stream);
    Core::mark_used(buffer, info);
    Core::follow(buffer, info);
}

bool is_default(const Pool& pool) { return Defaults::instance().contains(pool); }

}  // namespace cistern::detail

using namespace cistern;
using detail::call;
using detail::status_of;
using detail::visit_pool;

int cistern_cuda_available() { return cuda_available() ? 1 : 0; }

cistern_pool cistern_pool_create_on(int32_t memory, int32_t device,
                                    const cistern_options* options) {
    return call([&] {
        return detail::PoolTable::instance().add(
            Pool(detail::memory_of(memory, device), detail::read_options(options)));
    });
}

cistern_pool cistern_default_pool_on(int32_t memory, int32_t device) {
    if (memory == CISTERN_HOST) return cistern_default_pool();
    return call([&] { return detail::Defaults::instance().handle(memory, device); });
}

cistern_buffer cistern_acquire_on(cistern_pool pool, size_t bytes, void* stream) {
    return call([&] {
        const auto visit = visit_pool(pool);
        return detail::BufferTable::instance().add(detail::acquire_on_any(*visit, bytes, stream));
    });
}

cistern_status cistern_also_used_on(cistern_buffer buffer, void* stream) {
    return status_of([&] {
        auto& table = detail::BufferTable::instance();
        const Memory memory = table.read(buffer, [](const Buffer& lent) { return lent.memory(); });
        const StreamInfo info = detail::fleeting(memory, stream);
        table.change(buffer, [&](Buffer& lent) { Core::mark_used(lent, info); });
    });
}

void* cistern_cuda_malloc(ptrdiff_t bytes, int device, void* stream) {
    return call([&]() -> void* {
        if (bytes < 0) throw InvalidArgument("bytes are negative: " + std::to_string(bytes));
        if (bytes == 0) return nullptr;
        const Pool& pool = default_pool(MemoryKind::device, device);
        return detail::remember(
            detail::acquire_on_any(pool, static_cast<std::size_t>(bytes), stream));
    });
}

void cistern_cuda_free(void* data, ptrdiff_t, int, void* stream) {
    status_of([&] {
        if (data != nullptr && !detail::deallocate_on(data, stream)) {
            throw InvalidArgument("nothing is lent at this address: " +
                                  detail::text_of_address(data));
        }
    });
}

void cistern_cuda_used_on(void* data, void* stream) {
    status_of([&] {
        if (data == nullptr) return;
        detail::visit_loan(data, [&](Buffer& buffer) {
            Core::mark_used(buffer, detail::fleeting(buffer.memory(), stream));
        });
    });
}
