// The public handle: every verb goes to the pool it names.

#include "cistern/pool.hpp"

#include <pthread.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <ostream>
#include <utility>

#include "base/bytes.hpp"
#include "cistern/ipc.hpp"
#include "memory/cuda_driver.hpp"
#include "memory/shareable.hpp"
#include "pool/core.hpp"
#include "pool/options.hpp"

namespace cistern {

Pool::Pool(Memory memory, PoolOptions options)
    : Lender(nullptr), handle_(Core::make(std::move(memory), std::move(options))) {
    core_ = handle_.get();
}

void Lender::release(Buffer&& buffer) {
    if (buffer.empty()) {
        throw InvalidArgument("buffer is empty: it was released, moved from, or never acquired");
    }
    core_of(*core_).check_lent(block_of(*buffer.block_), buffer.generation_);
    buffer.release();
}

Buffer Lender::zeroed(std::size_t bytes, std::size_t type) {
    Buffer buffer(*core_, detail::take(*core_, bytes, type));
    if (!buffer.empty()) core_of(*core_).zero(block_of(*buffer.block_), bytes);
    return buffer;
}

Buffer Pool::of_type(std::size_t bytes, std::size_t type) {
    return {*core_, detail::take(*core_, bytes, type)};
}

void Pool::grow(Buffer& buffer, std::size_t bytes) {
    if (buffer.empty()) {
        buffer = acquire(bytes);
        return;
    }
    Core& core = core_of(*core_);
    core.check_lent(block_of(*buffer.block_), buffer.generation_);
    if (bytes <= buffer.size()) return;
    if (Block* const block = core.grow(block_of(*buffer.block_), bytes)) {
        const std::size_t last = (bytes - 1) | core_->grain_mask;
        buffer.block_ = block;
        buffer.generation_ = static_cast<std::uint32_t>(block->generation);
        buffer.rack_ = static_cast<std::uint16_t>(detail::rack_of_last(last));
        return;
    }
    Block& block = block_of(*buffer.block_);
    Lane& lane = core.keep_order(block);
    try {
        Buffer larger(lane, detail::take(lane, bytes, block.type));
        // That stream reads it, which its own does not wait for.
        if (lane.ordered() && &lane != &lane_of(block)) Core::mark_used(buffer, lane.stream);
        // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): bytes is not 0, so it is not empty
        core.copy(block_of(*larger.block_), block, buffer.size());
        core.let_go(block);
        buffer.swap(larger);
    } catch (...) {
        core.let_go(block);
        throw;
    }
    core.count_grow();
}

void Pool::adopt(void* data, std::size_t bytes, std::function<void(void*)> deleter) {
    if (deleter == nullptr) throw InvalidArgument("adopted bytes need a deleter: null");
    core_of(*core_).adopt(data, bytes, std::move(deleter));
}

std::size_t Pool::trim(std::size_t keep_idle_bytes) {
    return core_of(*core_).trim(keep_idle_bytes);
}

void Pool::set_limits(const Limits& limits) { core_of(*core_).set_limits(limits); }

void Pool::on_out_of_memory(std::function<void(std::size_t)> callback) {
    if (callback == nullptr) throw InvalidArgument("the callback for out of memory is empty: null");
    core_of(*core_).on_out_of_memory(std::move(callback));
}

PoolStats Pool::stats() const { return core_of(*core_).stats(); }

Explanation Pool::explain() const { return core_of(*core_).explain(); }

PoolOptions Pool::options() const { return core_of(*core_).options(); }

Memory Pool::memory() const { return core_of(*core_).memory(); }

Memory Buffer::memory() const {
    if (empty()) throw InvalidArgument("an empty buffer has no memory");
    return block_of(*block_).core->memory();
}

SharedBuffer share(const Buffer& buffer) {
    if (buffer.empty()) throw InvalidArgument("an empty buffer cannot be shared");
    return share_bytes(buffer.memory(), buffer.data(), buffer.size());
}

const Pool& detail::of_host(const Pool& pool, const char* needs) {
    if (pool.memory().host_accessible()) return pool;
    throw InvalidArgument(std::string("the host cannot reach memory '") + pool.memory().name() +
                          "', as " + needs + " has to");
}

Pool& default_pool() { return default_pool(MemoryKind::host); }

namespace {

/// Those of devices, once made: hooks ask for them with each call.
constinit std::array<std::atomic<Pool*>, 16> pools_of_devices{};

Pool& find_default(MemoryKind kind, int device) {
    // Never destroyed: statics may hold their buffers.
    static auto* const host = new Pool(Memory::host(), PoolOptions{.name = "default"});
    if (kind == MemoryKind::host) return *host;
    // A forked process has its parent's pools and no driver.
    static const int forgets = pthread_atfork(nullptr, nullptr, [] {
        for (auto& pool : pools_of_devices) pool.store(nullptr, std::memory_order_relaxed);
    });
    static_cast<void>(forgets);
    cuda::require_driver();
    static std::mutex lock;
    static auto* const others = new std::map<std::pair<MemoryKind, int>, Pool>;
    const std::scoped_lock hold(lock);
    const auto found = others->find({kind, device});
    if (found != others->end()) return found->second;
    const Memory memory = Memory::of(kind, device);
    // As aligned as what PyTorch's own allocator returns: some of its kernels are chosen by that.
    const PoolOptions options{.name = "default " + memory.name(), .alignment = 512};
    Pool& pool = others->emplace(std::pair{kind, device}, Pool(memory, options)).first->second;
    if (kind == MemoryKind::device && static_cast<std::size_t>(device) < pools_of_devices.size()) {
        pools_of_devices[static_cast<std::size_t>(device)].store(&pool, std::memory_order_release);
    }
    return pool;
}

}  // namespace

Pool& default_pool(MemoryKind kind, int device) {
    const auto number = static_cast<std::size_t>(device);
    if (kind == MemoryKind::device && number < pools_of_devices.size()) {
        // Acquire: pairs with the store in find_default(), before which the pool was made.
        Pool* const pool = pools_of_devices[number].load(std::memory_order_acquire);
        if (pool != nullptr) return *pool;
    }
    return find_default(kind, device);
}

std::ostream& operator<<(std::ostream& out, const Pool& pool) {
    const PoolOptions options = pool.options();
    out << "pool '" << options.name << "' on " << pool.memory().name() << " ("
        << text_of_fit(options.fit) << "), max_idle_bytes ";
    if (options.max_idle_bytes == no_limit) {
        out << "none\n";
    } else {
        out << text_of_bytes(options.max_idle_bytes) << '\n';
    }
    return out << pool.stats();
}

// --- The rest of the pool ---------------------------------------------------------------------------

PoolOptions Core::options() const {
    const std::scoped_lock hold(lock_);
    return options_;
}

void Core::on_out_of_memory(std::function<void(std::size_t)> callback) {
    const std::scoped_lock hold(lock_);
    callbacks_.push_back(std::move(callback));
}

const char* Core::check() {
    const std::scoped_lock hold(lock_);
    return arena_ ? arena_->check() : nullptr;
}

}  // namespace cistern
