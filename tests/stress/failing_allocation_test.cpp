// Every allocation that the library makes for itself fails once: an error comes out, the pool is as
// it was, and the next attempt succeeds.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "cistern/cistern.h"
#include "cistern/cistern.hpp"
#include "support/failing_new.hpp"
#include "support/literals.hpp"
#include "support/params.hpp"
#include "support/patterns.hpp"
#include "support/reconcile.hpp"

namespace cistern::test {

namespace {

struct Outcomes {
    int failed = 0, succeeded = 0;
};

/// For n = 0, 1, ...: prepares, then acts with the n-th allocation failing, until none fails.
/// `check` says what must hold after either outcome.
template <class Prepare, class Act, class Check>
Outcomes fail_each(Prepare prepare, Act act, Check check) {
    Outcomes outcomes;
    for (std::uint64_t n = 0; n < 10'000; ++n) {
        auto subject = prepare();
        bool thrown = false, refused = false;
        {
            const FailingNew failing(n);
            try {
                act(*subject);
            } catch (const std::bad_alloc&) {  // OutOfMemory is one
                thrown = true;
            }
            refused = FailingNew::has_failed();
        }
        EXPECT_TRUE(refused || !thrown) << "an error without a reason";
        check(*subject, thrown);
        ++(thrown ? outcomes.failed : outcomes.succeeded);
        if (!refused) return outcomes;
    }
    ADD_FAILURE() << "no end to the allocations";
    return outcomes;
}

struct Subject {
    Pool pool;
    Buffer lent;
    PoolStats before;

    explicit Subject(const Fit& fit, Memory memory = Memory::host())
        : pool(std::move(memory), {.name = "subject", .fit = fit}), lent(pool.acquire(10'000)) {
        write_pattern(lent.data(), lent.size(), 1);
        { const Buffer idle = pool.acquire(20'000); }
        before = pool.stats();
    }
    void expect_usable() {
        EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
        EXPECT_TRUE(has_pattern(lent.data(), lent.size(), 1));
        const Buffer again = pool.acquire(20'000), more = pool.acquire(30'000);
        EXPECT_FALSE(again.empty() || more.empty());
        EXPECT_EQ(pool.stats().lent_buffers.now, before.lent_buffers.now + 2);
    }
};

class FailEveryAllocation : public testing::TestWithParam<FitCase> {
protected:
    static auto make() {
        return [] { return std::make_unique<Subject>(GetParam().fit); };
    }
    /// After a failure nothing has changed but the count of failures.
    static void expect_unchanged_or_done(Subject& subject, bool thrown) {
        if (thrown) {
            PoolStats now = subject.pool.stats();
            now.failures = subject.before.failures;
            EXPECT_EQ(now.lent_bytes.now, subject.before.lent_bytes.now);
            EXPECT_EQ(now.acquires, subject.before.acquires);
            EXPECT_EQ(now.releases, subject.before.releases);
        }
        subject.expect_usable();
    }
};

}  // namespace

TEST_P(FailEveryAllocation, OfMakingAPool) {
    struct Nothing {};
    const Outcomes outcomes =
        fail_each([] { return std::make_unique<Nothing>(); },
                  [](Nothing&) {
                      const Pool pool{
                          Memory::host(),
                          {.name = "a name too long to be stored in place", .fit = GetParam().fit}};
                  },
                  [](Nothing&, bool) {});

    EXPECT_GT(outcomes.failed, 0);
    EXPECT_GT(outcomes.succeeded, 0);
    EXPECT_EQ(Pool{}.stats().held_bytes.now, 0u);
}

TEST_P(FailEveryAllocation, OfAcquiring) {
    const Outcomes outcomes = fail_each(
        make(),
        [](Subject& s) {
            std::vector<Buffer> lent(200);  // enough to need new descriptors
            for (Buffer& buffer : lent) buffer = s.pool.acquire(40'000);
        },
        [](Subject& s, bool) { s.expect_usable(); });

    EXPECT_GT(outcomes.failed, 0);
    EXPECT_GT(outcomes.succeeded, 0);
}

TEST_P(FailEveryAllocation, OfTheFirstAcquireOfAPool) {
    const Outcomes outcomes = fail_each(
        [] { return std::make_unique<Pool>(Memory::host(), PoolOptions{.fit = GetParam().fit}); },
        [](Pool& pool) { (void)pool.acquire(10'000); },
        [](Pool& pool, bool thrown) {
            EXPECT_EQ(pool.stats().acquires, thrown ? 0u : 1u);
            EXPECT_EQ(contradictions_at_rest(pool.stats(), limits_of(pool.options())), "");
            EXPECT_NO_THROW((void)pool.acquire(10'000));
        });

    EXPECT_GT(outcomes.failed, 0);
    EXPECT_GT(outcomes.succeeded, 0);
}

TEST_P(FailEveryAllocation, OfTryingToAcquire) {
    bool was_empty = false;
    const Outcomes outcomes = fail_each(
        make(),
        [&](Subject& s) {
            for (int i = 0; i < 3; ++i) was_empty |= s.pool.try_acquire(40'000).empty();
        },
        [](Subject& s, bool thrown) {
            EXPECT_FALSE(thrown) << "trying does not throw";
            s.expect_usable();
        });

    EXPECT_GT(outcomes.succeeded, 0);
}

TEST_P(FailEveryAllocation, OfReleasing) {
    const Outcomes outcomes = fail_each(
        make(),
        [](Subject& s) {
            Buffer buffer = std::move(s.lent);
            s.pool.release(std::move(buffer));
        },
        [](Subject& s, bool thrown) {
            EXPECT_FALSE(thrown) << "a release needs no memory";
            EXPECT_EQ(s.pool.stats().lent_buffers.now, 0u);
            EXPECT_NO_THROW((void)s.pool.acquire(10'000));
        });

    EXPECT_EQ(outcomes.failed, 0);
    EXPECT_GT(outcomes.succeeded, 0);
}

TEST_P(FailEveryAllocation, OfTrimmingAndSettingLimits) {
    const Outcomes outcomes = fail_each(
        make(),
        [](Subject& s) {
            s.pool.trim(1'000);
            s.pool.set_limits({.max_idle_bytes = 1_MiB});
            s.pool.trim();
        },
        [](Subject& s, bool thrown) { expect_unchanged_or_done(s, thrown); });

    EXPECT_GT(outcomes.succeeded, 0);
}

TEST_P(FailEveryAllocation, OfAskingForStatistics) {
    const Outcomes outcomes = fail_each(
        make(),
        [](Subject& s) {
            (void)s.pool.stats().json();
            (void)s.pool.explain().json();
            (void)s.pool.options();
        },
        [](Subject& s, bool thrown) { expect_unchanged_or_done(s, thrown); });

    EXPECT_GT(outcomes.failed, 0);
    EXPECT_GT(outcomes.succeeded, 0);
}

TEST_P(FailEveryAllocation, OfAdopting) {
    static int deleted = 0;
    alignas(64) static std::byte gift[block_bytes];
    std::string captured(100, 'x');
    int adopted = 0;
    deleted = 0;

    const Outcomes outcomes = fail_each(
        make(),
        [&](Subject& s) { s.pool.adopt(gift, block_bytes, [captured](void*) { ++deleted; }); },
        [&](Subject& s, bool thrown) {
            adopted += !thrown;
            s.expect_usable();
        });

    EXPECT_GT(outcomes.failed, 0);
    EXPECT_GT(outcomes.succeeded, 0);
    EXPECT_EQ(deleted, adopted) << "what was refused remains the caller's";
}

TEST_P(FailEveryAllocation, OfReportingOutOfMemory) {
    const Outcomes outcomes = fail_each(
        make(),
        [](Subject& s) {
            s.pool.on_out_of_memory([](std::size_t) {});
            s.pool.set_limits({.max_bytes = 64_KiB});
            try {
                const Buffer a = s.pool.acquire(40'000), b = s.pool.acquire(60'000);
            } catch (const OutOfMemory&) {
            }
        },
        [](Subject& s, bool) {
            EXPECT_EQ(s.pool.stats().lent_buffers.now, 1u);
            EXPECT_EQ(contradictions_at_rest(s.pool.stats(), limits_of(s.pool.options())), "");
        });

    EXPECT_GT(outcomes.failed, 0);
    EXPECT_GT(outcomes.succeeded, 0);
}

TEST_P(FailEveryAllocation, OfStandardContainers) {
    const Outcomes outcomes = fail_each(
        make(),
        [](Subject& s) {
            PoolResource resource{s.pool};
            std::pmr::vector<int> values(1000, 1, &resource);
            values.resize(5000);
        },
        [](Subject& s, bool) { s.expect_usable(); });

    // The loan itself needs no memory; whole blocks need some to be kept.
    EXPECT_EQ(outcomes.failed == 0, std::holds_alternative<Elastic>(GetParam().fit));
    EXPECT_GT(outcomes.succeeded, 0);
}

TEST(FailEveryAllocationOfC, LeavesNothingLent) {
    struct CSubject {
        cistern_pool pool = cistern_pool_create(nullptr);
    };
    const Outcomes outcomes = fail_each(
        [] { return std::make_unique<CSubject>(); },
        [](CSubject& s) {
            bool failed = false;
            const auto note = [&failed](auto result) {
                failed |= result == decltype(result){};
                EXPECT_EQ(cistern_last_error_code(),
                          result == decltype(result){} ? CISTERN_OUT_OF_MEMORY : CISTERN_OK);
                return result;
            };
            std::array<cistern_buffer, 100> lent{};  // enough to need new places
            for (cistern_buffer& buffer : lent) buffer = note(cistern_acquire(s.pool, 1'000));
            void* data = note(cistern_malloc(s.pool, 100));
            if (void* const grown = note(cistern_realloc(s.pool, data, 100'000))) data = grown;
            const cistern_keyed keyed = note(cistern_keyed_create(nullptr));
            if (keyed != 0) note(cistern_keyed_get(keyed, "a key too long for one place", 100));
            note(cistern_pool_explain(s.pool, nullptr, 0));

            EXPECT_TRUE(keyed == 0 || cistern_keyed_destroy(keyed) == CISTERN_OK);
            EXPECT_EQ(cistern_free(s.pool, data), CISTERN_OK);
            for (const cistern_buffer buffer : lent) {
                EXPECT_TRUE(buffer == 0 || cistern_release(buffer) == CISTERN_OK);
            }
            if (failed) throw std::bad_alloc();
        },
        [](CSubject& s, bool) {
            cistern_stats stats{};
            EXPECT_EQ(cistern_pool_stats(s.pool, &stats, sizeof stats), CISTERN_OK);
            EXPECT_EQ(stats.lent_buffers.now, 0u);
            EXPECT_EQ(stats.lent_bytes.now, 0u);
            EXPECT_EQ(cistern_pool_destroy(s.pool), CISTERN_OK);
        });

    EXPECT_GT(outcomes.failed, 0);
    EXPECT_GT(outcomes.succeeded, 0);
}

INSTANTIATE_TEST_SUITE_P(With, FailEveryAllocation, testing::ValuesIn(all_fits()),
                         [](const auto& c) { return std::string(c.param.name); });

TEST(FailEveryAllocationOfHits, ScopesAndKeysNeedNone) {
    Pool pool;
    KeyedPool keyed;
    const std::vector<Shape<float, 2>> nest{shape<float>(3, 4), shape<float>(5, 6)};
    const auto call = [&] {
        with_arrays([](auto, auto, auto) {}, pool, shape<float>(100, 50), shape<double>(100), nest);
        (void)keyed.get<double>("coeff", 10, 20);
    };
    call();
    const std::uint64_t misses = pool.stats().misses;

    const FailingNew failing(0);
    for (int i = 0; i < 100; ++i) call();

    EXPECT_FALSE(FailingNew::has_failed());
    EXPECT_EQ(pool.stats().misses, misses);
    EXPECT_EQ(keyed.stats("coeff").hits, 100u);
}

}  // namespace cistern::test
