#include <array>
#include <type_traits>

#include "pool/block.hpp"

namespace cistern {

namespace {

constexpr std::size_t slab_blocks = 64;

}  // namespace

// Both need no destruction: buffers may be released while the process exits.
BlockStore::Spares& BlockStore::process_spares() noexcept {
    static constinit Spares spares;
    return spares;
}

std::mutex& BlockStore::process_lock() noexcept {
    static constinit std::mutex lock;
    static_assert(std::is_trivially_destructible_v<std::mutex>);
    return lock;
}

BlockStore::~BlockStore() {
    const std::scoped_lock hold(process_lock());
    while (!own_.empty()) process_spares().push(own_.pop());
}

void BlockStore::reserve(std::size_t count) {
    if (spares_ >= count) return;
    const std::scoped_lock hold(process_lock());
    while (spares_ < count) {
        if (process_spares().empty()) {
            auto* const slab = new std::array<Block, slab_blocks>;  // never freed, see above
            // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): the list of spares owns them
            for (Block& block : *slab) process_spares().push(block);
        }
        for (std::size_t i = 0; i < slab_blocks && !process_spares().empty(); ++i) {
            Block& block = process_spares().pop();
            block.core = &core_;
            own_.push(block);
            ++spares_;
        }
    }
}

Block& BlockStore::take() noexcept {
    --spares_;
    return own_.pop();
}

void BlockStore::give(Block& block) noexcept {
    Block blank;
    // A stale handle may look at these at any time.
    blank.generation = block.generation;
    blank.core = &core_;
    block = blank;
    own_.push(block);
    ++spares_;
}

}  // namespace cistern
