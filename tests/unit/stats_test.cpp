// What a pool says about itself: numbers, printed and as JSON.

#include "cistern/stats.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cistern/pool.hpp"
#include "support/literals.hpp"
#include "support/reconcile.hpp"
#include "support/text.hpp"

namespace cistern::test {

namespace {

using nlohmann::json;

/// A snapshot in which every number is another one.
PoolStats distinct() {
    PoolStats s;
    s.acquires = 1001;
    s.hits = 1002;
    s.misses = 1003;
    s.grows = 1004;
    s.releases = 1005;
    s.evictions = 1006;
    s.failures = 1007;
    s.evictions_by_limit = {1011, 1012, 1013, 1014, 1015};
    s.moves = 1021;
    s.moved_bytes = 1022;
    s.lent_buffers = {1031, 1032};
    s.lent_bytes = {1033, 1034};
    s.idle_buffers = {1035, 1036};
    s.idle_bytes = {1037, 1038};
    s.held_bytes = {1039, 1040};
    s.waste_bytes = {1041, 1042};
    return s;
}

std::string printed(const auto& value) {
    std::ostringstream out;
    out << value;
    return out.str();
}

}  // namespace

TEST(Stats, HitRateIsTheShareOfHits) {
    EXPECT_EQ(PoolStats{}.hit_rate(), 0.0);
    PoolStats s;
    s.acquires = 8;
    s.hits = 6;
    s.misses = 2;
    EXPECT_EQ(s.hit_rate(), 0.75);
}

TEST(Stats, EvictionsSumUp) { EXPECT_EQ((Evictions{1, 20, 300, 4000, 50000}.total()), 54321u); }

TEST(Stats, AsJsonHasEveryNumber) {
    const json parsed = json::parse(distinct().json());

    EXPECT_EQ(parsed.at("acquires"), 1001);
    EXPECT_EQ(parsed.at("hits"), 1002);
    EXPECT_EQ(parsed.at("misses"), 1003);
    EXPECT_EQ(parsed.at("grows"), 1004);
    EXPECT_EQ(parsed.at("releases"), 1005);
    EXPECT_EQ(parsed.at("evictions"), 1006);
    EXPECT_EQ(parsed.at("failures"), 1007);
    EXPECT_EQ(parsed.at("evictions_by_limit"), (json{{"max_bytes", 1011},
                                                     {"max_idle_bytes", 1012},
                                                     {"max_idle_buffers", 1013},
                                                     {"max_buffer_bytes", 1014},
                                                     {"max_idle_age", 1015}}));
    EXPECT_EQ(parsed.at("moves"), 1021);
    EXPECT_EQ(parsed.at("moved_bytes"), 1022);
    EXPECT_EQ(parsed.at("lent_buffers"), (json{{"now", 1031}, {"peak", 1032}}));
    EXPECT_EQ(parsed.at("lent_bytes"), (json{{"now", 1033}, {"peak", 1034}}));
    EXPECT_EQ(parsed.at("idle_buffers"), (json{{"now", 1035}, {"peak", 1036}}));
    EXPECT_EQ(parsed.at("idle_bytes"), (json{{"now", 1037}, {"peak", 1038}}));
    EXPECT_EQ(parsed.at("held_bytes"), (json{{"now", 1039}, {"peak", 1040}}));
    EXPECT_EQ(parsed.at("waste_bytes"), (json{{"now", 1041}, {"peak", 1042}}));
}

TEST(Stats, AsJsonKeepsTheLargestNumbers) {
    PoolStats s;
    s.acquires = std::numeric_limits<std::uint64_t>::max();

    EXPECT_EQ(json::parse(s.json()).at("acquires").get<std::uint64_t>(), s.acquires);
}

TEST(Stats, PrintedShowEveryGaugeAndCounter) {
    const std::string text = printed(distinct());

    for (const char* const word : {"lent", "idle", "held", "waste", "acquires", "hits", "misses",
                                   "releases", "evictions", "failures"}) {
        EXPECT_TRUE(mentions(text, word)) << word << " is missing in\n" << text;
    }
    for (const char* const number :
         {"1001", "1002", "1003", "1005", "1006", "1007", "1031", "1035"}) {
        EXPECT_TRUE(mentions(text, number)) << number << " is missing in\n" << text;
    }
}

TEST(Stats, PrintedNameTheLimitThatEvicted) {
    const std::string text = printed(distinct());

    for (const char* const limit :
         {"max_bytes", "max_idle_bytes", "max_idle_buffers", "max_buffer_bytes", "max_idle_age"}) {
        EXPECT_TRUE(mentions(text, limit)) << limit << " is missing in\n" << text;
    }
}

TEST(Stats, APrintedPoolShowsItsNameAndNumbers) {
    Pool pool{Memory::host(), {.name = "printed", .max_idle_bytes = 3_MiB}};
    const Buffer buffer = pool.acquire(64_KiB);

    const std::string text = printed(pool);

    EXPECT_TRUE(mentions(text, "printed")) << text;
    EXPECT_TRUE(mentions_bytes(text, 64_KiB)) << text;
    EXPECT_TRUE(mentions_bytes(text, 3_MiB)) << text;
}

TEST(Stats, OfAUsedPoolReconcile) {
    Pool pool;
    for (std::size_t i = 1; i < 200; ++i) {
        const auto a = pool.array<double>(i * 17);
        const auto b = pool.array<float>(i % 13, i);
        ASSERT_EQ(contradictions(pool.stats()), "") << pool.stats();
    }

    EXPECT_GT(pool.stats().hit_rate(), 0.5);
    EXPECT_LT(pool.stats().hit_rate(), 1.0);
    EXPECT_EQ(pool.stats().grows, 0u);
}

}  // namespace cistern::test
