#pragma once
// What every pool promises, for each memory and each fit. To add a memory or a fit to the contract,
// add a line to support/params.hpp.

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

#include "cistern/cistern.hpp"
#include "support/literals.hpp"
#include "support/params.hpp"
#include "support/patterns.hpp"
#include "support/reconcile.hpp"

namespace cistern::test {

/// Every memory with every fit. Requests are of `block_bytes`, which all fits serve without waste.
class PoolContract : public testing::TestWithParam<MemoryAndFit> {
protected:
    /// A pool with the fit and the memory of this case.
    Pool make_pool(PoolOptions options = {}) {
        options.fit = std::get<1>(GetParam()).fit;
        return Pool{memory(), std::move(options)};
    }
    [[nodiscard]] Memory memory() const { return under_test_.memory; }
    [[nodiscard]] bool is_elastic() const {
        return std::holds_alternative<Elastic>(std::get<1>(GetParam()).fit);
    }
    [[nodiscard]] bool has_bytes() const { return under_test_.memory.host_accessible(); }
    /// Asks the memory itself, where it can tell.
    void expect_memory_lent_at_most(std::size_t bytes) const {
        if (under_test_.outstanding == nullptr) return;
        EXPECT_LE(under_test_.outstanding->bytes.load(), bytes);
    }

    void SetUp() override {
        if (is_elastic() && grows_in_steps() && counts_to_the_byte()) {
            GTEST_SKIP() << "this memory grows in steps of 2 MiB and more, and the rest is idle";
        }
    }
    void TearDown() override {
        if (under_test_.outstanding == nullptr) return;
        EXPECT_EQ(under_test_.outstanding->bytes.load(), 0u) << "kept bytes beyond the pool's end";
        EXPECT_EQ(under_test_.outstanding->blocks.load(), 0u);
        EXPECT_EQ(under_test_.outstanding->mistakes.load(), 0u) << "gave back what was not lent";
    }

private:
    [[nodiscard]] bool grows_in_steps() const { return memory().kind() != MemoryKind::host; }
    /// Whether this test tells to the byte what the pool holds, or has to miss with its second request.
    static bool counts_to_the_byte();

    MemoryUnderTest under_test_ = std::get<0>(GetParam()).make();
};

/// The fits that serve any size.
class AnySizeContract : public PoolContract {};

/// The fits that keep blocks whole: what they keep and evict can be told to the block.
class WholeBlockContract : public PoolContract {};

/// The same without FixedBlock: whole blocks of several sizes.
class WholeBlocksOfAnySizeContract : public PoolContract {};

inline void expect_reconciled(const Pool& pool) {
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "") << pool.stats();
}

/// Returns whether the pool serves `bytes` from what is idle; leaves them idle again.
inline bool hits(Pool& pool, std::size_t bytes) {
    const std::uint64_t before = pool.stats().hits;
    const Buffer buffer = pool.acquire(bytes);
    return pool.stats().hits == before + 1;
}

}  // namespace cistern::test
