#pragma once
// The floor: a thread-local list of equal blocks, last in first out, linked through the blocks. It
// counts nothing, checks nothing and knows one size: no pool can cost less.

#include <cstddef>
#include <mutex>
#include <new>
#include <vector>

#include "sources/mapping.hpp"

namespace bench {

struct FloorNode {
    FloorNode* below;
};

// Aligned, because its place decides what a pair costs: 2.1 ns at most addresses and here, half of that
// at some, where the processor happens to guess that a load returns what was just stored.
alignas(64) inline constinit thread_local FloorNode* floor_top = nullptr;

class FloorLoan {
public:
    explicit FloorLoan(FloorNode* node) : node_(node) {}
    FloorLoan(const FloorLoan&) = delete;
    FloorLoan& operator=(const FloorLoan&) = delete;
    ~FloorLoan() {
        node_->below = floor_top;
        floor_top = node_;
    }
    [[nodiscard]] void* data() const { return node_; }

private:
    FloorNode* node_;
};

class Floor {
public:
    static constexpr bool any_size = false;
    static constexpr bool any_thread = false;

    explicit Floor(std::size_t bytes) : bytes_(bytes) {}
    ~Floor() { floor_top = nullptr; }
    Floor(const Floor&) = delete;
    Floor& operator=(const Floor&) = delete;

    [[gnu::always_inline]] FloorLoan acquire(std::size_t /*bytes*/) {
        if (floor_top == nullptr) [[unlikely]]
            grow();
        FloorNode* const node = floor_top;
        floor_top = node->below;
        return FloorLoan(node);
    }

private:
    [[gnu::noinline, gnu::cold]] void grow() {
        const std::lock_guard lock(mutex_);
        floor_top = new (mappings_.emplace_back(bytes_).data()) FloorNode{nullptr};
    }

    std::size_t bytes_;
    std::mutex mutex_;
    std::vector<HugeMapping> mappings_;
};

}  // namespace bench
