// How much the process may use, and how much a pool keeps by default.

#include "memory/limits.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "cistern/pool.hpp"
#include "support/literals.hpp"
#include "support/sanitizers.hpp"

namespace cistern::test {

namespace {

namespace fs = std::filesystem;

/// A file system with only the files that matter.
class FakeRoot : public testing::Test {
protected:
    void SetUp() override {
        root = fs::temp_directory_path() / ("cistern_root_" + std::to_string(getpid()));
        fs::remove_all(root);
        write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1234567 kB\n");
    }
    void TearDown() override { fs::remove_all(root); }

    void write(const std::string& path, const std::string& text) const {
        fs::create_directories((root / path).parent_path());
        std::ofstream(root / path) << text;
    }

    static constexpr std::size_t machine = 16384_MiB;
    fs::path root;
};

}  // namespace

TEST_F(FakeRoot, WithoutCgroupsIsLimitedByTheMachine) {
    EXPECT_EQ(memory_limit_under(root), machine);
}

TEST_F(FakeRoot, WithoutAnythingSaysNothing) {
    fs::remove_all(root);

    EXPECT_EQ(memory_limit_under(root), 0u);
}

TEST_F(FakeRoot, FindsTheLimitOfVersionTwo) {
    write("proc/self/cgroup", "0::/job\n");
    write("sys/fs/cgroup/job/memory.max", "2147483648\n");

    EXPECT_EQ(memory_limit_under(root), 2048_MiB);
}

TEST_F(FakeRoot, TakesMaxForNoLimitInVersionTwo) {
    write("proc/self/cgroup", "0::/job\n");
    write("sys/fs/cgroup/job/memory.max", "max\n");

    EXPECT_EQ(memory_limit_under(root), machine);
}

TEST_F(FakeRoot, TakesTheSmallestLimitOnTheWayUp) {
    write("proc/self/cgroup", "0::/slice/service/job\n");
    write("sys/fs/cgroup/slice/memory.max", "1073741824\n");
    write("sys/fs/cgroup/slice/service/memory.max", "max\n");
    write("sys/fs/cgroup/slice/service/job/memory.max", "4294967296\n");

    EXPECT_EQ(memory_limit_under(root), 1024_MiB);
}

TEST_F(FakeRoot, TakesTheInnermostLimitIfItIsTheSmallest) {
    write("proc/self/cgroup", "0::/slice/service/job\n");
    write("sys/fs/cgroup/slice/memory.max", "4294967296\n");
    write("sys/fs/cgroup/slice/service/job/memory.max", "536870912\n");

    EXPECT_EQ(memory_limit_under(root), 512_MiB);
}

TEST_F(FakeRoot, FindsTheLimitOfAContainerThatSeesOnlyItsOwnGroup) {
    write("proc/self/cgroup", "0::/docker/0123456789\n");  // a path outside of what is mounted
    write("sys/fs/cgroup/memory.max", "3221225472\n");

    EXPECT_EQ(memory_limit_under(root), 3072_MiB);
}

TEST_F(FakeRoot, FindsTheLimitOfTheRootGroup) {
    write("proc/self/cgroup", "0::/\n");
    write("sys/fs/cgroup/memory.max", "3221225472\n");

    EXPECT_EQ(memory_limit_under(root), 3072_MiB);
}

TEST_F(FakeRoot, FindsTheLimitOfVersionOne) {
    write("proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory:/job\n");
    write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2147483648\n");

    EXPECT_EQ(memory_limit_under(root), 2048_MiB);
}

TEST_F(FakeRoot, FindsTheLimitOfVersionOneAmongSeveralControllers) {
    write("proc/self/cgroup", "4:hugetlb,memory,pids:/job\n0::/elsewhere\n");
    write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2147483648\n");

    EXPECT_EQ(memory_limit_under(root), 2048_MiB);
}

TEST_F(FakeRoot, TakesTheSmallestLimitOnTheWayUpInVersionOne) {
    write("proc/self/cgroup", "4:memory:/slice/job\n");
    write("sys/fs/cgroup/memory/slice/memory.limit_in_bytes", "1073741824\n");
    write("sys/fs/cgroup/memory/slice/job/memory.limit_in_bytes", "9223372036854771712\n");

    EXPECT_EQ(memory_limit_under(root), 1024_MiB);
}

TEST_F(FakeRoot, TakesAHugeNumberForNoLimitInVersionOne) {
    write("proc/self/cgroup", "4:memory:/job\n");
    write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");

    EXPECT_EQ(memory_limit_under(root), machine);
}

TEST_F(FakeRoot, ALimitAboveTheMachineIsTheMachine) {
    write("proc/self/cgroup", "0::/job\n");
    write("sys/fs/cgroup/job/memory.max", "99999999999999\n");

    EXPECT_EQ(memory_limit_under(root), machine);
}

TEST_F(FakeRoot, IgnoresFilesThatMakeNoSense) {
    write("proc/self/cgroup", "nonsense\n\n0::/job\n:\n4:memory\n");
    write("sys/fs/cgroup/job/memory.max", "many bytes\n");

    EXPECT_EQ(memory_limit_under(root), machine);
}

TEST(ProcessMemoryLimit, IsPlausible) {
    const auto physical = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

    EXPECT_GE(process_memory_limit(), 16_MiB);
    EXPECT_LE(process_memory_limit(), physical);
}

namespace {

struct Setting {
    const char* name;
    const char* text;      // of CISTERN_MAX_IDLE_BYTES
    std::size_t expected;  // `fallback` for half of what the process may use
    friend void PrintTo(const Setting& s, std::ostream* out) { *out << "'" << s.text << "'"; }
};

constexpr std::size_t fallback = 12345678901234567;

/// The environment is read once, so each case has a process of its own.
class MaxIdleBytesDeathTest : public testing::TestWithParam<Setting> {
protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

    [[noreturn]] static void exit_saying_if_it_holds() {
        setenv("CISTERN_MAX_IDLE_BYTES", GetParam().text, 1);
        const std::size_t expected =
            GetParam().expected == fallback ? process_memory_limit() / 2 : GetParam().expected;
        const bool holds = default_max_idle_bytes() == expected &&
                           Pool{}.options().max_idle_bytes == expected &&
                           Limits{}.max_idle_bytes == expected;
        std::exit(holds ? 0 : 1);
    }
};

}  // namespace

TEST_P(MaxIdleBytesDeathTest, IsReadAsUnsignedBytesOrIgnored) {
    EXPECT_EXIT(exit_saying_if_it_holds(), testing::ExitedWithCode(0), "");
}

INSTANTIATE_TEST_SUITE_P(
    Of, MaxIdleBytesDeathTest,
    testing::Values(Setting{"ANumber", "1048576", 1_MiB}, Setting{"Zero", "0", 0},
                    Setting{"NoLimit", "18446744073709551615", no_limit},
                    Setting{"Nothing", "", fallback}, Setting{"ANegativeNumber", "-1", fallback},
                    Setting{"AWord", "plenty", fallback},
                    Setting{"ANumberAndAWord", "64MiB", fallback},
                    Setting{"AFraction", "1.5", fallback},
                    Setting{"AHexadecimalNumber", "0x100", fallback},
                    Setting{"TooMuch", "18446744073709551616", fallback},
                    Setting{"FarTooMuch", "99999999999999999999999", fallback}),
    [](const auto& c) { return std::string(c.param.name); });

TEST(DefaultMaxIdleBytes, IsHalfOfWhatTheProcessMayUse) {
    if (std::getenv("CISTERN_MAX_IDLE_BYTES") != nullptr) GTEST_SKIP() << "it is set";

    EXPECT_EQ(default_max_idle_bytes(), process_memory_limit() / 2);
    EXPECT_EQ(PoolOptions{}.max_idle_bytes, default_max_idle_bytes());
}

}  // namespace cistern::test
