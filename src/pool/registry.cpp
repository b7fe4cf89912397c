// All pools of the process: how they find each other when memory runs out, and what happens to their magazines
// when a thread ends or the process forks.

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <new>
#include <string>

#include "memory/barrier.hpp"
#include "pool/core.hpp"

namespace cistern {

using detail::thread_front;

Registry::Registry() noexcept {
    pthread_atfork(&Registry::before_fork, &Registry::after_fork_in_parent,
                   &Registry::after_fork_in_child);
}

Registry& Registry::instance() noexcept {
    // Never destroyed: it outlives every buffer in a static.
    alignas(Registry) static std::byte place[sizeof(Registry)];
    static auto* const registry = new (place) Registry;
    return *registry;
}

namespace {

// Made when the library is loaded: a fork that has begun does not run what is registered later.
[[maybe_unused]] const Registry& made_at_load = Registry::instance();

}  // namespace

void Registry::add(Core& core) {
    const std::scoped_lock hold(lock_);
    add_slot(core.main_);
    Core* next = cores_.first();  // a younger one may have been quicker
    while (next != nullptr && next->serial_ < core.serial_) next = Cores::after(*next);
    cores_.insert_before(next, core);
}

void Registry::remove(Core& core) noexcept {
    const std::scoped_lock hold(lock_);
    for (Lane* lane = core.lanes_.first(); lane != nullptr; lane = Core::Lanes::after(*lane)) {
        remove_slot(*lane);
    }
    cores_.remove(core);
}

void Registry::add_slot(Lane& lane) noexcept {
    const std::scoped_lock hold(lock_);
    const auto slot = std::distance(lanes_in_slot_.begin(),
                                    std::min_element(lanes_in_slot_.begin(), lanes_in_slot_.end()));
    lane.slot = static_cast<std::uint16_t>(slot);
    ++lanes_in_slot_[lane.slot];
}

void Registry::remove_slot(Lane& lane) noexcept {
    const std::scoped_lock hold(lock_);
    if (lane.slot != no_slot) --lanes_in_slot_[lane.slot];
    lane.slot = no_slot;
}

std::size_t Registry::trim_others(const Core& core, std::size_t bytes) noexcept {
    std::size_t gone = 0;
    std::uint64_t last = 0;  // pools come in the order of their numbers
    while (gone < bytes) {
        Core* other = nullptr;
        {
            const std::scoped_lock hold(lock_);
            for (other = cores_.first(); other != nullptr; other = Cores::after(*other)) {
                if (other->serial_ > last && other != &core && other->memory() == core.memory()) {
                    break;
                }
            }
            if (other == nullptr) return gone;
            last = other->serial_;
            const Core::Lock lock(other->lock_);
            if (other->deleted_) continue;  // somebody waits to remove it
            ++other->away_;                 // keeps it, while this lock is free
        }
        gone += other->give_up(bytes - gone);
        other->come_back();
    }
    return gone;
}

std::uint64_t Registry::idle_of_others(const Core& core) const noexcept {
    const std::scoped_lock hold(lock_);
    std::uint64_t idle = 0;
    for (Core* other = cores_.first(); other != nullptr; other = Cores::after(*other)) {
        if (other != &core && other->memory() == core.memory()) idle += other->idle_bytes();
    }
    return idle;
}

std::string Registry::describe_others(const Core& core) const {
    const std::scoped_lock hold(lock_);
    std::string text;
    for (Core* other = cores_.first(); other != nullptr; other = Cores::after(*other)) {
        if (other == &core || other->memory() != core.memory()) continue;
        text += "; " + other->describe();
    }
    return text;
}

void Registry::forget_thread(detail::ThreadFront& front) noexcept {
    while (Core* const core = forget_in_one(front)) core->come_back();
}

/// Empties a thread's magazines in a pool that has any; null if none has. The pool is kept for the caller to come
/// back to: what has to leave it calls drivers and users, which no lock may see.
Core* Registry::forget_in_one(detail::ThreadFront& front) noexcept {
    const std::scoped_lock hold(lock_);
    for (Core* core = cores_.first(); core != nullptr; core = Cores::after(*core)) {
        const Core::Lock lock(core->lock_);
        bool any = false;
        for (ThreadMagazine* m = core->magazines_.first(); m != nullptr;) {
            ThreadMagazine& magazine = *m;
            m = Core::Magazines::after(*m);
            if (magazine.owner != &front) continue;
            // Relaxed: only this thread reads it.
            front.slots[magazine.lane->slot].store(&detail::no_magazine, std::memory_order_relaxed);
            core->drop_magazine(magazine);
            any = true;
        }
        if (!any || core->deleted_) continue;
        core->enforce();
        ++core->away_;
        return core;
    }
    return nullptr;
}

// A fork copies the calling thread only. Before it, every lock is taken and every magazine's owner
// is outside, so that the copy is whole; the slots open again when their owners next need them.

void Registry::before_fork() noexcept {
    Registry& registry = instance();
    registry.lock_.lock();
    for (Core* core = registry.cores_.first(); core != nullptr;
         core = Registry::Cores::after(*core)) {
        core->lock_.lock();
        const Seizure seizure(*core);
        core->forking_ = true;
    }
    BlockStore::process_lock().lock();
    Core::lock_of_waiting().lock();
}

void Registry::after_fork_in_parent() noexcept {
    Registry& registry = instance();
    Core::lock_of_waiting().unlock();
    BlockStore::process_lock().unlock();
    for (Core* core = registry.cores_.first(); core != nullptr;
         core = Registry::Cores::after(*core)) {
        core->forking_ = false;
        core->lock_.unlock();
    }
    registry.lock_.unlock();
}

void Registry::after_fork_in_child() noexcept {
    Registry& registry = instance();
    Core::renew_waiting();
    BlockStore::process_lock().unlock();
    renew_barrier();
    for (Core* core = registry.cores_.first(); core != nullptr;
         core = Registry::Cores::after(*core)) {
        core->forking_ = false;
        for (ThreadMagazine* m = core->magazines_.first(); m != nullptr;) {
            ThreadMagazine& magazine = *m;
            m = Core::Magazines::after(*m);
            if (magazine.owner != &thread_front) core->drop_magazine(magazine);
        }
        core->enforce();
        core->returning_ = 0;  // the threads that call the driver are not in the child
        for (Lane* lane = core->lanes_.first(); lane != nullptr; lane = Core::Lanes::after(*lane)) {
            lane->busy = lane->closing = lane->closers = lane->leavers = 0;
        }
        core->lock_.unlock();
    }
    // A recursive mutex knows its owner by a number that the child does not have: it gets a new one.
    new (&registry.lock_) std::recursive_mutex;
}

}  // namespace cistern
