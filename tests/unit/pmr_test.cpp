// Pools behind standard allocators, with the standard library as the client.

#include "cistern/pmr.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "support/literals.hpp"
#include "support/reconcile.hpp"

namespace cistern::test {

namespace {

using Allocator = PoolAllocator<double>;
using PooledVector = std::vector<double, Allocator>;

struct alignas(128) Wide {
    double values[16];
};

std::uintptr_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

class PmrTest : public testing::Test {
protected:
    void TearDown() override {
        EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
        EXPECT_EQ(contradictions(pool.stats()), "");
    }
    Pool pool{Memory::host(), {.name = "standard"}};
};

}  // namespace

TEST_F(PmrTest, AVectorGrowsThroughThePool) {
    PoolResource resource{pool};
    {
        std::pmr::vector<double> values{&resource};
        for (int i = 0; i < 100'000; ++i) values.push_back(i);
        EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0.0), 4999950000.0);
        EXPECT_GE(pool.stats().lent_bytes.now, 800'000u);
    }

    EXPECT_EQ(pool.stats().lent_bytes.now, 0u);
    EXPECT_GT(pool.stats().idle_bytes.now, 0u);
}

TEST_F(PmrTest, AMapOfStringsLivesInThePool) {
    PoolResource resource{pool};
    {
        std::pmr::map<std::pmr::string, int> words{&resource};
        for (int i = 0; i < 1000; ++i) {
            words.emplace("a long enough key, so that it is no short string, " + std::to_string(i),
                          i);
        }
        for (int i = 0; i < 1000; i += 2) {
            words.erase(std::pmr::string{"a long enough key, so that it is no short string, " +
                                         std::to_string(i)});
        }
        EXPECT_EQ(words.size(), 500u);
        EXPECT_EQ(words.begin()->first.get_allocator().resource(), &resource);
        EXPECT_GE(pool.stats().lent_buffers.now, 1000u);
    }

    EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
}

TEST_F(PmrTest, MixedContainersAgreeWithPlainOnes) {
    PoolResource resource{pool};
    std::pmr::unordered_map<int, std::pmr::list<std::pmr::string>> pooled{&resource};
    std::unordered_map<int, std::list<std::string>> plain;
    for (int i = 0; i < 2000; ++i) {
        const std::string text(static_cast<std::size_t>(i % 90), static_cast<char>('a' + i % 26));
        pooled[i % 71].emplace_back(text);
        plain[i % 71].push_back(text);
        if (i % 5 == 0) {
            pooled[i % 71].pop_front();
            plain[i % 71].pop_front();
        }
    }

    ASSERT_EQ(pooled.size(), plain.size());
    for (const auto& [key, texts] : plain) {
        EXPECT_TRUE(std::equal(texts.begin(), texts.end(), pooled.at(key).begin(),
                               pooled.at(key).end(), [](const auto& a, const auto& b) {
                                   return std::string_view(a) == std::string_view(b);
                               }));
    }
    pooled.clear();
    pooled.rehash(0);
    pooled = std::pmr::unordered_map<int, std::pmr::list<std::pmr::string>>{&resource};
}

TEST_F(PmrTest, EveryAlignmentUpToAPageHolds) {
    PoolResource resource{pool};
    for (std::size_t alignment = 1; alignment <= 4_KiB; alignment *= 2) {
        for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, 5_KiB, 70_KiB}) {
            void* const data = resource.allocate(bytes, alignment);

            EXPECT_EQ(address(data) % alignment, 0u) << alignment;
            std::fill_n(static_cast<char*>(data), bytes, 'x');
            resource.deallocate(data, bytes, alignment);
        }
    }
}

TEST_F(PmrTest, LargeBlocksWorkWhereTheStandardPoolsStop) {
    PoolResource resource{pool};

    for (int round = 0; round < 3; ++round) {
        std::pmr::vector<char> large(64_MiB, &resource);
        large.back() = 1;
    }

    EXPECT_EQ(pool.stats().misses, 1u);
    EXPECT_EQ(pool.stats().hits, 2u);
}

TEST_F(PmrTest, ZeroBytesAreAPointerThatCanBeGivenBack) {
    PoolResource resource{pool};

    void* const nothing = resource.allocate(0, 8);

    EXPECT_NO_THROW(resource.deallocate(nothing, 0, 8));
}

TEST_F(PmrTest, AnAlignmentThatIsNoPowerOfTwoIsRefused) {
    EXPECT_THROW((void)detail::allocate_from(pool, 64, 48), InvalidArgument);
    EXPECT_THROW((void)detail::allocate_from(pool, 64, 0), InvalidArgument);
}

TEST_F(PmrTest, RunningOutIsABadAlloc) {
    PoolResource small{Pool{Memory::host(), {.max_bytes = 64_KiB}}};
    volatile std::size_t far_too_much = no_limit - 100;  // not for the compiler to warn about

    EXPECT_THROW((void)small.allocate(128_KiB, 8), std::bad_alloc);
    EXPECT_THROW((std::pmr::vector<char>(1_MiB, &small)), OutOfMemory);
    EXPECT_THROW((void)small.allocate(far_too_much, 8), std::bad_alloc);

    EXPECT_EQ(small.pool().stats().held_bytes.now, 0u);
}

TEST_F(PmrTest, ResourcesOfOnePoolAreEqual) {
    const PoolResource a{pool}, b{pool}, c{Pool{}};

    EXPECT_EQ(a, b);
    EXPECT_NE(a, c);
    EXPECT_FALSE(a == *std::pmr::new_delete_resource());
    EXPECT_EQ(a.pool(), pool);
}

TEST_F(PmrTest, WhatOneResourceLentAnEqualOneTakesBack) {
    PoolResource a{pool}, b{pool};

    void* const data = a.allocate(1_KiB, 64);
    b.deallocate(data, 1_KiB, 64);

    EXPECT_EQ(pool.stats().releases, pool.stats().acquires);
}

TEST_F(PmrTest, TheDefaultResourceUsesTheDefaultPool) {
    const PoolResource resource;

    EXPECT_EQ(resource.pool(), default_pool());
    EXPECT_EQ(PoolAllocator<int>{}.pool(), default_pool());
}

TEST_F(PmrTest, AnAllocatorServesVectors) {
    {
        PooledVector values{Allocator{pool}};
        for (int i = 0; i < 10'000; ++i) values.push_back(i);
        const PooledVector copy = values;
        PooledVector moved = std::move(values);
        moved.insert(moved.begin() + 5, 100, -1.0);
        EXPECT_EQ(copy.size(), 10'000u);
        EXPECT_EQ(moved.size(), 10'100u);
        EXPECT_EQ(moved[5], -1.0);
        EXPECT_EQ(pool.stats().lent_buffers.now, 2u);
    }

    EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
}

TEST_F(PmrTest, AnAllocatorServesNodes) {
    using Pair = std::pair<const int, std::string>;
    std::map<int, std::string, std::less<>, PoolAllocator<Pair>> words{PoolAllocator<Pair>{pool}};

    for (int i = 0; i < 500; ++i) words.emplace(i, std::to_string(i));

    EXPECT_EQ(words.at(499), "499");
    EXPECT_EQ(pool.stats().lent_buffers.now, 500u);
    words.clear();
}

TEST_F(PmrTest, AnAllocatorAlignsWideTypes) {
    std::vector<Wide, PoolAllocator<Wide>> wide{PoolAllocator<Wide>{pool}};

    for (int i = 0; i < 20; ++i) {
        wide.push_back({});
        EXPECT_EQ(address(wide.data()) % alignof(Wide), 0u);
    }
}

TEST_F(PmrTest, AllocatorsCompareByPool) {
    const Allocator mine{pool}, other{Pool{}};

    EXPECT_EQ(mine, PoolAllocator<char>(mine));
    EXPECT_NE(mine, other);
}

TEST_F(PmrTest, TooManyElementsAreRefused) {
    Allocator allocator{pool};

    EXPECT_THROW((void)allocator.allocate(no_limit / 4), std::bad_array_new_length);
    EXPECT_THROW((void)allocator.allocate(no_limit / 8), std::bad_alloc);
}

TEST_F(PmrTest, AMovedFromVectorMayBeUsedAgain) {
    PooledVector from{Allocator{Pool{}}};  // its allocator alone holds this pool
    from.assign(100, 1.0);

    { const PooledVector to = std::move(from); }

    from.assign(200, 2.0);  // NOLINT(bugprone-use-after-move): a standard container allows it
    EXPECT_EQ(from[199], 2.0);
    EXPECT_EQ(from.get_allocator().pool().stats().acquires, 2u);
}

TEST_F(PmrTest, TheResourceKeepsItsPoolAlive) {
    auto resource = std::make_unique<PoolResource>(Pool{});
    std::pmr::vector<int> values(1000, 7, resource.get());

    values.resize(100'000, 8);

    EXPECT_EQ(values[999], 7);
    EXPECT_EQ(values[99'999], 8);
    values = std::pmr::vector<int>(resource.get());
}

TEST_F(PmrTest, SeveralThreadsShareAResource) {
    PoolResource resource{pool};
    std::vector<std::thread> threads;
    std::vector<int> sums(4);

    for (std::size_t t = 0; t < sums.size(); ++t) {
        threads.emplace_back([&resource, &sum = sums[t]] {
            for (int i = 0; i < 200; ++i) {
                std::pmr::map<int, std::pmr::vector<int>> m{&resource};
                for (int k = 0; k < 10; ++k) m[k].assign(100, k);
                for (const auto& [key, values] : m) {
                    sum += std::accumulate(values.begin(), values.end(), 0);
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();

    for (const int sum : sums) EXPECT_EQ(sum, 200 * 100 * 45);
}

}  // namespace cistern::test
