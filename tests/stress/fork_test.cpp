// A pool after fork(), and at the end of a process.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "cistern/cistern.hpp"
#include "support/child.hpp"
#include "support/literals.hpp"
#include "support/patterns.hpp"
#include "support/reconcile.hpp"
#include "support/sanitizers.hpp"
#include "support/scale.hpp"
#include "support/threads.hpp"

namespace cistern::test {

namespace {

class ForkTest : public testing::Test {
protected:
    void SetUp() override {
        if (under_tsan) GTEST_SKIP() << "ThreadSanitizer does not follow fork() with threads";
    }
};

/// While other threads run, which may be inside malloc() at that moment.
class ForkWithThreads : public ForkTest {
protected:
    void SetUp() override {
        ForkTest::SetUp();
        if (under_asan) GTEST_SKIP() << "AddressSanitizer's malloc hangs in such a child";
    }
};

/// What a child does with a pool that its parent was using; its exit code says what failed.
int use_in_child(Pool& pool, const Buffer& from_parent) {
    if (!has_pattern(from_parent.data(), from_parent.size(), 1)) return 2;
    if (!contradictions(pool.stats()).empty()) return 3;
    for (std::uint64_t k = 0; k < 200; ++k) {
        const Buffer a = pool.acquire(1 + scrambled(k) % 300'000), b = pool.acquire(64_KiB);
        write_marks(a.data(), a.size(), k);
        write_marks(b.data(), b.size(), k + 1);
        if (!has_marks(a.data(), a.size(), k) || !has_marks(b.data(), b.size(), k + 1)) return 4;
    }
    if (!has_pattern(from_parent.data(), from_parent.size(), 1)) return 5;
    std::thread([&pool] {
        for (int k = 0; k < 100; ++k) (void)pool.acquire(64_KiB);
    }).join();
    pool.trim();
    if (pool.stats().idle_bytes.now != 0) return 6;
    if (!contradictions(pool.stats()).empty()) return 7;
    Pool fresh;
    if (fresh.acquire(1_MiB).empty()) return 8;
    return 0;
}

void expect_fine(const Ending& ending) {
    EXPECT_FALSE(ending.timed_out) << "the child hung";
    EXPECT_TRUE(ending.exited) << "signal " << ending.code;
    EXPECT_EQ(ending.code, 0);
}

}  // namespace

TEST_F(ForkTest, LeavesAUsablePoolInTheChild) {
    Pool pool;
    const Buffer held = pool.acquire(300'000);
    write_pattern(held.data(), held.size(), 1);
    { const Buffer idle = pool.acquire(64_KiB); }

    expect_fine(in_child([&] { return use_in_child(pool, held); }));

    EXPECT_TRUE(has_pattern(held.data(), held.size(), 1)) << "the child wrote into its parent";
    EXPECT_EQ(pool.stats().lent_buffers.now, 1u);
}

TEST_F(ForkWithThreads, LeavesAUsablePool) {
    Pool pool;
    const Buffer held = pool.acquire(300'000);
    write_pattern(held.data(), held.size(), 1);
    const auto churn = [&, k = std::uint64_t{0}]() mutable {
        const Buffer a = pool.acquire(1 + scrambled(++k) % 300'000), b = pool.acquire(64_KiB);
        write_marks(a.data(), a.size(), k);
        if (k % 64 == 0) pool.trim(1_MiB);
        if (k % 32 == 0) (void)pool.stats();
    };
    {
        const Meanwhile one(churn), two(churn);
        for (std::uint64_t i = 0; i < scaled(60); ++i) {
            const Ending ending = in_child([&] { return use_in_child(pool, held); });
            expect_fine(ending);
            if (ending.timed_out) break;
        }
    }

    EXPECT_EQ(pool.stats().lent_buffers.now, 1u);
    EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
}

TEST_F(ForkWithThreads, LeavesEveryPoolUsable) {
    std::vector<Pool> pools;
    for (int i = 0; i < 40; ++i) pools.emplace_back(Memory::host(), PoolOptions{.fit = ExactFit{}});
    for (Pool& pool : pools) (void)pool.acquire(64_KiB);
    const Meanwhile churn(
        [&, k = std::size_t{0}]() mutable { (void)pools[++k % pools.size()].acquire(64_KiB); });

    for (std::uint64_t i = 0; i < scaled(20); ++i) {
        expect_fine(in_child([&] {
            for (Pool& pool : pools) {
                { const Buffer buffer = pool.acquire(64_KiB); }
                if (pool.trim() < 64_KiB || pool.stats().idle_bytes.now != 0) return 1;
            }
            return 0;
        }));
    }
}

TEST_F(ForkWithThreads, LeavesStandardContainersUsable) {
    PoolResource resource{Pool{}};
    const auto churn = [&] { const std::pmr::list<int> small(50, 1, &resource); };
    const Meanwhile one(churn), two(churn);

    for (std::uint64_t i = 0; i < scaled(100); ++i) {
        const Ending ending = in_child([&] {
            std::pmr::list<int> values(1000, 7, &resource);
            return values.back() == 7 ? 0 : 1;
        });
        expect_fine(ending);
        if (ending.timed_out) return;
    }
}

TEST_F(ForkTest, AChildMayForkAgain) {
    Pool pool;
    const Buffer held = pool.acquire(300'000);
    write_pattern(held.data(), held.size(), 1);

    expect_fine(in_child([&] {
        const Ending grandchild = in_child([&] { return use_in_child(pool, held); });
        return grandchild.exited && grandchild.code == 0 ? use_in_child(pool, held) : 100;
    }));
}

namespace {

/// A process that ends while buffers, arrays and pools are still alive in every kind of storage.
class ExitDeathTest : public testing::Test {
protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

struct Keeper {
    Pool pool{Memory::host(), {.name = "kept"}};
    std::vector<Buffer> buffers;
};

[[noreturn]] void exit_with_live_buffers() {
    static Buffer made_before_the_pool;
    static thread_local std::vector<Buffer> of_the_main_thread;
    made_before_the_pool = default_pool().acquire(64_KiB);
    static Array<double, 1> made_after_the_pool = default_pool().zeros<double>(1000);
    static Keeper keeper;
    for (int i = 0; i < 20; ++i) keeper.buffers.push_back(keeper.pool.acquire(10'000));
    of_the_main_thread.push_back(keeper.pool.acquire(1_MiB));
    auto* const leaked = new Buffer(default_pool().acquire(64_KiB));
    std::atexit([] { (void)default_pool().acquire(64_KiB); });
    std::exit(leaked->empty() ? 1 : 0);
}

[[noreturn]] void exit_with_threads_running() {
    static Pool pool;
    for (int i = 0; i < 3; ++i) {
        std::thread([] {
            static thread_local Buffer kept;
            for (std::uint64_t k = 0;; ++k) {
                kept = pool.acquire(1 + scrambled(k) % 100'000);
                kept = default_pool().acquire(1 + scrambled(k) % 100'000);
            }
        }).detach();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::quick_exit(0);
}

[[noreturn]] void exit_with_threads_in_the_default_pool() {
    for (int i = 0; i < 3; ++i) {
        std::thread([] {
            for (std::uint64_t k = 0;; ++k)
                (void)default_pool().acquire(1 + scrambled(k) % 100'000);
        }).detach();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::exit(0);
}

}  // namespace

TEST_F(ExitDeathTest, AProcessMayEndWithLiveBuffers) {
    EXPECT_EXIT(exit_with_live_buffers(), testing::ExitedWithCode(0), "");
}

TEST_F(ExitDeathTest, AProcessMayEndQuicklyWhileThreadsUseItsPools) {
    EXPECT_EXIT(exit_with_threads_running(), testing::ExitedWithCode(0), "");
}

TEST_F(ExitDeathTest, AProcessMayEndWhileThreadsUseTheDefaultPool) {
    EXPECT_EXIT(exit_with_threads_in_the_default_pool(), testing::ExitedWithCode(0), "");
}

}  // namespace cistern::test
