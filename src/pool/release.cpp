// Release beyond the fast path: where a block goes that its user gives back, and bytes that are given to
// the pool.

#include <algorithm>
#include <memory>
#include <utility>

#include "memory/clock.hpp"
#include "memory/watch.hpp"
#include "pool/core.hpp"
#include "pool/options.hpp"

namespace cistern {

namespace {

/// Whether a handle is of an earlier loan; it keeps the lower half of the generation, marked if the block was
/// lent from a hand. So a handle that was copied byte by byte looks right again after 2^31 loans.
bool is_stale(const Block& block, std::uint32_t generation) noexcept {
    const auto now = static_cast<std::uint32_t>(block.generation);
    return now != generation && (now ^ detail::mark_of_hand) != generation;
}

}  // namespace

void Core::check_lent(const Block& block, std::uint32_t generation) const {
    if (block.core != this) {
        throw InvalidArgument("buffer belongs to pool '" + block.core->name() + "', not to pool '" +
                              name() + "'");
    }
    if (is_stale(block, generation)) {
        throw InvalidArgument("buffer was already released to pool '" + name() + "'");
    }
}

void Core::give(Block& block, std::uint32_t generation) noexcept {
    bool unused = false;
    {
        Lock lock(lock_);
        if (is_stale(block, generation)) return;
        if (static_cast<std::uint32_t>(block.generation) != generation) out_of_any_hand(block);
        ++block.generation;
        asked_ -= block.asked;
        if (streams_ != nullptr) {
            release_in_order(block, lock);
        } else if (options_.wipe_on_release) {
            memory_.source()->zero(block.data, block.asked);
        }
        // A device may still read what was released in a stream's order, so there it stays as it is.
        if (marks_ && streams_ == nullptr) mark_idle(block.data, block.bytes);
        ThreadMagazine* const magazine = use_magazines() ? mine(lane_of(block)) : nullptr;
        if (lane_of(block).kept) {
            to_central(block, coarse_now());
        } else if (retired_) {
            to_memory(block);
        } else if (block.bytes > options_.max_buffer_bytes) {
            ++evictions_.max_buffer_bytes;
            to_memory(block);
        } else if (block.bytes > options_.max_idle_bytes) {
            ++evictions_.max_idle_bytes;
            to_memory(block);
        } else if (block.uses != nullptr) {
            park(block);
            enforce();
        } else if (magazine == nullptr || !put_in(*magazine, block)) {
            to_central(block, coarse_now());
            enforce();
        }
        age_out(false);
        if (magazine != nullptr) into_hand(*magazine, block);
        note_peaks(magazine);
        finish(lock);
        unused = is_unused();
    }
    if (unused) remove();
}

void Core::come_back() noexcept {
    bool unused = false;
    {
        Lock lock(lock_);
        if (retired_ && parked_blocks_ != 0) {  // while they were looked at, the last handle went
            unpark(false, lock);
            evict(no_limit, nullptr);
        }
        finish(lock);
        --away_;
        unused = is_unused();
    }
    if (unused) remove();
}

void Core::remove() noexcept {
    Registry::instance().remove(*this);
    delete this;
}

void Core::note_peak(Lane& lane) noexcept {
    const Lock lock(lock_);
    note_peaks(use_magazines() ? mine(lane) : nullptr);
}

/// Makes a block that was out idle, in nobody's magazine. One that a graph keeps is set aside if the
/// stream must not use it again.
void Core::to_central(Block& block, std::uint64_t when) noexcept {
    Lane& lane = lane_of(block);
    --blocks_out_;
    lane.bytes_out -= block.bytes;
    const bool splits = splits_ && block.in_arena;
    if (lane.kept && (!splits || lane.parks || block.uses != nullptr)) {
        block.state = BlockState::shelved;
        lane.set_aside.push_back(block);
        return;
    }
    if (splits) {
        arena_->give(block, when, ++order_);
        return;
    }
    block.released_at = when;
    block.order = ++order_;
    shelf_.put(block);
}

/// Gives a block that was out back to where it came from.
void Core::to_memory(Block& block) noexcept {
    --blocks_out_;
    lane_of(block).bytes_out -= block.bytes;
    held_ -= block.bytes;
    if (!splits_ || !block.in_arena) shelf_.remove_room();
    if (block.in_arena) {
        arena_->give_back(block);
        return;
    }
    outside_.remove(block);
    if (marks_) mark_defined(block.data, block.bytes);
    if (block.deleter != nullptr) {
        farewells_.push_back(block);
        return;
    }
    memory_.source()->deallocate(block.data, block.bytes, options_.alignment);
    store_.give(block);
}

void Core::drop_from_shelf(Block& block) noexcept {
    shelf_.remove(block);
    ++blocks_out_;
    lane_of(block).bytes_out += block.bytes;
    to_memory(block);
}

/// Calls the deleters of adopted bytes that were let go, and the driver for what goes back to it, with
/// the lock free meanwhile.
void Core::finish(Lock& lock) noexcept {
    if (streams_ != nullptr) {
        if (has_leavers()) see_off(lock);
        return;
    }
    while (Block* const block = farewells_.first()) {
        farewells_.remove(*block);
        const std::unique_ptr<std::function<void(void*)>> deleter(block->deleter);
        void* const data = block->data;
        store_.give(*block);
        unlocked(lock, [&] { (*deleter)(data); });
    }
}

void Core::adopt(void* data, std::size_t bytes, std::function<void(void*)> deleter) {
    check_adopted(options_, data, bytes);
    Lock lock(lock_);
    store_.reserve(1);
    auto kept = std::make_unique<std::function<void(void*)>>(std::move(deleter));
    shelf_.add_room();
    Block& block = store_.take();
    block.data = data;
    block.bytes = bytes;
    block.deleter = kept.release();
    block.state = BlockState::out;
    block.holes = &settled();
    outside_.push_back(block);
    now_out(settled(), block);
    held_ += bytes;
    const std::uint64_t room =
        options_.max_bytes -
        std::min<std::uint64_t>(options_.max_bytes, held_ - bytes + held_back());
    if (marks_) mark_idle(data, bytes);
    if (bytes > room || bytes > options_.max_buffer_bytes || bytes > options_.max_idle_bytes) {
        ++(bytes > room                        ? evictions_.max_bytes
           : bytes > options_.max_buffer_bytes ? evictions_.max_buffer_bytes
                                               : evictions_.max_idle_bytes);
        to_memory(block);
    } else {
        note_held();
        to_central(block, coarse_now());
        enforce();
    }
    note_all_peaks();
    finish(lock);
}

}  // namespace cistern
