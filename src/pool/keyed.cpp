#include "cistern/keyed.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/bytes.hpp"
#include "base/short_lock.hpp"

namespace cistern {

namespace {

/// A number that no other thread has, had or will have.
std::uint64_t this_thread() noexcept {
    static std::atomic<std::uint64_t> last{0};
    thread_local constinit std::uint64_t number = 0;
    // Relaxed: only the number itself is shared.
    if (number == 0) number = last.fetch_add(1, std::memory_order_relaxed) + 1;
    return number;
}

/// Expires when the calling thread ends.
std::weak_ptr<const void> life_of_this_thread() {
    thread_local const auto life = std::make_shared<const char>();
    return life;
}

/// Keys are few and short: their ends and their length tell most of them apart.
struct KeyHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const noexcept {
        std::uint64_t first = 0, last = 0;
        const std::size_t bytes = key.size();
        if (bytes >= 8) {
            std::memcpy(&first, key.data(), 8);
            std::memcpy(&last, key.data() + bytes - 8, 8);
        } else if (bytes >= 4) {
            std::memcpy(&first, key.data(), 4);
            std::memcpy(&last, key.data() + bytes - 4, 4);
        } else {
            for (const char c : key) first = first << 8 | static_cast<unsigned char>(c);
        }
        const std::uint64_t mixed =
            (first ^ (last * 0x9E3779B97F4A7C15U) ^ bytes) * 0xD6E8FEB86659FD93U;
        return mixed ^ mixed >> 32;
    }
};

}  // namespace

class KeyedPool::State {
public:
    State(const Pool& pool, KeyedOptions options) : pool_(pool), options_(options) {}

    void* get(std::string_view key, std::size_t bytes, std::shared_ptr<const void>* owner) {
        const std::scoped_lock hold(lock_);
        const auto found = keys_.find(key);
        if (found == keys_.end()) return first(key, bytes, owner);
        Key& entry = found->second;
        Holder& holder = holder_of(found->first, entry);
        if (bytes <= holder.bytes()) [[likely]] {
            ++entry.counts.hits;
        } else if (holder.buffer == nullptr) {  // another thread's key: this one's first request
            holder.buffer = std::make_shared<Buffer>(pool_.acquire(bytes));
            ++entry.counts.misses;
        } else {
            grow(holder, bytes);
            ++entry.counts.grows;
        }
        if (owner != nullptr) *owner = holder.buffer;
        return holder.data();
    }

    template <class F>
    auto read(F f) const {
        const std::scoped_lock hold(lock_);
        return f(keys_);
    }
    void clear() {
        const std::scoped_lock hold(lock_);
        keys_.clear();
    }
    [[nodiscard]] const Pool& pool() const noexcept { return pool_; }

    struct Holder {
        std::uint64_t thread = 0;
        std::weak_ptr<const void> life;  // of the thread
        std::shared_ptr<Buffer> buffer;

        [[nodiscard]] std::size_t bytes() const noexcept {
            return buffer == nullptr ? 0 : buffer->size();
        }
        [[nodiscard]] void* data() const noexcept {
            return buffer == nullptr ? nullptr : buffer->data();
        }
    };
    struct Key {
        std::vector<Holder> holders;  // one, or one per thread
        KeyStats counts;

        [[nodiscard]] std::size_t bytes() const noexcept {
            std::size_t sum = 0;
            for (const Holder& holder : holders) sum += holder.bytes();
            return sum;
        }
    };
    using Keys = std::unordered_map<std::string, Key, KeyHash, std::equal_to<>>;

private:
    void* first(std::string_view key, std::size_t bytes, std::shared_ptr<const void>* owner) {
        Key entry;
        entry.holders.push_back(
            {this_thread(), life_of_this_thread(), std::make_shared<Buffer>(pool_.acquire(bytes))});
        entry.counts.misses = 1;
        const Holder& holder = entry.holders.front();
        if (owner != nullptr) *owner = holder.buffer;
        void* const data = holder.data();
        keys_.emplace(key, std::move(entry));
        return data;
    }

    /// Returns the calling thread's part of a key; that of a thread that has ended passes on to it.
    Holder& holder_of(const std::string& key, Key& entry) const {
        const std::uint64_t thread = this_thread();
        for (Holder& holder : entry.holders) {
            if (holder.thread == thread) return holder;
        }
        for (Holder& holder : entry.holders) {
            if (!holder.life.expired()) continue;
            holder.thread = thread;
            holder.life = life_of_this_thread();
            return holder;
        }
        if (options_.same_key == SameKey::error) {
            throw InvalidArgument("key is in use by another thread: '" + key +
                                  "' (SameKey::own_buffer gives each thread its own)");
        }
        return entry.holders.emplace_back(Holder{thread, life_of_this_thread(), nullptr});
    }

    void grow(Holder& holder, std::size_t bytes) {
        if (holder.buffer.use_count() == 1) {
            pool_.grow(*holder.buffer, bytes);
        } else {  // somebody holds the old bytes: they stay as they are
            holder.buffer = std::make_shared<Buffer>(pool_.acquire(bytes));
        }
    }

    Pool pool_;
    const KeyedOptions options_;
    mutable ShortLock lock_;
    Keys keys_;
};

KeyedPool::KeyedPool(const Pool& pool, KeyedOptions options)
    : state_(std::make_shared<State>(pool, options)) {}

void* KeyedPool::get_bytes(std::string_view key, std::size_t bytes, std::size_t alignment,
                           std::shared_ptr<const void>* owner) {
    if (alignment > 64 && alignment > pool().options().alignment) {
        detail::throw_not_aligned(alignment, pool().options().alignment);
    }
    return state_->get(key, bytes, owner);
}

KeyStats KeyedPool::stats(std::string_view key) const {
    return state_->read([&](const State::Keys& keys) {
        const auto found = keys.find(key);
        return found == keys.end() ? KeyStats{} : found->second.counts;
    });
}

std::map<std::string, KeyStats, std::less<>> KeyedPool::stats() const {
    return state_->read([](const State::Keys& keys) {
        std::map<std::string, KeyStats, std::less<>> counts;
        for (const auto& [key, entry] : keys) counts.emplace(key, entry.counts);
        return counts;
    });
}

std::size_t KeyedPool::memory_bytes(std::string_view key) const {
    return state_->read([&](const State::Keys& keys) {
        const auto found = keys.find(key);
        return found == keys.end() ? std::size_t{0} : found->second.bytes();
    });
}

std::size_t KeyedPool::memory_bytes() const {
    return state_->read([](const State::Keys& keys) {
        std::size_t sum = 0;
        for (const auto& [key, entry] : keys) sum += entry.bytes();
        return sum;
    });
}

std::vector<std::string> KeyedPool::keys() const {
    return state_->read([](const State::Keys& keys) {
        std::vector<std::string> names;
        for (const auto& [key, entry] : keys) names.push_back(key);
        std::sort(names.begin(), names.end());
        return names;
    });
}

Explanation KeyedPool::explain() const {
    return state_->read([this](const State::Keys& keys) {
        Explanation explanation = pool().explain();
        for (const auto& [key, entry] : keys) {
            KeyReport& row = explanation.keys.emplace_back(KeyReport{.key = key});
            for (const State::Holder& holder : entry.holders) {
                if (holder.bytes() == 0) continue;
                ++row.lent_buffers;
                row.lent_bytes += holder.buffer->capacity();
            }
        }
        std::sort(explanation.keys.begin(), explanation.keys.end(),
                  [](const KeyReport& a, const KeyReport& b) {
                      return a.lent_bytes != b.lent_bytes ? a.lent_bytes > b.lent_bytes
                                                          : a.key < b.key;
                  });
        return explanation;
    });
}

void KeyedPool::clear() { state_->clear(); }

const Pool& KeyedPool::pool() const noexcept { return state_->pool(); }

}  // namespace cistern
