// Device, pinned and managed memory as memories.

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <utility>

#include "gpu.hpp"
#include "support/child.hpp"
#include "support/text.hpp"
#include "support/threads.hpp"

namespace cistern::test {
namespace {

using CudaMemory = Gpu;

TEST_F(CudaMemory, TellsItsNameKindAndDevice) {
    EXPECT_TRUE(cuda_available());
    const Memory device = Memory::device(), pinned = Memory::pinned(), managed = Memory::managed();

    EXPECT_EQ(device.name(), "cuda:0");
    EXPECT_EQ(device.kind(), MemoryKind::device);
    EXPECT_EQ(device.device_id(), 0);
    EXPECT_FALSE(device.host_accessible());

    EXPECT_EQ(pinned.name(), "pinned:0");
    EXPECT_EQ(pinned.kind(), MemoryKind::pinned);
    EXPECT_TRUE(pinned.host_accessible());

    EXPECT_EQ(managed.name(), "managed:0");
    EXPECT_EQ(managed.kind(), MemoryKind::managed);
    EXPECT_TRUE(managed.host_accessible());
}

TEST_F(CudaMemory, IsOnePerDeviceAndKind) {
    EXPECT_EQ(Memory::device(), Memory::device(0));
    EXPECT_FALSE(Memory::device() == Memory::managed());
    EXPECT_FALSE(Memory::device() == Memory::pinned());
}

TEST_F(CudaMemory, RefusesADeviceThatIsNotThere) {
    int count = 0;
    ASSERT_EQ(driver.device_count(&count), 0);
    for (const int number : {-1, count}) {
        const std::string text = text_of<InvalidArgument>([&] { (void)Memory::device(number); });
        EXPECT_TRUE(mentions(text, std::to_string(number))) << text;
        EXPECT_TRUE(mentions(text, "devices " + std::to_string(count))) << text;
        EXPECT_THROW((void)Memory::pinned(number), InvalidArgument);
        EXPECT_THROW((void)Memory::managed(number), InvalidArgument);
    }
}

TEST_F(CudaMemory, HoldsWhatIsCopiedThere) {
    for (const Memory& memory : {Memory::device(), Memory::pinned(), Memory::managed()}) {
        Pool pool{memory};
        for (const std::size_t bytes : {std::size_t{1}, 64_KiB, 2_MiB - 1, 33_MiB + 64}) {
            std::vector<unsigned char> out(bytes);
            std::iota(out.begin(), out.end(), static_cast<unsigned char>(bytes % 251));
            const Buffer buffer = pool.acquire(bytes);
            memory.source()->copy(buffer.data(), out.data(), bytes);
            EXPECT_TRUE(read(buffer) == out) << memory.name() << ", " << bytes << " bytes";
        }
    }
}

TEST_F(CudaMemory, IsZeroWhenAskedFor) {
    for (const Memory& memory : {Memory::device(), Memory::pinned(), Memory::managed()}) {
        Pool pool{memory};
        for (int round = 0; round < 2; ++round) {  // fresh bytes, then used ones
            const Buffer buffer = pool.acquire_zeroed(3_MiB);
            EXPECT_EQ(std::ranges::count(read(buffer), 0), 3_MiB) << memory.name();
            fill(nullptr, buffer, 7);
            EXPECT_EQ(mismatches(), 0u);
        }
    }
}

TEST_F(CudaMemory, KeepsWhatABufferHoldsWhenItGrows) {
    for (const Memory& memory : {Memory::device(), Memory::pinned(), Memory::managed()}) {
        Pool pool{memory};
        Buffer buffer = pool.acquire(1_MiB);
        const Buffer in_the_way = pool.acquire(1_MiB);
        fill(nullptr, buffer, 5, late);
        if (memory.host_accessible()) {  // the host moves the bytes
            ASSERT_EQ(driver.synchronize(), 0);
        }

        pool.grow(buffer, 9_MiB);

        EXPECT_EQ(buffer.size(), 9_MiB);
        check(nullptr, buffer.data(), 1_MiB, 5);
        EXPECT_EQ(mismatches(), 0u) << memory.name();
    }
}

TEST_F(CudaMemory, TheHostWritesManagedBytesAndTheDeviceReadsThem) {
    Pool pool{Memory::managed()};
    auto numbers = pool.array<unsigned char>(100000);
    numbers.fill(42);
    check(nullptr, numbers.data(), 100000, 42);
    EXPECT_EQ(mismatches(), 0u);
    fill(nullptr, numbers.data(), 100000, 43);
    ASSERT_EQ(driver.synchronize(), 0);
    EXPECT_THAT(numbers.span(), testing::Each(43));
}

TEST_F(CudaMemory, HasAPoolOfTheProcessForEachKind) {
    for (const MemoryKind kind : {MemoryKind::device, MemoryKind::pinned, MemoryKind::managed}) {
        EXPECT_EQ(default_pool(kind).memory().kind(), kind);
        EXPECT_EQ(default_pool(kind), default_pool(kind));
    }
}

TEST_F(CudaMemory, HasOnePoolOfTheProcessForAllThreads) {
    std::array<const Pool*, 4> pools{};

    on_threads(pools.size(), [&](std::size_t i) { pools[i] = &default_pool(MemoryKind::device); });

    EXPECT_THAT(pools, testing::Each(&default_pool(MemoryKind::device)));
    for (const int number : {-1, 15, 16, 17}) {  // next to those that are found at once
        EXPECT_THROW((void)default_pool(MemoryKind::device, number), InvalidArgument) << number;
    }
}

TEST_F(CudaMemory, OfTwoDevicesIsApart) {
    int count = 0;
    ASSERT_EQ(driver.device_count(&count), 0);
    if (count < 3) GTEST_SKIP() << "needs three devices; here are " << count;
    Pool first{Memory::device(0)}, last{Memory::device(count - 1)};
    const auto used = [&](int device) {
        std::size_t free = 0, total = 0;
        cuda::Context of_device = nullptr;
        EXPECT_EQ(driver.retain_context(&of_device, device), 0);
        EXPECT_EQ(driver.push_context(of_device), 0);
        EXPECT_EQ(driver.memory_info(&free, &total), 0);
        EXPECT_EQ(driver.pop_context(&of_device), 0);
        return total - free;
    };
    const std::size_t before = used(0), before_last = used(count - 1);

    const Buffer buffer = last.acquire(6_MiB);

    EXPECT_EQ(buffer.memory().name(), "cuda:" + std::to_string(count - 1));
    EXPECT_LT(used(0), before + 6_MiB);
    EXPECT_GE(used(count - 1), before_last + 6_MiB);
}

TEST_F(CudaMemory, IsUnavailableInAForkedProcess) {
    const Pool pool{Memory::device()};
    const Ending ending = in_child([] {
        Pool host;
        const bool works = !host.acquire(1_MiB).empty();
        const std::string text = text_of<Unavailable>([] { (void)Memory::device(); });
        return works && !cuda_available() && mentions(text, "forked") ? 0 : 1;
    });
    EXPECT_TRUE(ending.exited);
    EXPECT_EQ(ending.code, 0);
}

TEST_F(CudaMemory, OfADeviceIsRefusedWhereTheHostHasToReachIt) {
    Pool pool{Memory::device()};
    const auto refuses = [](auto&& f) { return mentions(text_of<InvalidArgument>(f), "'cuda:0'"); };
    EXPECT_TRUE(refuses([&] { const PoolResource resource(pool); }));
    EXPECT_TRUE(refuses([] { const UnifiedPool buffers({.host = Memory::device()}); }));
    EXPECT_TRUE(refuses([] { const UnifiedPool buffers({.pinned = Memory::device()}); }));
    EXPECT_THROW((void)default_pool(static_cast<MemoryKind>(17)), InvalidArgument);
}

TEST_F(CudaMemory, SaysHowMuchTheDeviceHasWhenItIsExhausted) {
    std::size_t total = 0;
    ASSERT_EQ(driver.device_total(&total, 0), 0);
    Pool pool{Memory::device()};
    const std::string text = text_of<OutOfMemory>([&] { (void)pool.acquire(2 * total); });
    EXPECT_TRUE(mentions_bytes(text, total)) << text;
    EXPECT_TRUE(mentions(text, "free")) << text;
}

/// Sets a variable while it lives.
class Variable {
public:
    Variable(const char* name, const char* value) : name_(name) {
        const char* const was = std::getenv(name);
        if (was != nullptr) was_ = was;
        had_ = was != nullptr;
        setenv(name, value, 1);
    }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;
    ~Variable() { had_ ? setenv(name_, was_.c_str(), 1) : unsetenv(name_); }

private:
    const char* name_;
    std::string was_;
    bool had_ = false;
};

/// Tries in a new process, which looks for the driver anew; exits with 0 if `Unavailable` says why.
void expect_unavailable(const char* why) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            const std::string text = text_of<Unavailable>([] { (void)Memory::device(); });
            std::cerr << text << '\n';
            const bool others_too =
                mentions(text_of<Unavailable>([] { (void)Memory::pinned(); }), why) &&
                mentions(text_of<Unavailable>([] { (void)Memory::managed(); }), why) &&
                mentions(text_of<Unavailable>([] { (void)default_pool(MemoryKind::device); }), why);
            Pool host;
            const Buffer works = host.acquire(1_MiB);
            std::exit(!cuda_available() && others_too && !works.empty() ? 0 : 1);
        },
        testing::ExitedWithCode(0), why);
}

TEST(WithoutCuda, SaysThatThereIsNoDriver) {
    const Variable none("CISTERN_CUDA_DRIVER", "/nonexistent/libcuda.so.1");
    expect_unavailable("no CUDA driver");
}

TEST(WithoutCuda, SaysThatALibraryIsNoDriver) {
    const Variable other("CISTERN_CUDA_DRIVER", "libm.so.6");
    expect_unavailable("lacks a function");
}

/// These need the stand-in to play the machine.
class OtherMachine : public testing::Test {
protected:
    void SetUp() override {
        if (std::getenv("CISTERN_CUDA_DRIVER") == nullptr) GTEST_SKIP() << "needs the stand-in";
    }
};

TEST_F(OtherMachine, KeepsItsOwnDefaultIfTheEnvironmentSaysNothingSensible) {
    const Variable unit("CISTERN_MAX_IDLE_BYTES", "1GiB"), device("TEST_CUDA_BYTES", "1073741824");
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            const Pool pool{Memory::device()};
            std::cerr << pool.options().max_idle_bytes << '\n';
            std::exit(pool.options().max_idle_bytes == 1024_MiB ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
}

TEST_F(OtherMachine, MapsFewHandlesForALargePool) {
    if (!Library::get().is_stand_in()) GTEST_SKIP() << "needs the stand-in";
    const Variable device("TEST_CUDA_BYTES", "17179869184");
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            const auto created = [] { return Library::get().control->calls("cuMemCreate"); };
            Pool pool{Memory::device()};
            const Buffer most = pool.acquire(8192_MiB);
            const auto before = created();
            const Buffer more = pool.acquire(16_MiB);
            std::cerr << created() - before << '\n';
            std::exit(created() - before <= 4 ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
}

TEST_F(OtherMachine, SaysThatTheDriverIsTooOld) {
    const Variable version("TEST_CUDA_VERSION", "11080");
    expect_unavailable("too old: 11.8");
}

TEST_F(OtherMachine, SaysThatThereIsNoDevice) {
    const Variable devices("TEST_CUDA_DEVICES", "0");
    expect_unavailable("no CUDA-capable device");
}

}  // namespace
}  // namespace cistern::test
