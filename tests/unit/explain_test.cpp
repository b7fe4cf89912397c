// What is held, in which sizes, how old, and why.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cistern/pool.hpp"
#include "support/literals.hpp"
#include "support/params.hpp"
#include "support/text.hpp"

namespace cistern::test {

namespace {

using nlohmann::json;

void expect_sums(const Explanation& e, const PoolStats& s) {
    std::uint64_t lent_buffers = 0, lent = 0, idle_buffers = 0, idle = 0, aged_buffers = 0,
                  aged = 0;
    for (const ClassReport& row : e.classes) {
        lent_buffers += row.lent_buffers;
        lent += row.lent_bytes;
        idle_buffers += row.idle_buffers;
        idle += row.idle_bytes;
        EXPECT_GT(row.lent_buffers + row.idle_buffers, 0u) << "an empty row";
        EXPECT_LE(row.lent_bytes + row.idle_bytes,
                  row.up_to_bytes * (row.lent_buffers + row.idle_buffers));
    }
    for (const AgeReport& row : e.ages) {
        aged_buffers += row.idle_buffers;
        aged += row.idle_bytes;
    }
    EXPECT_EQ(lent, s.lent_bytes.now);
    EXPECT_EQ(idle, s.idle_bytes.now);
    EXPECT_EQ(lent_buffers, s.lent_buffers.now);
    EXPECT_EQ(idle_buffers, s.idle_buffers.now);
    EXPECT_EQ(aged, s.idle_bytes.now);
    EXPECT_EQ(aged_buffers, s.idle_buffers.now);
    EXPECT_EQ(e.lent_bytes, s.lent_bytes.now);
    EXPECT_EQ(e.idle_bytes, s.idle_bytes.now);
    EXPECT_EQ(e.held_bytes, s.held_bytes.now);
    EXPECT_EQ(e.magazine_bytes + e.arena_bytes, s.idle_bytes.now);
    EXPECT_TRUE(
        std::is_sorted(e.classes.begin(), e.classes.end(),
                       [](const auto& a, const auto& b) { return a.up_to_bytes < b.up_to_bytes; }));
    EXPECT_TRUE(std::is_sorted(e.ages.begin(), e.ages.end(), [](const auto& a, const auto& b) {
        return a.at_least < b.at_least;
    }));
}

std::string sentences(const Explanation& e) {
    return std::accumulate(
        e.why.begin(), e.why.end(), std::string{},
        [](std::string all, const std::string& one) { return all + one + "\n"; });
}

class ExplainTest : public testing::TestWithParam<FitCase> {
protected:
    Pool make_pool(PoolOptions options = {}) {
        options.fit = GetParam().fit;
        return Pool{Memory::host(), std::move(options)};
    }
};

}  // namespace

TEST_P(ExplainTest, AnEmptyPoolHoldsNothing) {
    const Pool pool = make_pool({.name = "empty"});

    const Explanation e = pool.explain();

    EXPECT_EQ(e.pool, "empty");
    EXPECT_EQ(e.memory, "host");
    EXPECT_TRUE(mentions(e.fit, GetParam().name)) << e.fit;
    EXPECT_EQ(e.held_bytes, 0u);
    EXPECT_TRUE(e.classes.empty());
    expect_sums(e, pool.stats());
}

TEST_P(ExplainTest, ItsSumsAreThoseOfTheStatistics) {
    Pool pool = make_pool();
    std::vector<Buffer> lent;
    for (std::size_t i = 0; i < 30; ++i) lent.push_back(pool.acquire(1 + i * 2000));
    for (std::size_t i = 0; i < lent.size(); i += 3) lent[i].release();

    expect_sums(pool.explain(), pool.stats());

    lent.clear();
    expect_sums(pool.explain(), pool.stats());
    pool.trim(100_KiB);
    expect_sums(pool.explain(), pool.stats());
}

TEST_P(ExplainTest, CountsTheThreadsThatKeepBytes) {
    Pool pool = make_pool();
    { const Buffer idle = pool.acquire(block_bytes); }

    expect_sums(pool.explain(), pool.stats());

    EXPECT_LE(pool.explain().threads, 1u);
    std::thread([&] {
        (void)pool.acquire(block_bytes);
        expect_sums(pool.explain(), pool.stats());
    }).join();
    expect_sums(pool.explain(), pool.stats());
}

TEST_P(ExplainTest, SaysWhyIdleBytesAreKept) {
    Pool pool = make_pool({.max_idle_bytes = 3_MiB});
    { const Buffer idle = pool.acquire(block_bytes); }

    const std::string why = sentences(pool.explain());

    EXPECT_TRUE(mentions(why, "max_idle_bytes")) << why;
    EXPECT_TRUE(mentions_bytes(why, 3_MiB)) << why;
}

TEST_P(ExplainTest, SaysWhatToChangeSoThatIdleBytesGo) {
    Pool pool = make_pool();
    { const Buffer idle = pool.acquire(block_bytes); }

    const std::string why = sentences(pool.explain());

    EXPECT_TRUE(mentions(why, "max_idle_age")) << why;
    EXPECT_TRUE(mentions(why, "trim()")) << why;
    pool.set_limits({.max_idle_age = std::chrono::hours(1)});
    EXPECT_FALSE(mentions(sentences(pool.explain()), "never age"));
}

TEST_P(ExplainTest, CallsBytesTooManyOnlyIfTheyWereNeverNeededAtOnce) {
    Pool pool = make_pool();
    const Buffer survivor = pool.acquire(block_bytes);
    for (int step = 0; step < 3; ++step) {
        const Buffer a = pool.acquire(block_bytes), b = pool.acquire(block_bytes);
    }
    const std::string why = sentences(pool.explain());
    EXPECT_FALSE(mentions(why, "ever lent at once")) << "more is idle than lent, as ever: " << why;
}

TEST(Explain, SaysWhenMoreIsHeldThanWasEverNeeded) {
    Pool pool{Memory::simulated(), {.fit = ExactFit{}}};
    for (std::size_t bytes = 1_MiB; bytes <= 3_MiB; bytes += 1_MiB) (void)pool.acquire(bytes);
    const std::string why = sentences(pool.explain());
    EXPECT_TRUE(mentions(why, "no more than 3 MiB were ever lent at once, and 6 MiB are held"))
        << why;
}

TEST_P(ExplainTest, SaysWhenNothingIsIdle) {
    Pool pool = make_pool();
    EXPECT_TRUE(mentions(sentences(pool.explain()), "nothing is held"));

    const Buffer lent = pool.acquire(block_bytes);

    EXPECT_TRUE(mentions(sentences(pool.explain()), "lent"));
}

TEST_P(ExplainTest, AsJsonHasEverything) {
    Pool pool = make_pool({.name = "a \"quoted\"\nname"});
    const Buffer lent = pool.acquire(block_bytes);
    { const Buffer idle = pool.acquire(block_bytes); }
    const Explanation e = pool.explain();

    const json parsed = json::parse(e.json());

    EXPECT_EQ(parsed.at("pool"), e.pool);
    EXPECT_EQ(parsed.at("memory"), e.memory);
    EXPECT_EQ(parsed.at("fit"), e.fit);
    EXPECT_EQ(parsed.at("lent_bytes"), e.lent_bytes);
    EXPECT_EQ(parsed.at("idle_bytes"), e.idle_bytes);
    EXPECT_EQ(parsed.at("held_bytes"), e.held_bytes);
    EXPECT_EQ(parsed.at("magazine_bytes"), e.magazine_bytes);
    EXPECT_EQ(parsed.at("arena_bytes"), e.arena_bytes);
    EXPECT_EQ(parsed.at("threads"), e.threads);
    EXPECT_EQ(parsed.at("classes").size(), e.classes.size());
    EXPECT_EQ(parsed.at("classes").at(0).at("up_to_bytes"), e.classes.at(0).up_to_bytes);
    EXPECT_EQ(parsed.at("classes").at(0).at("lent_bytes"), e.classes.at(0).lent_bytes);
    EXPECT_EQ(parsed.at("ages").size(), e.ages.size());
    EXPECT_TRUE(parsed.at("keys").empty());
    EXPECT_EQ(parsed.at("why"), e.why);
}

TEST_P(ExplainTest, PrintedSaysWhatTheFieldsSay) {
    Pool pool = make_pool({.name = "spoken"});
    const Buffer lent = pool.acquire(block_bytes);
    { const Buffer idle = pool.acquire(block_bytes); }
    const Explanation e = pool.explain();
    std::ostringstream out;

    out << e;

    EXPECT_TRUE(mentions(out.str(), "spoken")) << out.str();
    EXPECT_TRUE(mentions(out.str(), e.memory)) << out.str();
    for (const std::string& sentence : e.why) EXPECT_TRUE(mentions(out.str(), sentence));
}

TEST(Explain, SortsIdleBytesByAge) {
    Pool pool{Memory::host(), {.fit = ExactFit{}}};
    { const Buffer old = pool.acquire(block_bytes); }
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    { const Buffer young = pool.acquire(2 * block_bytes); }

    const Explanation e = pool.explain();

    ASSERT_EQ(e.ages.size(), 2u);
    EXPECT_EQ(e.ages[0].idle_bytes, 2 * block_bytes);
    EXPECT_EQ(e.ages[1].idle_bytes, block_bytes);
    EXPECT_EQ(e.ages[1].at_least, std::chrono::seconds(1));
    expect_sums(e, pool.stats());
}

INSTANTIATE_TEST_SUITE_P(Fits, ExplainTest, testing::ValuesIn(all_fits()),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace cistern::test
