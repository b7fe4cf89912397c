#pragma once
// Cistern's pools, one class per fit, all with statistics and checks on: there is no way to turn
// them off.

#include <cistern/pmr.hpp>
#include <cistern/pool.hpp>
#include <cstddef>
#include <utility>

namespace bench {

/// A pool with the fit that `Rule` makes of the size a task works with.
template <class Rule>
class CisternSource {
public:
    static constexpr bool any_size = Rule::any_size;
    static constexpr bool any_thread = true;

    explicit CisternSource(std::size_t bytes)
        : pool_(cistern::Memory::host(), {.name = "bench", .fit = Rule::fit(bytes)}) {}
    CisternSource(std::size_t /*bytes*/, cistern::PoolOptions options)
        : pool_(cistern::Memory::host(), std::move(options)) {}

    [[gnu::always_inline]] cistern::Buffer acquire(std::size_t bytes) {
        return pool_.acquire(bytes);
    }
    cistern::Buffer acquire_zeroed(std::size_t bytes) { return pool_.acquire_zeroed(bytes); }
    cistern::Pool& pool() { return pool_; }

private:
    cistern::Pool pool_;
};

struct ElasticRule {
    static constexpr bool any_size = true;
    static cistern::Fit fit(std::size_t /*bytes*/) { return cistern::Elastic{}; }
};
struct ExactRule {
    static constexpr bool any_size = false;
    static cistern::Fit fit(std::size_t /*bytes*/) { return cistern::ExactFit{}; }
};
struct BestRule {
    static constexpr bool any_size = false;
    static cistern::Fit fit(std::size_t /*bytes*/) { return cistern::BestFit{}; }
};
struct FixedRule {
    static constexpr bool any_size = false;
    static cistern::Fit fit(std::size_t bytes) { return cistern::FixedBlock{.bytes = bytes}; }
};

using Cistern = CisternSource<ElasticRule>;

}  // namespace bench
