#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cistern/error.hpp"
#include "support/text.hpp"
#include "trace/reader.hpp"
#include "trace_file.hpp"

namespace cistern::trace {
namespace {

using test::recorded_traces;
using test::text_of;
using test::TraceFile;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr Event acquire(std::uint32_t pool, std::uint64_t buffer, std::size_t bytes,
                        std::uint64_t stream = 0) {
    return {EventKind::acquire, pool, buffer, bytes, stream};
}
constexpr Event release(std::uint32_t pool, std::uint64_t buffer, std::size_t bytes,
                        std::uint64_t stream = 0) {
    return {EventKind::release, pool, buffer, bytes, stream};
}

/// Returns what the error says after the file's name.
std::string complaint_about(const TraceFile& file) {
    std::string text = text_of<InvalidArgument>([&] { (void)read_trace(file.path()); });
    if (text.starts_with(file.path())) text.erase(0, file.path().size());
    return text;
}
std::string complaint_about_rows(const std::string& rows) {
    return complaint_about(TraceFile::with_rows(rows));
}

TEST(TraceReader, ReadsEventsPoolsAndStreams) {
    const TraceFile file = TraceFile::with_rows(
        "a,fluid,7,640,0\n"
        "a,body,9,128,3\n"
        "r,fluid,7,640,0\n"
        "a,fluid,8,0,1\n"
        "r,body,9,128,4\n");

    const Trace trace = read_trace(file.path());

    EXPECT_EQ(trace.name, file.path());
    EXPECT_THAT(trace.pools, ElementsAre("fluid", "body"));
    EXPECT_THAT(trace.events,
                ElementsAre(acquire(0, 0, 640), acquire(1, 1, 128, 3), release(0, 0, 640),
                            acquire(0, 2, 0, 1), release(1, 1, 128, 4)));
    EXPECT_EQ(trace.buffers, 3u);
}

TEST(TraceReader, ReadsGzipAsPlainText) {
    const std::string rows = "a,p,0,64,0\nr,p,0,64,0\n";

    const Trace plain = read_trace(TraceFile::with_rows(rows).path());
    const Trace gzipped = read_trace(TraceFile::gzipped(rows).path());

    EXPECT_EQ(plain.events, gzipped.events);
    EXPECT_EQ(plain.events.size(), 2u);
}

TEST(TraceReader, AcceptsWindowsLineEndsAndAMissingLastOne) {
    const TraceFile file("event,pool,id,bytes,stream\r\na,p,0,64,0\r\nr,p,0,64,0");

    EXPECT_THAT(read_trace(file.path()).events, ElementsAre(acquire(0, 0, 64), release(0, 0, 64)));
}

TEST(TraceReader, TakesAHeaderAloneForAProgramThatAcquiredNothing) {
    const Trace trace = read_trace(TraceFile::with_rows("").path());

    EXPECT_TRUE(trace.events.empty());
    EXPECT_TRUE(trace.pools.empty());
}

TEST(TraceReader, KeepsIdsThatAreNeverReleased) {
    const TraceFile file = TraceFile::with_rows("a,p,0,64,0\na,p,1,64,0\nr,p,0,64,0\n");

    EXPECT_EQ(read_trace(file.path()).events.size(), 3u);
}

TEST(TraceReader, ReadsRowsThatStraddleItsWindow) {
    std::string rows;
    for (int id = 0; id < 50'000; ++id) {  // about 1 MB, several windows
        rows += "a,a pool with a long name," + std::to_string(id) + ",64,0\n";
    }

    const Trace trace = read_trace(TraceFile::gzipped(rows).path());

    ASSERT_EQ(trace.events.size(), 50'000u);
    EXPECT_EQ(trace.events.back(), acquire(0, 49'999, 64));
}

TEST(TraceReader, ReportsProgressThatRisesToOne) {
    std::string rows;
    for (int id = 0; id < 200'000; ++id) rows += "a,p," + std::to_string(id) + ",64,0\n";
    const TraceFile file = TraceFile::with_rows(rows);
    std::vector<double> seen;

    (void)read_trace(file.path(), [&](double fraction) { seen.push_back(fraction); });

    ASSERT_GE(seen.size(), 2u);
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_GT(seen.front(), 0.0);
    EXPECT_LE(seen.back(), 1.0);
}

TEST(TraceReader, NamesFileLineAndValueOfAnUnknownEvent) {
    const TraceFile file = TraceFile::with_rows("a,p,0,64,0\nfree,p,0,64,0\n");

    const std::string text = text_of<InvalidArgument>([&] { (void)read_trace(file.path()); });

    EXPECT_EQ(text, file.path() + ":3: unknown event, expected a (acquire) or r (release): 'free'");
}

TEST(TraceReader, RejectsWhatIsNoUnsignedNumber) {
    for (const std::string bad : {"", "-1", "+1", "1.5", "0x10", "12kB", " 1", "1 "}) {
        SCOPED_TRACE(bad);
        const std::string found = ": '" + bad + "'";
        EXPECT_THAT(complaint_about_rows("a,p,0," + bad + ",0\n"),
                    AllOf(StartsWith(":2: bytes is no number"), EndsWith(found)));
        EXPECT_THAT(complaint_about_rows("a,p," + bad + ",64,0\n"),
                    AllOf(StartsWith(":2: id is no number"), EndsWith(found)));
        EXPECT_THAT(complaint_about_rows("a,p,0,64," + bad + "\n"),
                    AllOf(StartsWith(":2: stream is no number"), EndsWith(found)));
    }
}

TEST(TraceReader, RejectsNumbersThatDoNotFit) {
    EXPECT_THAT(complaint_about_rows("a,p,0,18446744073709551616,0\n"),
                AllOf(StartsWith(":2: bytes is too large"), HasSubstr("'18446744073709551616'")));
}

TEST(TraceReader, RejectsRowsWithTooFewOrTooManyFields) {
    EXPECT_THAT(complaint_about_rows("a,p,0,64\n"),
                AllOf(StartsWith(":2: expected 5 fields"), HasSubstr("found 4: 'a,p,0,64'")));
    EXPECT_THAT(complaint_about_rows("a,p,0,64,0,0\n"), HasSubstr("found 6"));
    EXPECT_THAT(complaint_about_rows("a,p,0,64,0\n\nr,p,0,64,0\n"),
                AllOf(StartsWith(":3: expected 5 fields"), HasSubstr("found 1: ''")));
}

TEST(TraceReader, RejectsAnIdReleasedTwice) {
    EXPECT_EQ(complaint_about_rows("a,p,5,64,0\nr,p,5,64,0\nr,p,5,64,0\n"),
              ":4: the id was released before, in line 3; expected one that is live: '5'");
}

TEST(TraceReader, RejectsAnIdNeverAcquired) {
    EXPECT_EQ(complaint_about_rows("r,p,5,64,0\n"),
              ":2: the id was never acquired; expected one that is live: '5'");
}

TEST(TraceReader, RejectsAnIdUsedAgain) {
    const std::string expected = "the id was acquired before, in line 2; expected a new one: '5'";

    EXPECT_EQ(complaint_about_rows("a,p,5,64,0\na,p,5,64,0\n"), ":3: " + expected);
    EXPECT_EQ(complaint_about_rows("a,p,5,64,0\nr,p,5,64,0\na,p,5,64,0\n"), ":4: " + expected);
}

TEST(TraceReader, RejectsAReleaseThatContradictsItsAcquire) {
    EXPECT_EQ(complaint_about_rows("a,p,5,64,0\nr,p,5,32,0\n"),
              ":3: expected the id's 64 bytes (acquired in line 2), found: '32'");
    EXPECT_EQ(complaint_about_rows("a,p,5,64,0\nr,q,5,64,0\n"),
              ":3: expected the id's pool 'p' (acquired in line 2), found: 'q'");
}

TEST(TraceReader, RejectsAFileWithoutTheHeader) {
    EXPECT_THAT(complaint_about(TraceFile("a,p,0,64,0\n")),
                AllOf(StartsWith(":1: expected the header 'event,pool,id,bytes,stream'"),
                      EndsWith("found: 'a,p,0,64,0'")));
}

TEST(TraceReader, RejectsAnEmptyFile) {
    EXPECT_EQ(complaint_about(TraceFile("")),
              ": cannot read the trace: the file is empty, expected a trace");
}

TEST(TraceReader, RejectsAMissingFileAndAFolder) {
    EXPECT_EQ(text_of<InvalidArgument>([] { (void)read_trace("/nowhere/trace.csv"); }),
              "/nowhere/trace.csv: cannot read the trace: No such file or directory");
    EXPECT_EQ(text_of<InvalidArgument>([] { (void)read_trace("/"); }),
              "/: cannot read the trace: Is a directory");
}

TEST(TraceReader, RejectsATruncatedGzipFileAtEveryLength) {
    std::string rows;
    for (int id = 0; id < 100; ++id) rows += "a,p," + std::to_string(id) + ",64,0\n";
    const TraceFile whole = TraceFile::gzipped(rows);

    for (std::size_t bytes = whole.size() - 1; bytes > 0; --bytes) {
        whole.keep_bytes(bytes);
        EXPECT_THROW((void)read_trace(whole.path()), InvalidArgument) << bytes << " bytes kept";
    }
}

TEST(TraceReader, SaysThatAGzipFileIsTruncated) {
    const TraceFile file = TraceFile::gzipped("a,p,0,64,0\nr,p,0,64,0\n");
    file.keep_bytes(file.size() - 4);

    EXPECT_THAT(complaint_about(file), HasSubstr("the gzip file is truncated"));
}

TEST(TraceReader, SaysThatAGzipFileIsDamaged) {
    const TraceFile file = TraceFile::gzipped("a,p,0,64,0\nr,p,0,64,0\n");
    {
        std::fstream edit(file.path(), std::ios::in | std::ios::out | std::ios::binary);
        edit.seekp(static_cast<std::streamoff>(file.size() - 8));
        edit.write("wrong", 4);  // over the checksum
    }

    EXPECT_THAT(complaint_about(file), HasSubstr("the gzip file is damaged"));
}

TEST(TraceReader, RejectsALineLongerThanItsWindowWithoutPrintingAllOfIt) {
    const std::string text = complaint_about_rows(std::string(1'000'000, 'x'));

    EXPECT_THAT(text, StartsWith(":2: the line is longer than 256 KiB: 'xxx"));
    EXPECT_LT(text.size(), 200u);
}

TEST(TraceReader, PrintsNoControlCharacters) {
    EXPECT_THAT(complaint_about_rows("\x1b[31m,p,0,64,0\n"), EndsWith("'?[31m'"));
}

TEST(TraceReader, ReadsEveryRecordedTrace) {
    if (!std::filesystem::is_directory(recorded_traces())) {
        GTEST_SKIP() << "no recorded traces in " << recorded_traces();
    }
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(recorded_traces())) {
        if (entry.path().extension() != ".gz") continue;
        SCOPED_TRACE(entry.path());
        const Trace trace = read_trace(entry.path());
        EXPECT_GT(trace.buffers, 0u);
        ++files;
    }
    EXPECT_GT(files, 0u);
}

}  // namespace
}  // namespace cistern::trace
