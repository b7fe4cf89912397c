// Lanes: streams instead of threads. What one stream gives back is its own again at once, since its work
// runs in order; another gets it with an event. Every call to the driver is made with the lock free.

#include <sched.h>

#include <atomic>
#include <mutex>
#include <new>
#include <utility>

#include "cistern/stream.hpp"
#include "memory/clock.hpp"
#include "pool/core.hpp"

namespace cistern {

namespace {

/// Keeps a pool, and one lane's memory in it, as long as a graph needs them.
struct GraphLane {
    std::shared_ptr<detail::CoreFront> pool;
    Lane* lane;
};

/// Pools that somebody else lets go, later: those that only a graph kept, which goes in a thread of the driver's that
/// must not call it; and those that were the last to go while a capture kept their bytes.
class Bereaved {
public:
    void add(std::shared_ptr<detail::CoreFront> pool) {
        const std::scoped_lock hold(lock_);
        pools_.push_back(std::move(pool));
        any_.store(true, std::memory_order_relaxed);
    }
    void add(Core& core) noexcept {
        const std::scoped_lock hold(lock_);
        waiting_.push_back(core);
        any_.store(true, std::memory_order_relaxed);
    }
    /// Calls visit(core) for those that wait.
    template <class Visit>
    void let_go(Visit visit) noexcept {
        // Relaxed, as where it is set: the lists are the lock's, and who misses one comes again.
        if (!any_.load(std::memory_order_relaxed)) return;
        std::vector<std::shared_ptr<detail::CoreFront>> gone;
        Waiting waiting;
        {
            const std::scoped_lock hold(lock_);
            gone.swap(pools_);
            std::swap(waiting, waiting_);
            any_.store(false, std::memory_order_relaxed);
        }
        while (Core* const core = waiting.first()) {
            waiting.remove(*core);
            visit(*core);
        }
    }
    std::mutex& lock() noexcept { return lock_; }
    /// In a forked child, which has no driver: they are the parent's. The lock was taken before the fork.
    void renew() noexcept {
        waiting_ = {};
        any_.store(false, std::memory_order_relaxed);
        lock_.unlock();
    }
    static Bereaved& instance() noexcept {
        alignas(Bereaved) static std::byte place[sizeof(Bereaved)];  // never destroyed
        static auto* const all = new (place) Bereaved;
        return *all;
    }

private:
    using Waiting = List<Core, &Core::in_waiting>;
    std::mutex lock_;
    std::atomic<bool> any_{false};
    std::vector<std::shared_ptr<detail::CoreFront>> pools_;
    Waiting waiting_;
};

}  // namespace

// --- Opening and closing ----------------------------------------------------------------------------

Lane* Core::find_lane(const StreamInfo& stream) const noexcept {
    for (Lane* lane = lanes_.first(); lane != nullptr; lane = Lanes::after(*lane)) {
        if (lane->ordered() && lane->stream.id == stream.id &&
            lane->stream.capture == stream.capture) {
            return lane;
        }
    }
    return nullptr;
}

const StreamOrder& Core::order_of_streams() const {
    if (streams_ == nullptr) {
        throw InvalidArgument("memory '" + memory_.name() + "' is used in no stream's order");
    }
    return *streams_;
}

std::shared_ptr<detail::CoreFront> Core::on(void* stream,
                                            const std::shared_ptr<detail::CoreFront>& handle,
                                            bool fleeting) {
    const StreamInfo info = order_of_streams().look_at(stream);
    if (info.capture == 0) let_waiting_go();  // which calls the driver
    Lock lock(lock_);
    Lane* lane = find_lane(info);
    std::unique_ptr<Lane> made;
    if (lane == nullptr) {
        reap(lock);
        made = std::make_unique<Lane>(*this);
        made->grain_mask = main_.grain_mask;
        made->stream = info;
        made->parks = streams_->host_uses();
        made->kept = made->captured();
        unlocked(lock, [&] {
            made->event = streams_->make_event();
            if (use_magazines() && !made->parks && !made->captured()) {
                Registry::instance().add_slot(*made);
            }
        });
        lane = find_lane(info);
        if (lane == nullptr) {
            lane = made.release();
            lanes_.push_back(*lane);
        }
    }
    ++lane->handles;  // from here on it stays, and the pool
    ++lane_handles_;
    if (made != nullptr) {  // another thread was quicker
        unlocked(lock, [&] {
            streams_->drop_event(made->event);
            Registry::instance().remove_slot(*made);
        });
    }
    Lane* lost = nullptr;  // its stream was destroyed: another one has the handle
    for (Lane* other = lanes_.first(); other != nullptr; other = Lanes::after(*other)) {
        const bool same = other->open && other->stream.handle == info.handle &&
                          !other->captured() && info.capture == 0 && !info.fleeting;
        if (same && other->stream.id != info.id && other != &main_) lost = other;
    }
    if (fleeting && lane != &main_) lane->stream.fleeting = true;
    const bool is_new = !lane->open;
    lane->open = true;
    lane->unmarked = false;  // what the stream is given from now on comes after it
    if (lost != nullptr) {
        lost->stream.fleeting = true;  // so that nobody asks the stream itself
        shut(*lost, true, lock);
    }
    if (is_new && lane->captured()) ++lane->handles;  // the graph's
    lock.unlock();
    std::shared_ptr<detail::CoreFront> opened(
        lane, [](detail::CoreFront* front) { core_of(*front).close(lane_of(*front)); });
    if (is_new && lane->captured()) keep_for_graph(*lane, handle);
    return opened;
}

/// Has the graph that a lane is captured into keep the lane and its memory.
void Core::keep_for_graph(Lane& lane, const std::shared_ptr<detail::CoreFront>& handle) {
    std::unique_ptr<GraphLane> keeper;
    try {
        keeper = std::make_unique<GraphLane>(GraphLane{handle, &lane});
        streams_->tell_when_gone(lane.stream.graph, keeper.get(), [](void* object) {
            const std::unique_ptr<GraphLane> gone(static_cast<GraphLane*>(object));
            gone->lane->core.graph_gone(*gone->lane);
            Bereaved::instance().add(std::move(gone->pool));
        });
    } catch (...) {
        graph_gone(lane);
        throw;
    }
    static_cast<void>(keeper.release());
}

/// Whether the pool can be deleted. True once: to the one who has to do it. One whose bytes a capture keeps from
/// going back waits for its end.
bool Core::is_unused() noexcept {
    if (!retired_) return false;
    // What is parked here could not be had yet; what another thread looks at just now is not in the list.
    if (!waits_ && (!parked_.empty() || !held_back_.empty())) {
        waits_ = true;
        ++away_;
        Bereaved::instance().add(*this);
    }
    return blocks_out_ == 0 && away_ == 0 && lane_handles_ == 0 && !std::exchange(deleted_, true);
}

std::mutex& Core::lock_of_waiting() noexcept { return Bereaved::instance().lock(); }
void Core::renew_waiting() noexcept { Bereaved::instance().renew(); }

/// Looks again at pools that wait for the end of a capture. No lock is held.
void Core::let_waiting_go() noexcept {
    Bereaved::instance().let_go([](Core& core) {
        {
            const Lock lock(core.lock_);
            core.waits_ = false;
        }
        core.come_back();
    });
}

void Core::close(Lane& lane) noexcept {
    bool unused = false;
    {
        Lock lock(lock_);
        if (--lane.handles == 0 && &lane != &main_) {
            shut(lane, false, lock);
            finish(lock);
        }
        --lane_handles_;
        unused = is_unused();
    }
    if (unused) remove();
}

/// The graph and its instances are gone, and with them what they did with the lane's memory. What the limits do not
/// allow to stay goes later: here nobody may call the driver.
void Core::graph_gone(Lane& lane) noexcept {
    const Lock lock(lock_);
    const std::uint64_t now = coarse_now();
    if (splits_) arena_->let_free(lane, settled(), now, ++order_);
    while (Block* const block = lane.set_aside.first()) {
        lane.set_aside.remove(*block);
        block->state = BlockState::out;
        block->holes = &settled();
        now_out(settled(), *block);
        if (block->uses != nullptr) {
            park(*block);
        } else {
            to_central(*block, now);
        }
    }
    lane.kept = lane.open = false;
    forget_wants(lane);
    --lane.handles;
    enforce();
}

/// Takes a whole block that the lane's graph keeps and no other stream uses.
Block* Core::take_set_aside(Lane& lane, std::size_t size, std::size_t type) noexcept {
    if (lane.parks) return nullptr;  // the host has filled it, for every replay
    for (Block* block = lane.set_aside.first(); block != nullptr; block = Batches::after(*block)) {
        if (block->uses != nullptr || block->type != type || block->bytes < size ||
            !shelf_.allows(block->bytes, size)) {
            continue;
        }
        lane.set_aside.remove(*block);
        block->state = BlockState::out;
        return block;
    }
    return nullptr;
}

/// Marks all that the device has been given; where that fails, waits for it. False, doing neither, while a
/// capture goes on that it would end. The lock is free.
bool Core::record_all(void* event) const noexcept {
    try {
        return streams_->record_all(event);
    } catch (const DeviceError&) {
        return streams_->wait_for_all();
    }
}

/// Has a closed lane's event say all that used its bytes. False if a capture keeps it from that. The lane is busy.
bool Core::mark(Lane& lane, Lock& lock) noexcept {
    if (!std::exchange(lane.unmarked, false)) return true;
    ++lane.closing;  // till then its event says too little
    const bool marked = unlocked(lock, [&] { return record_all(lane.event); });
    --lane.closing;
    if (!marked && !lane.open) lane.unmarked = true;
    return marked;
}

/// Marks what a stream has been given, or all if it must not be called. The same.
bool Core::record(void* event, const StreamInfo& stream, bool callable) const noexcept {
    try {
        if (callable && !stream.fleeting && streams_->record(event, stream)) return true;
    } catch (const DeviceError&) {
        return streams_->wait_for_all();
    }
    return record_all(event);
}

/// From here on nobody calls the lane's stream. `lost`: it is destroyed, whoever has opened the lane. First the
/// magazines go, so that what is released from now on takes the lock and sees that the lane is closed; then
/// the event is recorded, and covers all that was released before.
void Core::shut(Lane& lane, bool lost, Lock& lock) noexcept {
    ++lane.closers;  // it stays meanwhile, whoever else closes it
    {
        const Seizure seizure(*this);
        for (ThreadMagazine* m = magazines_.first(); m != nullptr;) {
            ThreadMagazine& magazine = *m;
            m = Magazines::after(*m);
            if (magazine.lane == &lane) drop_magazine(magazine);
        }
    }
    flush_depot();
    if (lane.open && !lane.captured()) {
        lane.open = false;
        ++lane.closing;
        {
            const Busy busy(lane);
            const bool marked =
                unlocked(lock, [&] { return record(lane.event, lane.stream, true); });
            if (!marked) lane.unmarked = true;
        }
        --lane.closing;
    }
    if (lane.handles == 0 || lost) {  // else somebody has opened it again
        if (!lane.captured()) lane.open = false;
        while (lane.busy != 0) unlocked(lock, [] { sched_yield(); });
    }
    --lane.closers;
    if (!lane.open) forget_wants(lane);
    if (can_go(lane)) remove_lane(lane, lock);
}

bool Core::can_go(const Lane& lane) const noexcept {
    if (lane.open || lane.handles != 0 || lane.busy != 0 || lane.closers != 0 ||
        lane.leavers != 0 || lane.bytes_out != 0 || !lane.empty() || &lane == &main_ ||
        &lane == settled_.get()) {
        return false;
    }
    if (arena_ && named_by(arena_->leaving(), lane)) return false;
    if (named_by(farewells_, lane) || named_by(held_back_, lane)) return false;
    if (named_by(old_places_, lane)) return false;
    bool shelved = false;
    shelf_.for_each([&](const Block& block) { shelved |= block.holes == &lane; });
    return !shelved;
}

void Core::remove_lane(Lane& lane, Lock& lock) noexcept {
    lanes_.remove(lane);
    unlocked(lock, [&] {
        Registry::instance().remove_slot(lane);
        streams_->drop_event(lane.event);
    });
    delete &lane;
}

/// Forgets lanes that were closed and whose work is done; what they left is anybody's.
void Core::reap(Lock& lock) noexcept {
    bool refused = false;  // a mark of all; it would be again
    for (Lane* next = lanes_.first(); next != nullptr;) {
        Lane& lane = *next;
        next = Lanes::after(*next);
        if (lane.open || !lane.ordered() || lane.handles != 0 || lane.busy != 0) continue;
        if (splits_ && (!lane.empty() || named_by(old_places_, lane))) {
            const std::uint64_t order = order_;
            const Busy busy(lane);
            if (refused && lane.unmarked) continue;
            refused = !mark(lane, lock) || refused;
            const bool done = unlocked(lock, [&] { return streams_->is_done(lane.event); });
            const bool said = lane.closing == 0 && !lane.unmarked;
            if (done && said && !lane.open) {
                arena_->pass_on(lane, settled(), order);
                settle_old_places(lane, order);
            }
            next = Lanes::after(lane);
        }
        if (!can_go(lane)) continue;
        next = nullptr;  // the list may change meanwhile; the rest is for the next time
        remove_lane(lane, lock);
    }
}

// --- The public handles -----------------------------------------------------------------------------

StreamPool Pool::on(Stream stream) const {
    return {*this, core_of(*core_).on(stream.handle(), handle_)};
}

StreamPool::StreamPool(const Pool& pool, std::shared_ptr<detail::CoreFront> lane)
    : Lender(lane.get()), pool_(pool), lane_(std::move(lane)) {}

Stream StreamPool::stream() const noexcept { return lane_of(*lane_).stream.handle; }

void also_used_on(Buffer& buffer, Stream stream) {
    Core::mark_used(buffer, Core::look_at(buffer, stream.handle()));
}

}  // namespace cistern
