// Idle bytes under AddressSanitizer: touching them is reported, and nobody else's bytes stay poisoned.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "cistern/cistern.hpp"
#include "memory/watch.hpp"
#include "support/literals.hpp"
#include "support/params.hpp"
#include "support/sanitizers.hpp"

// Null unless this program was built with the sanitizer.
extern "C" [[gnu::weak]] int __asan_address_is_poisoned(const volatile void* data);

namespace cistern::test {

namespace {

bool is_poisoned(const void* data) { return __asan_address_is_poisoned(data) != 0; }

class PoisonDeathTest : public testing::TestWithParam<FitCase> {
protected:
    void SetUp() override {
        if (!under_asan) GTEST_SKIP() << "only AddressSanitizer sees it";
        GTEST_FLAG_SET(death_test_style, "threadsafe");
    }
    static Pool make_pool() { return Pool{Memory::host(), {.fit = GetParam().fit}}; }
};

}  // namespace

// Without that the suites would run under Valgrind and see nothing.
TEST(Valgrind, IsNoticed) {
    const char* const preloaded = std::getenv("LD_PRELOAD");

    EXPECT_EQ(under_valgrind(), preloaded != nullptr &&
                                    std::string(preloaded).find("vgpreload") != std::string::npos);
}

TEST_P(PoisonDeathTest, UseAfterReleaseIsReported) {
    Pool pool = make_pool();
    Buffer buffer = pool.acquire(1_KiB);
    auto* const data = static_cast<volatile char*>(buffer.data());
    data[0] = 1;

    buffer.release();

    EXPECT_DEATH(data[0] = 2, "use-after-poison");
    EXPECT_DEATH(data[1_KiB - 1] = 2, "use-after-poison");
}

TEST_P(PoisonDeathTest, OverrunIntoWasteIsReported) {
    Pool pool = make_pool();
    const Buffer buffer = pool.acquire(1_KiB - 24);
    auto* const data = static_cast<volatile char*>(buffer.data());

    data[1_KiB - 25] = 1;

    EXPECT_DEATH(data[1_KiB - 24] = 2, "use-after-poison");
}

TEST_P(PoisonDeathTest, BytesLentAgainMayBeUsed) {
    Pool pool = make_pool();
    for (std::size_t bytes = 1; bytes < 60'000; bytes = bytes * 3 + 1) {
        const Buffer buffer = pool.acquire(bytes), zeroed = pool.acquire_zeroed(bytes);
        EXPECT_FALSE(is_poisoned(buffer.data()));
        EXPECT_FALSE(is_poisoned(static_cast<char*>(buffer.data()) + bytes - 1));
        EXPECT_FALSE(is_poisoned(static_cast<char*>(zeroed.data()) + bytes - 1));
    }
}

TEST_P(PoisonDeathTest, TheAddressesOfAnEndedPoolAreFreeForOthers) {
    std::optional<Pool> pool = make_pool();
    Buffer idle = pool->acquire(block_bytes), trimmed = pool->acquire(block_bytes);
    const void* const data = idle.data();
    const void* const other = trimmed.data();
    trimmed.release();
    pool->trim();
    idle.release();

    pool.reset();

    EXPECT_FALSE(is_poisoned(data));
    EXPECT_FALSE(is_poisoned(other));
}

TEST_P(PoisonDeathTest, AdoptedBytesAreTheUsersAgainWhenTheyAreLetGo) {
    alignas(64) static char gift[block_bytes];
    bool usable = false;
    Pool pool = make_pool();
    pool.adopt(gift, block_bytes, [&](void* data) { usable = !is_poisoned(data); });
    EXPECT_TRUE(is_poisoned(gift));

    pool.trim();

    EXPECT_TRUE(usable);
    EXPECT_FALSE(is_poisoned(gift + block_bytes - 1));
}

INSTANTIATE_TEST_SUITE_P(With, PoisonDeathTest, testing::ValuesIn(all_fits()),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace cistern::test
