// The pool's figures agree with the system's: what it holds is resident, what it gave back is not.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "cistern/pool.hpp"
#include "support/literals.hpp"
#include "support/params.hpp"
#include "support/sanitizers.hpp"

namespace cistern::test {

namespace {

std::int64_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    std::int64_t total = 0, resident = 0;
    statm >> total >> resident;
    return resident * sysconf(_SC_PAGESIZE);
}

/// What other parts of the process may have touched meanwhile, and one commit step.
constexpr std::int64_t tolerance = std::int64_t{4} << 20;

class ResidentBytes : public testing::TestWithParam<FitCase> {
protected:
    void SetUp() override {
        if (under_asan || under_tsan) GTEST_SKIP() << "a sanitizer has pages of its own";
        const char* const preloaded = std::getenv("LD_PRELOAD");
        if (preloaded != nullptr) GTEST_SKIP() << "another tool has pages of its own";
    }
    static PoolOptions options() {
        Fit fit = GetParam().fit;
        if (std::holds_alternative<FixedBlock>(fit)) fit = FixedBlock{8_MiB};
        return {.fit = fit};
    }
    void take(Pool& pool, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            lent.push_back(pool.acquire(8_MiB));
            std::memset(lent.back().data(), 1, 8_MiB);
        }
    }
    void expect_agreement(const Pool& pool) const {
        const auto held = static_cast<std::int64_t>(pool.stats().held_bytes.now);
        EXPECT_NEAR(static_cast<double>(resident_bytes() - before), static_cast<double>(held),
                    static_cast<double>(tolerance));
    }

    std::vector<Buffer> lent;
    std::int64_t before = 0;
};

}  // namespace

TEST_P(ResidentBytes, AreWhatThePoolSaysItHolds) {
    Pool pool{Memory::host(), options()};
    before = resident_bytes();

    take(pool, 16);
    expect_agreement(pool);
    lent.resize(8);
    expect_agreement(pool);
    pool.trim(24_MiB);
    expect_agreement(pool);
    lent.clear();
    pool.trim();

    EXPECT_EQ(pool.stats().held_bytes.now, 0u);
    expect_agreement(pool);
}

TEST_P(ResidentBytes, FallWhenALimitEvicts) {
    Pool pool{Memory::host(), options()};
    before = resident_bytes();
    take(pool, 16);
    lent.clear();

    pool.set_limits({.max_idle_bytes = 16_MiB});

    EXPECT_LE(pool.stats().held_bytes.now, 16_MiB);
    expect_agreement(pool);
}

TEST_P(ResidentBytes, FallWhenThePoolEnds) {
    before = resident_bytes();
    {
        Pool pool{Memory::host(), options()};
        take(pool, 8);
        lent.resize(1);
    }
    EXPECT_NEAR(static_cast<double>(resident_bytes() - before), static_cast<double>(8_MiB),
                static_cast<double>(tolerance));

    lent.clear();

    EXPECT_NEAR(static_cast<double>(resident_bytes() - before), 0, static_cast<double>(tolerance));
}

INSTANTIATE_TEST_SUITE_P(With, ResidentBytes, testing::ValuesIn(all_fits()),
                         [](const auto& c) { return std::string(c.param.name); });

TEST(ResidentBytesOfReuse, StayTheSame) {
    if (under_asan || under_tsan) GTEST_SKIP() << "a sanitizer has pages of its own";
    Pool pool;
    for (int i = 0; i < 3; ++i) std::memset(pool.acquire(64_MiB).data(), i, 64_MiB);
    const std::int64_t before = resident_bytes();

    for (int i = 0; i < 20; ++i) std::memset(pool.acquire(64_MiB).data(), i, 64_MiB);

    EXPECT_NEAR(static_cast<double>(resident_bytes() - before), 0, static_cast<double>(tolerance));
    EXPECT_EQ(pool.stats().misses, 1u);
}

TEST(ResidentBytesOfSmallPools, AreWhatTheyTouchNotHugePages) {
    if (under_asan || under_tsan) GTEST_SKIP() << "a sanitizer has pages of its own";
    std::string setting;
    std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), setting);
    if (setting.find("[always]") != std::string::npos) GTEST_SKIP() << "the system always does";
    const std::int64_t before = resident_bytes();
    std::vector<Pool> pools(20);
    std::vector<Buffer> lent;
    for (Pool& pool : pools) {
        lent.push_back(pool.acquire(10'000));
        std::memset(lent.back().data(), 1, 10'000);
    }
    EXPECT_LE(resident_bytes() - before, tolerance);
}

}  // namespace cistern::test
