#include "cistern/unified.hpp"

#include <array>
#include <cstdio>
#include <list>
#include <mutex>
#include <unordered_map>

#include "base/short_lock.hpp"
#include "memory/stream_order.hpp"
#include "pool/core.hpp"

namespace cistern {

std::string to_string(BufferState state) {
    constexpr std::array names = {"UNINITIALIZED", "HOST_ONLY",  "DEVICE_ONLY",
                                  "SYNCHRONIZED",  "HOST_DIRTY", "DEVICE_DIRTY"};
    return names.at(static_cast<std::size_t>(state) - 1);
}

namespace detail {

UnifiedBase::UnifiedBase(UnifiedPlaces places, std::vector<std::size_t> shape,
                         std::size_t element_bytes, bool allowed_on_device, const char* type_name)
    : places_(std::move(places)), shape_(std::move(shape)) {
    if (places_.device && !allowed_on_device &&
        places_.device->memory().kind() == MemoryKind::device) {
        throw InvalidArgument(std::string("element type does not exist on device '") +
                              places_.device->memory().name() + "': " + type_name + ", " +
                              std::to_string(element_bytes) + " B");
    }
    elements_ = 1;
    bool overflow = false, empty = false;
    for (const std::size_t extent : shape_) {
        overflow |= __builtin_mul_overflow(elements_, extent, &elements_);
        empty |= extent == 0;
    }
    if (empty) elements_ = 0;
    overflow = (overflow && !empty) || __builtin_mul_overflow(elements_, element_bytes, &bytes_) ||
               bytes_ > static_cast<std::size_t>(PTRDIFF_MAX);
    if (overflow) throw_shape_overflow(shape_.data(), shape_.size(), element_bytes);
}

void UnifiedBase::need() const {
    if (!is_allocated()) {
        throw BufferNotAllocated("unified buffer of " + std::to_string(bytes_) +
                                 " B is not allocated: call allocate() first");
    }
}

void UnifiedBase::check_count(std::size_t elements) const {
    if (elements != elements_) {
        throw InvalidArgument("wrong number of elements: " + std::to_string(elements) +
                              ", the buffer has " + std::to_string(elements_));
    }
}

void UnifiedBase::allocate_sides(bool host, bool device) {
    device = device && has_device();
    host = host || !device;
    const bool has_host = is_allocated() && state_ != BufferState::device_only;
    const bool has_other = is_allocated() && state_ != BufferState::host_only && has_device();
    Buffer new_host, new_device;
    if (host && !has_host) new_host = places_.host.acquire(bytes_);
    if (device && !has_other) new_device = places_.device->acquire(bytes_);
    if (host && !has_host) host_ = std::move(new_host);
    if (device && !has_other) device_ = std::move(new_device);
    if (!is_allocated()) {  // nothing was written yet: both sides are as good
        state_ = host && device ? BufferState::synchronized
                 : host         ? BufferState::host_only
                                : BufferState::device_only;
    } else if (device && state_ == BufferState::host_only) {
        to_device();
    } else if (host && state_ == BufferState::device_only) {
        to_host();
    }
}

void UnifiedBase::free() noexcept {
    host_.release();
    device_.release();
    state_ = BufferState::uninitialized;
}

MemorySource& UnifiedBase::device_source() const { return *places_.device->memory().source(); }

void UnifiedBase::to_device() {
    if (bytes_ != 0) device_source().copy(device_.data(), host_.data(), bytes_);
    state_ = BufferState::synchronized;
}

void UnifiedBase::to_host() {
    if (bytes_ != 0) device_source().copy(host_.data(), device_.data(), bytes_);
    state_ = BufferState::synchronized;
}

void UnifiedBase::mark_host_dirty() {
    need();
    if (state_ == BufferState::device_only) allocate_sides(true, false);
    if (state_ != BufferState::host_only) state_ = BufferState::host_dirty;
}

void UnifiedBase::mark_device_dirty() {
    need();
    if (!has_device()) return;  // one side: nothing is behind
    if (state_ == BufferState::host_only) allocate_sides(false, true);
    if (state_ != BufferState::device_only) state_ = BufferState::device_dirty;
}

void UnifiedBase::synchronize() {
    need();
    if (state_ == BufferState::host_dirty) to_device();
    if (state_ == BufferState::device_dirty) to_host();
}

void UnifiedBase::sync_to_device() {
    need();
    if (!has_device()) return;
    if (state_ == BufferState::host_only) allocate_sides(false, true);
    if (state_ == BufferState::host_dirty) to_device();
}

void UnifiedBase::sync_to_host() {
    need();
    if (state_ == BufferState::device_only) allocate_sides(true, false);
    if (state_ == BufferState::device_dirty) to_host();
}

/// Copies in a stream's order; what the stream uses is not lent to others before.
void UnifiedBase::copy_on(Stream stream, Buffer& to, Buffer& from) {
    const auto* const order = dynamic_cast<const StreamOrder*>(&device_source());
    if (order == nullptr) {
        if (bytes_ != 0) device_source().copy(to.data(), from.data(), bytes_);
    } else if (bytes_ != 0) {
        const StreamInfo info = order->look_at(stream.handle());
        // The device's bytes were lent in another order: what the last borrower gave that comes first.
        for (const Buffer* const side : {&to, &from}) {
            if (side->memory().kind() == MemoryKind::device) Core::follow(*side, info);
        }
        order->copy(info, to.data(), from.data(), bytes_);
        for (Buffer* const side : {&to, &from}) {
            if (side->memory().kind() != MemoryKind::host) Core::mark_used(*side, info);
        }
    }
    state_ = BufferState::synchronized;
}

void UnifiedBase::sync_to_device(Stream stream) {
    need();
    if (!has_device()) return;
    if (state_ == BufferState::host_only) {
        device_ = places_.device->acquire(bytes_);
        state_ = BufferState::host_dirty;
    }
    if (state_ == BufferState::host_dirty) copy_on(stream, device_, host_);
}

void UnifiedBase::sync_to_host(Stream stream) {
    need();
    if (state_ == BufferState::device_only) {
        host_ = places_.host.acquire(bytes_);
        state_ = BufferState::device_dirty;
    }
    if (state_ == BufferState::device_dirty) copy_on(stream, host_, device_);
}

void* UnifiedBase::host_data() {
    sync_to_host();
    return host_.data();
}

void* UnifiedBase::device_data() {
    sync_to_device();
    return has_device() ? device_.data() : host_.data();
}

void* UnifiedBase::writable_host() {
    void* const data = host_data();
    mark_host_dirty();
    return data;
}

void UnifiedBase::zero() {
    if (!is_allocated()) allocate_sides(true, true);
    if (bytes_ == 0) return;
    if (state_ != BufferState::device_only)
        places_.host.memory().source()->zero(host_.data(), bytes_);
    if (state_ != BufferState::host_only) device_source().zero(device_.data(), bytes_);
    if (state_ == BufferState::host_dirty || state_ == BufferState::device_dirty) {
        state_ = BufferState::synchronized;
    }
}

}  // namespace detail

// --- The pool ---------------------------------------------------------------------------------------

namespace {

std::size_t hash_of(std::size_t type, const std::vector<std::size_t>& shape, bool pinned) {
    std::size_t hash = type ^ (pinned ? 0x5851F42D4C957F2DU : 0);
    for (const std::size_t extent : shape) hash = (hash ^ extent) * 0x9E3779B97F4A7C15U;
    return hash ^ hash >> 32;
}

}  // namespace

class UnifiedPool::State {
public:
    using Base = detail::UnifiedBase;
    struct Kept {
        std::shared_ptr<Base> buffer;
        std::size_t hash;
    };

    explicit State(UnifiedOptions options)
        : max_size(options.max_pool_size),
          max_bytes(options.max_buffer_bytes),
          host(options.host, presets::unified()) {
        detail::of_host(host, "the host's side");
        if (options.device) device.emplace(*options.device, presets::unified());
        if (options.pinned) {
            pinned.emplace(*options.pinned, presets::unified());
            detail::of_host(*pinned, "pinned buffers");
        }
    }

    void forget(std::list<Kept>::iterator kept) {
        auto [first, last] = by_hash.equal_range(kept->hash);
        by_hash.erase(std::find_if(first, last, [&](auto& one) { return one.second == kept; }));
        bytes -= kept->buffer->bytes();
        order.erase(kept);
    }

    const std::size_t max_size, max_bytes;
    Pool host;
    std::optional<Pool> device, pinned;

    mutable ShortLock lock;
    std::list<Kept> order;  // oldest first
    std::unordered_multimap<std::size_t, std::list<Kept>::iterator> by_hash;
    std::size_t bytes = 0;
    UnifiedStats counts;
    bool said_pinned = false;
};

UnifiedPool::UnifiedPool(UnifiedOptions options)
    : state_(std::make_shared<State>(std::move(options))) {}

UnifiedPlaces UnifiedPool::places(bool pinned) const {
    if (pinned && !state_->pinned) {
        const std::scoped_lock hold(state_->lock);
        if (!std::exchange(state_->said_pinned, true)) {
            const char* const why = cuda_available() ? "UnifiedOptions::pinned is not set"
                                                     : "there is no page-locked memory here";
            std::fprintf(stderr, "cistern: %s; pinned buffers are ordinary ones\n", why);
        }
    }
    return {pinned && state_->pinned ? *state_->pinned : state_->host, state_->device, pinned};
}

std::shared_ptr<detail::UnifiedBase> UnifiedPool::take(std::size_t type,
                                                       const std::vector<std::size_t>& shape,
                                                       bool pinned) {
    const std::scoped_lock hold(state_->lock);
    const auto [first, last] = state_->by_hash.equal_range(hash_of(type, shape, pinned));
    std::optional<std::list<State::Kept>::iterator> youngest;
    for (auto one = first; one != last; ++one) {
        const detail::UnifiedBase& buffer = *one->second->buffer;
        if (buffer.type_ == type && buffer.pinned() == pinned && buffer.shape() == shape) {
            youngest = one->second;
        }
    }
    if (!youngest) return nullptr;
    std::shared_ptr<detail::UnifiedBase> buffer = (*youngest)->buffer;
    state_->forget(*youngest);
    return buffer;
}

/// Counts a buffer that a user gets: known ones are hits.
void UnifiedPool::lend(detail::UnifiedBase& buffer, std::size_t type) noexcept {
    const std::scoped_lock hold(state_->lock);
    ++(buffer.pool_ == nullptr ? state_->counts.cache_misses : state_->counts.cache_hits);
    ++state_->counts.total_acquired;
    buffer.pool_ = state_.get();
    buffer.lent_ = true;
    buffer.type_ = type;
    buffer.state_ = buffer.has_device() ? BufferState::synchronized : BufferState::host_only;
}

void UnifiedPool::give(const std::shared_ptr<detail::UnifiedBase>& buffer) {
    if (buffer == nullptr) throw InvalidArgument("buffer to release is null");
    std::shared_ptr<detail::UnifiedBase> oldest;  // let go once the lock is free
    const std::scoped_lock hold(state_->lock);
    if (buffer->pool_ != state_.get()) {
        throw InvalidArgument("buffer belongs to another pool, or to none: " +
                              std::to_string(buffer->bytes()) + " B");
    }
    if (!buffer->lent_) {
        throw InvalidArgument("buffer was already released: " + std::to_string(buffer->bytes()) +
                              " B");
    }
    if (buffer->bytes() <= state_->max_bytes && state_->max_size != 0) {
        const std::size_t hash = hash_of(buffer->type_, buffer->shape(), buffer->pinned());
        state_->order.push_back({buffer, hash});
        try {
            state_->by_hash.emplace(hash, std::prev(state_->order.end()));
        } catch (...) {
            state_->order.pop_back();
            throw;
        }
        state_->bytes += buffer->bytes();
        if (state_->order.size() > state_->max_size) {
            oldest = state_->order.front().buffer;
            state_->forget(state_->order.begin());
        }
    }
    buffer->lent_ = false;
    ++state_->counts.total_released;
}

UnifiedStats UnifiedPool::stats() const {
    const std::scoped_lock hold(state_->lock);
    UnifiedStats now = state_->counts;
    now.pool_size = state_->order.size();
    return now;
}

std::size_t UnifiedPool::total_bytes() const {
    const std::scoped_lock hold(state_->lock);
    return state_->bytes;
}

void UnifiedPool::clear() {
    std::list<State::Kept> gone;  // let go once the lock is free
    const std::scoped_lock hold(state_->lock);
    state_->by_hash.clear();
    gone.swap(state_->order);
    state_->bytes = 0;
}

UnifiedPool& memory_pool() {
    // Never destroyed: statics may hold its buffers.
    static auto* const pool = [] {
        UnifiedOptions options;
        if (cuda_available()) {
            options.device = Memory::device();
            options.pinned = Memory::pinned();
        }
        return new UnifiedPool(std::move(options));
    }();
    return *pool;
}

}  // namespace cistern
