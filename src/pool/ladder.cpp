// What an acquire climbs when bytes are short: own idle bytes, those of other pools on the memory, what callbacks
// release. Where the memory only would rather not lend more (the host, once the process has most of what it may
// use), idle bytes go first, if there are enough of them to help; else it is asked all the same.

#include <algorithm>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "memory/watch.hpp"
#include "pool/core.hpp"

namespace cistern {

namespace {

// How much a pool grows or shrinks, or 1/64, before it again tries to have idle bytes where there were not enough.
constexpr std::uint64_t least_change_between_presses = 1 << 20;

}  // namespace

Core::Room Core::room() const noexcept {
    const std::uint64_t held = held_ + held_back();
    return {.of_limit = options_.max_bytes - std::min<std::uint64_t>(options_.max_bytes, held),
            .of_memory = pressed_ && arena_ ? arena_->bytes_left() : PTRDIFF_MAX};
}

/// Says why these bytes could not be had, and how many too many they were.
Core::Attempt Core::Room::lacks(const Arena::Taken& taken) const noexcept {
    const std::size_t wanted = taken.new_bytes;
    if (taken.outcome != Arena::Outcome::over_limit) return {nullptr, Shortage::memory, wanted};
    if (wanted > of_limit) return {nullptr, Shortage::limit, wanted - of_limit};
    return {nullptr, Shortage::pressure, wanted - static_cast<std::size_t>(of_memory)};
}

/// Whether to ask for idle bytes first: not where it was in vain, and little has changed since, or is to.
bool Core::may_press(std::size_t bytes) const noexcept {
    const std::uint64_t step = std::max(held_ / 64, least_change_between_presses);
    return bytes >= step || held_ >= pressed_at_ + step || held_ + step <= pressed_at_;
}

/// Has other pools on the memory give up what this one's idle bytes do not make up for. False, changing nothing, if
/// all together do not.
bool Core::relieve(std::size_t missing) {
    std::uint64_t own = 0;
    {
        const Lock lock(lock_);
        own = central_idle();
    }
    Registry& registry = Registry::instance();
    if (own + registry.idle_of_others(*this) < missing) return false;
    if (own < missing) registry.trim_others(*this, missing - own);
    return true;
}

/// Calls what on_out_of_memory() was given. Returns whether there was anything to call.
bool Core::call_back(std::size_t bytes) {
    std::vector<std::function<void(std::size_t)>> callbacks;
    {
        const Lock lock(lock_);
        callbacks = callbacks_;
    }
    for (const auto& callback : callbacks) callback(bytes);
    return !callbacks.empty();
}

/// Climbs the ladder for `bytes` more bytes, and tries on each rung. Throws OutOfMemory, or returns null if
/// `may_fail`. Where no idle bytes could help, none go: the request is beyond the limit, or all that the memory has.
template <class Try>
Block* Core::climb(std::size_t bytes, bool may_fail, Try&& attempt_once) {
    Registry& registry = Registry::instance();
    bool hopeless = false;
    Attempt attempt;
    const auto works = [&](bool pressed) {
        Lock lock(lock_);
        const bool in_vain = !pressed && attempt.shortage == Shortage::pressure;
        pressed_ = pressed && may_press(bytes);
        const bool beyond = bytes > options_.max_bytes;
        hopeless = bytes > largest_request || (arena_ && !arena_->could_lend(bytes, held_));
        attempt = {nullptr, beyond ? Shortage::limit : Shortage::memory};
        if (!beyond && !hopeless) {
            try {
                attempt = attempt_once(lock);
            } catch (const std::bad_alloc&) {  // no descriptor to be had; nothing was changed
            }
        }
        if (in_vain) pressed_at_ = held_;
        finish(lock);
        return attempt.block != nullptr;
    };
    if (works(true)) return attempt.block;
    if (attempt.shortage == Shortage::pressure && relieve(attempt.missing) && works(true)) {
        return attempt.block;
    }
    if (attempt.shortage == Shortage::pressure && works(false)) return attempt.block;
    const auto others_could_help = [&] {
        return attempt.shortage == Shortage::memory && !hopeless;
    };
    if (others_could_help() && registry.trim_others(*this, no_limit) != 0 && works(false)) {
        return attempt.block;
    }
    if (call_back(bytes)) {
        // What they released may be idle in another pool now.
        if (others_could_help()) registry.trim_others(*this, no_limit);
        if (works(false)) return attempt.block;
    }
    {
        const Lock lock(lock_);
        ++failures_;
    }
    if (may_fail) return nullptr;
    throw_out_of_memory(bytes, attempt.shortage);
}

Block* Core::take(Lane& lane, std::size_t bytes, std::size_t type, bool may_fail) {
    const std::size_t size = block_bytes(bytes);
    if (!options_.separate_types) type = 0;
    return climb(bytes, may_fail, [&](Lock& lock) {
        const Attempt attempt = try_take(lane, size, bytes, type, lock);
        if (attempt.block != nullptr) {
            attempt.block->type = type;
            if (options_.max_idle_buffers != no_limit) enforce();  // it may have left more holes
            lend(*attempt.block, bytes);
        }
        return attempt;
    });
}

Block* Core::grow(Block& block, std::size_t bytes) {
    const std::size_t size = block_bytes(bytes), before = block.asked, old_bytes = block.bytes;
    void* const old_data = block.data;
    if (bytes > block.bytes && !(splits_ && block.in_arena && streams_ == nullptr)) return nullptr;
    return climb(bytes, false, [&](Lock&) {
        out_of_any_hand(block);
        const Attempt attempt = bytes <= block.bytes ? Attempt{&block} : try_grow(block, size);
        if (attempt.block == nullptr) return attempt;
        Block& grown = *attempt.block;
        grown.asked = bytes;
        asked_ += bytes - before;
        ++grows_;
        if (marks_) {
            if (&grown != &block) mark_idle(old_data, old_bytes);
            mark_idle(grown.data, grown.bytes);
            mark_defined(grown.data, before);
            mark_lent(grown.begin() + before, bytes - before);
        }
        enforce();
        note_peaks(use_magazines() ? mine(lane_of(grown)) : nullptr);
        return attempt;
    });
}

void Core::throw_out_of_memory(std::size_t bytes, Shortage shortage) {
    const PoolStats now = stats();
    std::string text = shortage == Shortage::limit ? "pool '" + options_.name + "' is at its limit"
                                                   : "memory '" + memory_.name() + "' is exhausted";
    text += ": requested " + exact_text_of_bytes(bytes);
    if (const std::size_t block = block_bytes(bytes); block != bytes) {
        text += " (a block of " + exact_text_of_bytes(block) + ")";
    }
    text += ", lent " + exact_text_of_bytes(now.lent_bytes.now) + ", idle " +
            exact_text_of_bytes(now.idle_bytes.now) + " by pool '" + options_.name + "'";
    if (shortage == Shortage::limit) {
        text += ", max_bytes " + exact_text_of_bytes(options().max_bytes);
    } else {
        text += Registry::instance().describe_others(*this);
        if (arena_) text += arena_->space();
    }
    throw OutOfMemory(text);
}

}  // namespace cistern
