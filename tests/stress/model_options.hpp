#pragma once
// Random pools: any memory, any fit, any limits that make sense together.

#include <algorithm>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>

#include "cistern/pool.hpp"
#include "support/choices.hpp"
#include "support/literals.hpp"
#include "support/reconcile.hpp"
#include "support/sources.hpp"

namespace cistern::test {

/// A pool to be made, and what can be said about it beforehand.
struct Setup {
    Memory memory = Memory::simulated();
    PoolOptions options{};
    bool memory_is_small = false;  // may run out before a limit is reached
    std::size_t largest_request = 4_MiB;
    std::shared_ptr<const void> keep_alive{};
    const Outstanding* outstanding = nullptr;  // what the memory has handed out, if it can tell

    [[nodiscard]] bool has_bytes() const { return memory.host_accessible(); }
    [[nodiscard]] bool keeps_blocks_whole() const {
        return !std::holds_alternative<Elastic>(options.fit);
    }
    /// Whether a block that is too small becomes larger; else another is acquired in its place.
    [[nodiscard]] bool grows_blocks() const {
        return !keeps_blocks_whole() && !options.separate_types && outstanding == nullptr;
    }
    /// Whether a list of idle blocks can say what serves what, to the block.
    [[nodiscard]] bool is_predictable() const {
        const bool ties_matter = options.separate_types && options.evict != Evict::oldest;
        return keeps_blocks_whole() && !memory_is_small && !ties_matter &&
               options.max_bytes == no_limit && options.max_idle_age == forever;
    }
    [[nodiscard]] bool can_refuse() const {
        return memory_is_small || options.max_bytes != no_limit;
    }
    void set_limits(const Limits& limits) {
        options.max_bytes = limits.max_bytes;
        options.max_idle_bytes = limits.max_idle_bytes;
        options.max_idle_buffers = limits.max_idle_buffers;
        options.max_buffer_bytes = limits.max_buffer_bytes;
        options.max_idle_age = limits.max_idle_age;
    }
    /// A few favourite sizes, so that blocks are found again, and any other.
    [[nodiscard]] std::size_t choose_bytes(Choices& choices) const {
        constexpr std::size_t favourites[] = {1,         64,     100,    1_KiB,
                                              1_KiB + 1, 10'000, 64_KiB, 640_KiB};
        const std::size_t bytes = choices.one_in(2)
                                      ? favourites[choices.below(std::size(favourites))]
                                      : choices.size_below(largest_request);
        return std::min(bytes, largest_request);
    }
    [[nodiscard]] std::string describe() const {
        constexpr const char* fits[] = {"Elastic", "ExactFit", "BestFit", "FixedBlock"};
        std::ostringstream text;
        text << memory.name() << ", " << fits[options.fit.index()] << ", alignment "
             << options.alignment << ", max_bytes " << options.max_bytes << ", max_idle_bytes "
             << options.max_idle_bytes << ", max_idle_buffers " << options.max_idle_buffers
             << ", max_buffer_bytes " << options.max_buffer_bytes << ", max_idle_age "
             << options.max_idle_age.count() << " ms, evict " << static_cast<int>(options.evict)
             << (options.separate_types ? ", separate_types" : "")
             << (options.wipe_on_release ? ", wipe_on_release" : "");
        return text.str();
    }
};

/// Limits that a pool with this fit accepts.
inline Limits choose_limits(Choices& choices, const Fit& fit, bool predictable) {
    const auto* const fixed = std::get_if<FixedBlock>(&fit);
    const std::size_t block = fixed != nullptr ? fixed->bytes : 0;
    Limits limits{.max_idle_bytes = no_limit};
    if (!predictable && choices.one_in(2)) {
        limits.max_bytes = std::max(block, 1_MiB + choices.size_below(64_MiB));
    }
    if (choices.one_in(2))
        limits.max_idle_bytes = choices.one_in(8) ? 0 : choices.size_below(32_MiB);
    if (choices.one_in(4)) limits.max_idle_buffers = choices.below(20);
    if (choices.one_in(4)) {
        limits.max_buffer_bytes = std::max(block, choices.size_below(4_MiB));
    }
    if (!predictable && choices.one_in(6)) {
        limits.max_idle_age = std::chrono::milliseconds(choices.below(20));
    }
    if (limits.max_idle_bytes != no_limit) {
        limits.max_idle_bytes = std::min(limits.max_idle_bytes, limits.max_bytes);
    }
    return limits;
}

inline void choose_memory(Choices& choices, Setup& setup) {
    switch (choices.below(6)) {
        case 0:
            setup.memory = Memory::host();
            break;
        case 1:
            setup.memory = Memory::host({.huge_pages = false});
            break;
        case 2: {
            auto resource = std::make_shared<CountingResource>();
            setup.memory = Memory::from(*resource);
            setup.outstanding = &resource->outstanding();
            setup.keep_alive = std::move(resource);
            break;
        }
        case 3: {
            auto source = std::make_shared<FailingSource>();
            setup.memory = Memory(source);
            setup.outstanding = &source->outstanding();
            setup.keep_alive = std::move(source);
            break;
        }
        case 4:
            setup.memory = Memory::simulated();
            break;
        default:
            setup.memory = Memory::simulated({.capacity = 8_MiB});
            setup.memory_is_small = true;
    }
}

inline Setup choose_setup(Choices& choices) {
    constexpr std::size_t alignments[] = {64, 64, 64, 64, 256, 4_KiB};
    Setup setup;
    choose_memory(choices, setup);
    PoolOptions& options = setup.options;
    switch (choices.below(5)) {
        case 0:
            options.fit = ExactFit{};
            break;
        case 1:
            options.fit = BestFit{static_cast<double>(choices.below(5)) / 4};
            break;
        case 2:
            options.fit = FixedBlock{64 + choices.size_below(256_KiB)};
            setup.largest_request = std::get<FixedBlock>(options.fit).bytes;
            break;
        default:
            break;
    }
    options.alignment = alignments[choices.below(std::size(alignments))];
    options.evict = static_cast<Evict>(choices.below(3));
    options.separate_types = choices.one_in(4);
    options.wipe_on_release = choices.one_in(4);
    setup.set_limits(choose_limits(choices, options.fit, choices.one_in(2)));
    return setup;
}

}  // namespace cistern::test
