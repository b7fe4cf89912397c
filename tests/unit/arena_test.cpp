// The arena's invariants over long random work, on memories that move pages, that only count, and
// that can move nothing, so that bytes have to be copied.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cistern/pool.hpp"
#include "memory/sparse.hpp"
#include "pool/core.hpp"
#include "support/choices.hpp"
#include "support/literals.hpp"
#include "support/patterns.hpp"
#include "support/scale.hpp"

namespace cistern::test {

namespace {

/// Host memory whose pages stay where they are.
class Immovable final : public SparseSource {
public:
    [[nodiscard]] std::string name() const override { return "immovable"; }
    void* allocate(std::size_t bytes, std::size_t alignment) override {
        return host_->allocate(bytes, alignment);
    }
    void deallocate(void* data, std::size_t bytes, std::size_t alignment) noexcept override {
        host_->deallocate(data, bytes, alignment);
    }
    [[nodiscard]] std::size_t range_bytes(std::size_t bytes) const noexcept override {
        return bytes < 16_MiB ? 32_MiB : 2 * bytes;  // so that one range does not suffice
    }
    void* reserve(std::size_t bytes) override { return sparse().reserve(bytes); }
    void unreserve(void* range, std::size_t bytes) noexcept override {
        sparse().unreserve(range, bytes);
    }
    [[nodiscard]] std::size_t page() const noexcept override { return sparse().page(); }
    [[nodiscard]] std::size_t move_step() const noexcept override { return sparse().move_step(); }
    [[nodiscard]] std::size_t least_move() const noexcept override { return sparse().least_move(); }
    [[nodiscard]] bool commit(void* data, std::size_t bytes) noexcept override {
        return sparse().commit(data, bytes);
    }
    void decommit(void* data, std::size_t bytes, void* pages,
                  std::size_t page_bytes) noexcept override {
        sparse().decommit(data, bytes, pages, page_bytes);
    }
    bool move(void*, void*, std::size_t) noexcept override {
        ++refused;
        return false;
    }

    std::uint64_t refused = 0;

private:
    [[nodiscard]] SparseSource& sparse() const noexcept {
        return static_cast<SparseSource&>(*host_);
    }
    std::shared_ptr<MemorySource> host_ = Memory::host({.huge_pages = false}).source();
};

struct Loan {
    Block* block;
    std::uint64_t seed;
};

/// Acquires, releases, grows and trims at random. Returns what went wrong first, or nothing.
std::string work_at_random(const Memory& memory, std::uint64_t steps, std::uint64_t seed) {
    const auto front = Core::make(memory, {});
    Core& core = core_of(*front);
    const bool has_bytes = memory.host_accessible();
    SeededChoices choices(seed);
    std::vector<Loan> loans;
    const auto release = [&](std::size_t index) {
        std::swap(loans[index], loans.back());
        const auto [block, pattern] = loans.back();
        loans.pop_back();
        const bool whole = !has_bytes || has_marks(block->data, block->asked, pattern);
        core.give(*block, static_cast<std::uint32_t>(block->generation));
        return whole;
    };
    for (std::uint64_t step = 0; step < steps; ++step) {
        const std::uint64_t choice = choices.below(100);
        bool whole = true;
        if (loans.empty() || (choice < 45 && loans.size() < 30)) {
            const std::size_t bytes = choices.size_below(8_MiB);
            loans.push_back({core.take(lane_of(*front), bytes, 0, false), step});
            if (has_bytes) write_marks(loans.back().block->data, bytes, step);
        } else if (choice < 85) {
            whole = release(choices.below(loans.size()));
        } else if (choice < 97) {
            Loan& loan = loans[choices.below(loans.size())];
            const std::size_t before = loan.block->asked;
            loan.block = core.grow(*loan.block, before + choices.size_below(4_MiB));
            whole = !has_bytes || has_marks(loan.block->data, before, loan.seed);
            if (has_bytes) write_marks(loan.block->data, loan.block->asked, loan.seed);
        } else {
            core.trim(choices.size_below(8_MiB));
        }
        if (!whole) return "step " + std::to_string(step) + ": a block lost its bytes";
        if (const char* const wrong = core.check()) {
            return "step " + std::to_string(step) + ": " + wrong;
        }
    }
    while (!loans.empty()) release(0);
    core.trim(0);
    return core.stats().held_bytes.now == 0 ? "" : "something is held at the end";
}

}  // namespace

TEST(Arena, KeepsItsInvariantsOnMemoryThatMovesPages) {
    EXPECT_EQ(work_at_random(Memory::host(), scaled(3000), seed_or(1)), "");
    EXPECT_EQ(work_at_random(Memory::host({.huge_pages = false}), scaled(3000), seed_or(2)), "");
}

TEST(Arena, KeepsItsInvariantsOnSimulatedMemory) {
    EXPECT_EQ(work_at_random(Memory::simulated(), scaled(30'000), seed_or(3)), "");
}

TEST(Arena, CopiesWhatCannotMove) {
    const auto source = std::make_shared<Immovable>();

    EXPECT_EQ(
        work_at_random(Memory(source), std::max<std::uint64_t>(100, scaled(1000)), seed_or(4)), "");

    EXPECT_GT(source->refused, 0u);
}

TEST(Arena, GrowsBesideASmallerHoleWhereThatNeedsFewerBytes) {
    Pool pool{Memory::simulated()};
    Buffer largest = pool.acquire(64_MiB);
    const Buffer after_largest = pool.acquire(2_MiB);
    Buffer smaller = pool.acquire(60_MiB), gap = pool.acquire(20_MiB);
    const Buffer after_gap = pool.acquire(2_MiB);
    gap.release();
    pool.trim(0);
    largest.release();
    smaller.release();

    const Buffer larger_than_both = pool.acquire(70_MiB);

    EXPECT_EQ(pool.stats().moves, 1u);
    EXPECT_LE(pool.stats().moved_bytes, 12_MiB) << "the gap needs ten";
}

TEST(Arena, MovesPagesOutOfTheNextHoleIfTheBlockEndsBeforeIt) {
    Pool pool{Memory::simulated()};
    Buffer lead = pool.acquire(2_MiB), gap = pool.acquire(66_MiB), next = pool.acquire(64_MiB);
    const Buffer after_next = pool.acquire(2_MiB);
    gap.release();
    pool.trim(0);
    lead.release();
    next.release();
    const std::uint64_t held = pool.stats().held_bytes.now;

    const Buffer in_the_gap = pool.acquire(65_MiB);

    EXPECT_GE(pool.stats().moved_bytes, 60_MiB);
    EXPECT_LE(pool.stats().held_bytes.now, held + 4_MiB);
}

}  // namespace cistern::test
