// Traces small enough to be counted by hand. Their sizes are multiples of 64, so that no fit has to
// round them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/text.hpp"
#include "trace/replay.hpp"
#include "trace_file.hpp"

namespace cistern::trace {
namespace {

using test::recorded_traces;
using test::text_of;
using test::TraceFile;
using testing::AllOf;
using testing::HasSubstr;

Trace trace_of(const std::string& rows) { return read_trace(TraceFile::with_rows(rows).path()); }

ReplayOptions with_fit(Fit fit) {
    ReplayOptions options;
    options.pool.fit = fit;
    return options;
}
ReplayOptions exact() { return with_fit(ExactFit{}); }

TEST(Eviction, TheDefaultHitsMostAndMissesTheFewestBytes) {
    if (!std::filesystem::is_directory(recorded_traces())) {
        GTEST_SKIP() << "no recorded traces in " << recorded_traces();
    }
    int played = 0;
    for (const auto& entry : std::filesystem::directory_iterator(recorded_traces())) {
        if (entry.path().string().find("permutation") == std::string::npos) continue;
        ++played;
        const Trace trace = read_trace(entry.path().string());
        const auto run = [&](PoolOptions options) {
            options.max_idle_bytes = std::size_t{100} << 20;
            return replay(trace, {.pool = options, .repeat = 20, .progress = {}});
        };
        const ReplayResult ours = run({});
        EXPECT_GE(ours.hit_rate(), 0.95) << entry.path();
        for (const Evict evict : {Evict::oldest, Evict::smallest, Evict::largest}) {
            const ReplayResult theirs = run({.fit = BestFit{1.0}, .evict = evict});
            EXPECT_LE(ours.missed_bytes, theirs.missed_bytes) << entry.path();
            EXPECT_LE(ours.misses, theirs.misses) << entry.path();
        }
    }
    if (played == 0) GTEST_SKIP() << "no permutation trace in " << recorded_traces();
}

TEST(TraceReplay, CountsHitsAndMisses) {
    const Trace trace = trace_of(
        "a,p,0,640,0\n"  // miss
        "r,p,0,640,0\n"  //
        "a,p,1,640,0\n"  // hit
        "a,p,2,640,0\n"  // miss: the only block is lent
        "r,p,1,640,0\n"  //
        "a,p,3,128,0\n"  // miss: not exactly 640
        "r,p,2,640,0\n"
        "r,p,3,128,0\n");

    const ReplayResult result = replay(trace, exact());

    EXPECT_EQ(result.events, 8u);
    EXPECT_EQ(result.pools, 1u);
    EXPECT_EQ(result.acquires, 4u);
    EXPECT_EQ(result.hits, 1u);
    EXPECT_EQ(result.misses, 3u);
    EXPECT_EQ(result.evictions, 0u);
    EXPECT_EQ(result.failures, 0u);
    EXPECT_DOUBLE_EQ(result.hit_rate(), 0.25);
    EXPECT_EQ(result.peak_live_bytes, 640u + 640u);
    EXPECT_EQ(result.peak_held_bytes, 640u + 640u + 128u);
    EXPECT_DOUBLE_EQ(result.held_over_live(), 1408.0 / 1280.0);
}

TEST(TraceReplay, FollowsTheFit) {
    const Trace trace = trace_of(
        "a,p,0,1024,0\n"  // miss
        "r,p,0,1024,0\n"
        "a,p,1,768,0\n"  // a quarter of 1024 stays unused
        "r,p,1,768,0\n");
    const auto replayed = [&](Fit fit) { return replay(trace, with_fit(fit)); };

    EXPECT_EQ(replayed(ExactFit{}).misses, 2u);
    EXPECT_EQ(replayed(ExactFit{}).waste_bytes, 0u);
    EXPECT_EQ(replayed(BestFit{.max_waste = 0.25}).misses, 1u);
    EXPECT_EQ(replayed(BestFit{.max_waste = 0.25}).waste_bytes, 256u);
    EXPECT_EQ(replayed(BestFit{.max_waste = 0.24}).misses, 2u);
    EXPECT_EQ(replayed(FixedBlock{.bytes = 4096}).misses, 1u);
    EXPECT_EQ(replayed(FixedBlock{.bytes = 4096}).waste_bytes, 4096u - 768u);
    EXPECT_EQ(replayed(FixedBlock{.bytes = 4096}).peak_held_bytes, 4096u);
}

TEST(TraceReplay, GivesEachPoolOfTheTraceAPoolOfItsOwn) {
    const Trace trace = trace_of(
        "a,left,0,640,0\n"  // miss
        "r,left,0,640,0\n"
        "a,right,1,640,0\n"  // miss: what is idle belongs to left
        "r,right,1,640,0\n"
        "a,left,2,640,0\n"  // hit
        "r,left,2,640,0\n");

    const ReplayResult result = replay(trace, exact());

    EXPECT_EQ(result.pools, 2u);
    EXPECT_EQ(result.misses, 2u);
    EXPECT_EQ(result.hits, 1u);
    EXPECT_EQ(result.peak_live_bytes, 640u);
    EXPECT_EQ(result.peak_held_bytes, 1280u);
}

TEST(TraceReplay, TakesPeaksOfTheSumOverPoolsAtOneMoment) {
    const Trace trace = trace_of(
        "a,left,0,1280,0\n"
        "r,left,0,1280,0\n"  // nothing may stay idle: left gives 1280 back
        "a,right,1,640,0\n"  // so both pools never hold 1280 + 640
        "r,right,1,640,0\n");
    ReplayOptions options = exact();
    options.pool.max_idle_bytes = 0;

    const ReplayResult result = replay(trace, options);

    EXPECT_EQ(result.peak_live_bytes, 1280u);
    EXPECT_EQ(result.peak_held_bytes, 1280u);
    EXPECT_EQ(result.evictions, 2u);
}

TEST(TraceReplay, SumsWasteOverPools) {
    const Trace trace = trace_of("a,left,0,64,0\na,right,1,128,0\n");

    const ReplayResult result = replay(trace, with_fit(FixedBlock{.bytes = 256}));

    EXPECT_EQ(result.waste_bytes, (256u - 64u) + (256u - 128u));
}

TEST(TraceReplay, RepeatsInTheSamePoolsAndReleasesWhatOutlivedTheTraceBefore) {
    const Trace trace = trace_of(
        "a,p,0,640,0\n"  // never released
        "a,p,1,128,0\n"
        "r,p,1,128,0\n");
    ReplayOptions options = exact();
    options.repeat = 3;

    const ReplayResult result = replay(trace, options);

    EXPECT_EQ(result.events, 9u);
    EXPECT_EQ(result.acquires, 6u);
    EXPECT_EQ(result.misses, 2u);  // the first pass only
    EXPECT_EQ(result.peak_live_bytes, 768u);
    EXPECT_EQ(result.peak_held_bytes, 768u);
}

TEST(TraceReplay, EvictsNothingThatTheProgramKept) {
    const Trace trace = trace_of("a,p,0,640,0\n");
    ReplayOptions options = exact();
    options.pool.max_idle_bytes = 0;

    EXPECT_EQ(replay(trace, options).evictions, 0u);

    options.repeat = 3;
    EXPECT_EQ(replay(trace, options).evictions, 2u);
}

TEST(TraceReplay, CountsWhatALimitRefusesAndGoesOn) {
    const Trace trace = trace_of(
        "a,p,0,640,0\n"
        "a,p,1,640,0\n"  // refused: 1280 > 1000
        "r,p,1,640,0\n"  // nothing to release
        "r,p,0,640,0\n"
        "a,p,2,640,0\n");
    ReplayOptions options = exact();
    options.pool.max_bytes = 1000;

    const ReplayResult result = replay(trace, options);

    EXPECT_EQ(result.failures, 1u);
    EXPECT_EQ(result.acquires, 2u);
    EXPECT_EQ(result.peak_live_bytes, 640u);
    EXPECT_LE(result.peak_held_bytes, 1000u);
}

TEST(TraceReplay, NamesFileAndLineOfARequestThatTheFitCannotServe) {
    const Trace trace = trace_of("a,p,0,64,0\na,p,1,640,0\n");

    const std::string text =
        text_of<InvalidArgument>([&] { (void)replay(trace, with_fit(FixedBlock{.bytes = 128})); });

    EXPECT_THAT(text, AllOf(HasSubstr(trace.name + ":3: "), HasSubstr("640")));
}

TEST(TraceReplay, RejectsOptionsThatMakeNoSense) {
    const Trace trace = trace_of("a,p,0,64,0\n");

    EXPECT_THROW((void)replay(trace, with_fit(BestFit{.max_waste = 2})), InvalidArgument);
}

TEST(TraceReplay, ReplaysAnEmptyTraceAndZeroByteRequests) {
    EXPECT_EQ(replay(trace_of("")).acquires, 0u);
    EXPECT_EQ(replay(trace_of("")).held_over_live(), 0.0);

    const ReplayResult nothing_held = replay(trace_of("a,p,0,0,0\nr,p,0,0,0\n"));

    EXPECT_EQ(nothing_held.peak_held_bytes, 0u);
    EXPECT_EQ(nothing_held.peak_live_bytes, 0u);
    EXPECT_EQ(nothing_held.failures, 0u);
}

TEST(TraceReplay, ReportsProgressOverAllPasses) {
    const Trace trace = trace_of("a,p,0,64,0\nr,p,0,64,0\n");
    double last = 0;
    ReplayOptions options = exact();
    options.repeat = 50'000;
    options.progress = [&](double fraction) {
        EXPECT_GT(fraction, last);
        last = fraction;
    };

    (void)replay(trace, options);

    EXPECT_GT(last, 0.9);
    EXPECT_LE(last, 1.0);
}

TEST(TraceReplay, ReconcilesOnEveryRecordedTrace) {
    if (!std::filesystem::is_directory(recorded_traces())) {
        GTEST_SKIP() << "no recorded traces in " << recorded_traces();
    }
    for (const auto& entry : std::filesystem::directory_iterator(recorded_traces())) {
        if (entry.path().extension() != ".gz") continue;
        SCOPED_TRACE(entry.path());
        const Trace trace = read_trace(entry.path());

        const ReplayResult result = replay(trace);

        EXPECT_EQ(result.acquires, trace.buffers);
        EXPECT_EQ(result.acquires, result.hits + result.misses);
        EXPECT_GE(result.peak_held_bytes, result.peak_live_bytes);
        EXPECT_LE(result.waste_bytes, result.peak_held_bytes);
    }
}

}  // namespace
}  // namespace cistern::trace
