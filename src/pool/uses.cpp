// Blocks that other streams use besides their lane's, or that the host gets next: they are parked when they are
// released, until events say that nobody uses them any more. Every call to the driver is made with the lock free.

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "cistern/stream.hpp"
#include "memory/clock.hpp"
#include "pool/core.hpp"

namespace cistern {

namespace {

constexpr int unfinished_looks = 8;  // at parked blocks that streams still use

}  // namespace

StreamInfo Core::look_at(const Buffer& buffer, void* stream) {
    if (buffer.empty()) throw InvalidArgument("an empty buffer is used by no stream");
    return block_of(*buffer.block_).core->order_of_streams().look_at(stream);
}

void Core::mark_used(Buffer& buffer, const StreamInfo& stream) {
    Block& block = block_of(*buffer.block_);
    const Lock lock(block.core->lock_);
    if (block.uses == nullptr) block.uses = new Uses;
    auto& uses = block.uses->streams;
    const auto same = [&](const StreamInfo& use) { return use.id == stream.id; };
    if (std::none_of(uses.begin(), uses.end(), same)) uses.push_back(stream);
    block.uses->events.reserve(uses.size() + 3);  // its own stream's, one of all, the wiping
    buffer.slot_ = no_slot;                       // its release has to look
}

void Core::follow(const Buffer& buffer, const StreamInfo& stream) {
    const Block& block = block_of(*buffer.block_);
    Core& core = *block.core;
    const StreamOrder& order = core.order_of_streams();
    Lock lock(core.lock_);
    Lane& lane = lane_of(block);
    // Within a capture nothing outside can be waited for; there the graph's memory is its own.
    const bool graphs = lane.captured() && lane.open;
    if (!lane.ordered() || graphs || stream.capture != 0 || lane.stream.id == stream.id) return;
    const Busy busy(lane);
    const bool open = lane.open;
    core.unlocked(lock, [&] {
        void* const event = order.make_event();
        try {
            if (!core.record(event, lane.stream, open)) throw DeviceError(captured_beside);
            order.wait(stream, event);
        } catch (...) {
            order.drop_event(event);
            throw;
        }
        order.drop_event(event);
    });
}

bool Core::lent_on(const Buffer& buffer, const void* stream) noexcept {
    // No lock: a lent block stays its lane's, and a lane its stream's.
    const Lane& lane = lane_of(block_of(*buffer.block_));
    return lane.ordered() && lane.stream.handle == stream;
}

/// What a release asks of the driver: to mark what the streams have been given, and to wipe after that, on the lane's
/// stream if that may be called. Else the block is parked, and unpark() does what is left. What nobody waits for but
/// the lane's own stream is marked by who needs the bytes. What a graph keeps is parked when that is gone.
void Core::release_in_order(Block& block, Lock& lock) noexcept {
    Lane& lane = lane_of(block);
    const Busy busy(lane);
    const bool wipes = options_.wipe_on_release, used = block.uses != nullptr;
    const bool closed = lane.ordered() && (!lane.open || lane.kept);
    const bool callable = lane.ordered() && !closed && !lane.stream.fleeting;
    if (lane.kept && unlocked(lock, [&] { return streams_->goes_on(lane.stream); })) {
        // Only the graph has used it, and streams that are marked when that is gone.
        if (wipes && !used) block.uses = new (std::nothrow) Uses;
        if (block.uses != nullptr) {
            block.uses->unwiped = wipes;
            block.uses->unmarked = !block.uses->streams.empty();
        }
        return;
    }
    if (!used && !wipes && !lane.parks && !lane.kept) {
        if (closed) lane.unmarked = true;
        return;
    }
    bool said = true;
    unlocked(lock, [&] {
        try {
            if (!lane.ordered() && !used) return memory_.source()->zero(block.data, block.asked);
            const bool on_stream = wipes && callable && streams_->may_use(lane.stream);
            if (on_stream && !used && !lane.parks) {
                return streams_->zero(lane.stream, block.data, block.asked);
            }
            if (!used) {
                block.uses = new Uses;
                block.uses->events.reserve(3);
            }
            Uses& uses = *block.uses;
            const auto mark = [&](const StreamInfo& stream, bool gone) {
                void* const event = uses.events.emplace_back(streams_->make_event());
                if (!record(event, stream, !gone)) uses.unmarked = true;
                return event;
            };
            for (const StreamInfo& stream : uses.streams) {
                void* const event = mark(stream, false);
                if (on_stream) streams_->wait(lane.stream, event);
            }
            uses.unwiped = wipes && (!on_stream || uses.unmarked);
            if (wipes && !uses.unwiped) streams_->zero(lane.stream, block.data, block.asked);
            if (lane.ordered()) mark(lane.stream, closed);
        } catch (...) {  // the device failed, or there is no memory for an event
            said = streams_->wait_for_all();
            if (block.uses == nullptr) block.uses = new (std::nothrow) Uses;
            if (block.uses != nullptr) {
                block.uses->unmarked = !said;
                block.uses->unwiped = wipes;
                wait_for_uses(block);
            } else if (wipes && said) {
                memory_.source()->zero(block.data, block.asked);
                said = streams_->wait_for_all();
            }
        }
    });
    // If somebody has closed it meanwhile, its event may not say what the stream was given just now.
    if (lane.ordered() && !lane.open && (!said || (wipes && !closed))) lane.unmarked = true;
}

/// Waits on the host for the other streams that use a block. False if a capture keeps that from being said, or the
/// block from being wiped. The lock is free, or the block nobody's.
bool Core::wait_for_uses(Block& block) const noexcept {
    if (block.uses == nullptr) return true;
    Uses& uses = *block.uses;
    const auto wait = [&] {
        while (!uses.events.empty()) {
            void* const event = uses.events.back();
            if (!streams_->wait_on_host(event)) return false;
            uses.events.pop_back();
            streams_->drop_event(event);
        }
        return true;
    };
    if (uses.unmarked && !streams_->wait_for_all()) return false;
    uses.unmarked = false;
    if (!wait() || (uses.unwiped && !(wipe_late(block) && wait()))) return false;
    delete std::exchange(block.uses, nullptr);
    return true;
}

/// Marks what could not be marked when a block was released. False if a capture still forbids it. The lock is
/// free.
bool Core::mark_late(Uses& uses) const noexcept {
    if (!uses.unmarked) return true;
    try {
        void* const event = uses.events.emplace_back(streams_->make_event());
        uses.unmarked = !record_all(event);
        if (uses.unmarked) {
            uses.events.pop_back();
            streams_->drop_event(event);
        }
        return !uses.unmarked;
    } catch (const std::exception&) {  // there is no event to be had: who waits, waits for all
        return true;
    }
}

/// Zeroes the bytes of a block that no stream uses any more, and whose release could not. False if it cannot
/// either. The lock is free.
bool Core::wipe_late(Block& block) const noexcept {
    if (!main_.ordered()) {  // the host does it
        memory_.source()->zero(block.data, block.asked);
        block.uses->unwiped = false;
        return true;
    }
    try {
        if (!streams_->may_use(main_.stream)) return false;
        streams_->zero(main_.stream, block.data, block.asked);
        void* const event = block.uses->events.emplace_back(streams_->make_event());
        block.uses->unwiped = !streams_->record(event, main_.stream) && !streams_->wait_for_all();
        return !block.uses->unwiped;
    } catch (const std::exception&) {
        return false;
    }
}

/// Keeps a block that is released until no stream uses it any more.
void Core::park(Block& block) noexcept {
    if (central_idle() + allowances_ + block.bytes > options_.max_idle_bytes) flush_all();
    if (central_idle() + block.bytes > options_.max_idle_bytes) {
        ++evictions_.max_idle_bytes;
        to_memory(block);  // once it is not used any more
        return;
    }
    parked_.push_back(block);
    parked_bytes_ += block.bytes;
    ++parked_blocks_;
}

/// Makes parked blocks idle whose streams are done, or all of them after waiting. Returns whether any
/// became idle.
bool Core::unpark(bool wait, Lock& lock) noexcept {
    Batches looked_at;
    while (Block* const block = parked_.first()) {
        parked_.remove(*block);
        looked_at.push_back(*block);
    }
    if (looked_at.empty()) return false;
    ++returning_;
    unlocked(lock, [&] {
        bool beside_capture = false;
        int unfinished = 0;
        for (Block* block = looked_at.first(); block != nullptr; block = Batches::after(*block)) {
            Uses& uses = *block->uses;
            if (uses.unmarked || uses.unwiped) {
                beside_capture = beside_capture || !streams_->may_mark_all();
                beside_capture = beside_capture || !mark_late(uses);
                if (beside_capture) continue;
            }
            const auto finished = [&] {
                const auto done = [&](void* event) { return streams_->is_done(event); };
                return !uses.unmarked && std::all_of(uses.events.begin(), uses.events.end(), done);
            };
            if (!wait && uses.unwiped && finished()) wipe_late(*block);
            if (wait || (finished() && !uses.unwiped)) {
                wait_for_uses(*block);
            } else if (++unfinished == unfinished_looks) {
                return;
            }
        }
    });
    --returning_;
    bool any = false;
    while (Block* const block = looked_at.first()) {
        looked_at.remove(*block);
        if (block->uses != nullptr) {
            parked_.push_back(*block);
            continue;
        }
        parked_bytes_ -= block->bytes;
        --parked_blocks_;
        pass(*block, settled());
        to_central(*block, coarse_now());
        any = true;
    }
    if (any) {
        if (held_ > options_.max_bytes) evict(held_ - options_.max_bytes, &Evictions::max_bytes);
        enforce();
    }
    return any;
}

/// Has a lane's stream wait for the oldest parked blocks, `bytes` in all if there are so many, which become idle in its
/// order. Returns whether any did. Not done where only the host can wait: the stream may not be called, or some block's
/// uses are not marked or wiped yet.
bool Core::unpark_for(Lane& lane, std::uint64_t bytes, Lock& lock) {
    if (!lane.ordered() || lane.parks || lane.captured() || !lane.open) return false;
    Batches chosen;
    std::uint64_t sum = 0;
    for (Block* next = parked_.first(); next != nullptr && sum < bytes;) {
        Block& block = *next;
        next = Batches::after(*next);
        if (block.uses->unmarked || block.uses->unwiped) continue;
        parked_.remove(block);
        chosen.push_back(block);
        sum += block.bytes;
    }
    if (chosen.empty()) return false;
    std::exception_ptr failure;
    {
        const Busy busy(lane);
        ++returning_;
        unlocked(lock, [&] {
            if (!streams_->may_use(lane.stream)) return;
            try {
                for (Block* block = chosen.first(); block != nullptr;
                     block = Batches::after(*block)) {
                    std::vector<void*>& events = block->uses->events;
                    for (void* const event : events) streams_->wait(lane.stream, event);
                    for (void* const event : events) streams_->drop_event(event);
                    delete std::exchange(block->uses, nullptr);
                }
            } catch (const std::exception&) {
                failure = std::current_exception();
            }
        });
        --returning_;
    }
    while (Block* const block = chosen.last()) {  // those that are left, as they were
        if (block->uses == nullptr) break;
        chosen.remove(*block);
        parked_.push_front(*block);
    }
    const bool any = !chosen.empty();
    while (Block* const block = chosen.first()) {
        chosen.remove(*block);
        parked_bytes_ -= block->bytes;
        --parked_blocks_;
        pass(*block, lane);
        to_central(*block, coarse_now());
    }
    if (any && !lane.open)
        lane.unmarked = true;  // closed meanwhile: its event may not say that it waits
    if (any) {
        if (held_ > options_.max_bytes) evict(held_ - options_.max_bytes, &Evictions::max_bytes);
        enforce();
    }
    if (failure != nullptr) std::rethrow_exception(failure);
    return any;
}

/// Before the pool grows by `bytes`: what is done with is idle. If as much as was ever lent is not, the stream waits for
/// half of that; else the pool would grow for as long as another stream is behind.
void Core::unpark_before_growing(Lane& lane, std::uint64_t bytes, Lock& lock) {
    unpark(false, lock);
    const bool is_much = parked_bytes_ + bytes > lent_peak_ + room_apart(1);
    if (is_much && 2 * parked_bytes_ > bytes) unpark_for(lane, parked_bytes_ / 2 + bytes, lock);
}

}  // namespace cistern
