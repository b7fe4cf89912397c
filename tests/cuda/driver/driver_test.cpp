// Devices, contexts, memory and faults. Everything else rests on the stand-in, so it is tested first.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "fixture.hpp"

namespace cistern::test {
namespace {

constexpr std::size_t step = 2_MiB;  // of every device that has virtual memory

AllocationProperties properties_of(int device) {
    AllocationProperties properties;
    properties.requested_handle_types = 1;
    properties.location.id = device;
    return properties;
}

AccessDescription access_of(int device) {
    AccessDescription access;
    access.location.id = device;
    return access;
}

TEST_F(DriverTest, HasEveryFunctionThatCisternCalls) {
    EXPECT_EQ(driver.missing, "");
    int version = 0;
    EXPECT_EQ(driver.driver_version(&version), 0);
    EXPECT_GE(version, 12000);
}

TEST_F(DriverTest, RefusesWorkWithoutACurrentContext) {
    std::thread([&] {
        Address data = 0;
        EXPECT_EQ(driver.allocate(&data, 64), 201);
        cuda::Stream stream = nullptr;
        EXPECT_EQ(driver.create_stream(&stream, 0), 201);
    }).join();
}

TEST_F(DriverTest, RefusesADeviceOutOfRange) {
    int count = 0;
    ASSERT_EQ(driver.device_count(&count), 0);
    Device device = 0;
    EXPECT_EQ(driver.device(&device, count), 101);
    EXPECT_EQ(driver.device(&device, -1), 101);
}

TEST_F(DriverTest, CountsPlainAllocationsAndRefusesThoseBeyondTheDevice) {
    std::size_t free_before = 0, free_within = 0, total = 0;
    ASSERT_EQ(driver.memory_info(&free_before, &total), 0);
    Address data = 0;
    EXPECT_EQ(driver.allocate(&data, total + 1), 2);
    ASSERT_EQ(driver.allocate(&data, 64_MiB), 0);

    ASSERT_EQ(driver.memory_info(&free_within, &total), 0);
    EXPECT_EQ(free_before - free_within, 64_MiB);

    ASSERT_EQ(driver.free(data), 0);
    EXPECT_EQ(driver.free(data), 1);
    EXPECT_EQ(driver.allocate(&data, 0), 1);
}

class Virtual : public DriverTest {
protected:
    void SetUp() override {
        DriverTest::SetUp();
        if (context == nullptr) return;
        ASSERT_EQ(driver.reserve(&range, 8 * step, 0, 0, 0), 0);
    }
    void TearDown() override {
        if (range != 0) {
            EXPECT_EQ(driver.unreserve(range, 8 * step), 0);
        }
        DriverTest::TearDown();
    }
    Handle make_handle(std::size_t bytes) {
        Handle handle = 0;
        EXPECT_EQ(driver.create(&handle, bytes, &properties, 0), 0);
        return handle;
    }
    std::size_t free_bytes() {
        std::size_t free = 0, total = 0;
        EXPECT_EQ(driver.memory_info(&free, &total), 0);
        return free;
    }

    Address range = 0;
    AllocationProperties properties = properties_of(0);
    AccessDescription access = access_of(0);
};

TEST_F(Virtual, BytesAreUsableOnceMappedAndAccessible) {
    const Handle handle = make_handle(2 * step);
    ASSERT_EQ(driver.map(range, 2 * step, 0, handle, 0), 0);
    unsigned char out = 7, back = 0;
    EXPECT_NE(driver.copy(range, reinterpret_cast<Address>(&out), 1), 0) << "not accessible yet";
    ASSERT_EQ(driver.set_access(range, 2 * step, &access, 1), 0);

    EXPECT_EQ(driver.copy(range + 2 * step - 1, reinterpret_cast<Address>(&out), 1), 0);
    EXPECT_EQ(driver.copy(reinterpret_cast<Address>(&back), range + 2 * step - 1, 1), 0);
    EXPECT_EQ(back, 7);

    EXPECT_EQ(driver.unmap(range, 2 * step), 0);
    EXPECT_EQ(driver.release(handle), 0);
}

TEST_F(Virtual, HandlesHaveWholeSteps) {
    Handle handle = 0;
    EXPECT_EQ(driver.create(&handle, step + 4096, &properties, 0), 1);
    EXPECT_EQ(driver.create(&handle, 0, &properties, 0), 1);
}

TEST_F(Virtual, MapsWholeHandlesWhereNothingIsMapped) {
    const Handle handle = make_handle(2 * step), other = make_handle(step);
    EXPECT_NE(driver.map(range, step, step, handle, 0), 0) << "the second half of a handle";
    ASSERT_EQ(driver.map(range, 2 * step, 0, handle, 0), 0);
    EXPECT_NE(driver.map(range + step, step, 0, other, 0), 0) << "over a mapped part";
    EXPECT_NE(driver.map(range + 8 * step, step, 0, other, 0), 0) << "beyond the range";
    EXPECT_EQ(driver.map(range + 2 * step, step, 0, other, 0), 0);

    EXPECT_EQ(driver.unmap(range, 3 * step), 0) << "several at once";
    EXPECT_EQ(driver.release(handle), 0);
    EXPECT_EQ(driver.release(other), 0);
}

TEST_F(Virtual, UnmapsWholeMappingsOnly) {
    const Handle handle = make_handle(2 * step);
    ASSERT_EQ(driver.map(range, 2 * step, 0, handle, 0), 0);

    EXPECT_EQ(driver.unmap(range, step), 1);
    EXPECT_EQ(driver.unmap(range + step, step), 1);

    EXPECT_EQ(driver.unmap(range, 2 * step), 0);
    EXPECT_EQ(driver.release(handle), 0);
}

TEST_F(Virtual, BytesAreFreeOnceUnmappedAndReleased) {
    const std::size_t before = free_bytes();
    const Handle handle = make_handle(2 * step);
    EXPECT_EQ(before - free_bytes(), 2 * step);
    ASSERT_EQ(driver.map(range, 2 * step, 0, handle, 0), 0);

    EXPECT_EQ(driver.release(handle), 0);
    EXPECT_EQ(before - free_bytes(), 2 * step) << "still mapped";
    EXPECT_EQ(driver.unmap(range, 2 * step), 0);

    EXPECT_EQ(free_bytes(), before);
    EXPECT_NE(driver.release(handle), 0) << "there is no such handle any more";
}

TEST_F(Virtual, RefusesToCreateBeyondTheDevice) {
    std::size_t total = 0;
    ASSERT_EQ(driver.device_total(&total, 0), 0);
    Handle handle = 0;
    EXPECT_EQ(driver.create(&handle, total / step * step + step, &properties, 0), 2);
}

TEST_F(Virtual, AFileDescriptorNamesTheSameBytes) {
    const std::size_t before = free_bytes();
    const Handle handle = make_handle(step);
    int file = -1;
    ASSERT_EQ(driver.export_handle(&file, handle, 1, 0), 0);
    Handle imported = 0;
    ASSERT_EQ(driver.import_handle(&imported,
                                   reinterpret_cast<void*>(static_cast<std::intptr_t>(file)), 1),
              0);
    close(file);
    ASSERT_EQ(driver.map(range, step, 0, handle, 0), 0);
    ASSERT_EQ(driver.map(range + step, step, 0, imported, 0), 0);
    ASSERT_EQ(driver.set_access(range, 2 * step, &access, 1), 0);

    unsigned char out = 9, back = 0;
    EXPECT_EQ(driver.copy(range, reinterpret_cast<Address>(&out), 1), 0);
    EXPECT_EQ(driver.copy(reinterpret_cast<Address>(&back), range + step, 1), 0);
    EXPECT_EQ(back, 9);
    EXPECT_EQ(before - free_bytes(), step) << "counted once";

    EXPECT_EQ(driver.unmap(range, 2 * step), 0);
    EXPECT_EQ(driver.release(handle), 0);
    EXPECT_EQ(driver.release(imported), 0);
    EXPECT_EQ(free_bytes(), before);
}

TEST_F(Virtual, ExportsOnlyWhatWasMadeForIt) {
    properties.requested_handle_types = 0;
    const Handle handle = make_handle(step);
    int file = -1;
    EXPECT_NE(driver.export_handle(&file, handle, handle_is_file, 0), 0);
    EXPECT_EQ(driver.release(handle), 0);
}

TEST_F(Virtual, ImportsNoOtherFile) {
    const int other = open("/dev/null", O_RDWR | O_CLOEXEC);
    Handle handle = 0;
    EXPECT_NE(driver.import_handle(&handle, reinterpret_cast<void*>(std::intptr_t{other}),
                                   handle_is_file),
              0);
    close(other);
}

TEST_F(DriverTest, EachDeviceHasAUuid) {
    int count = 0;
    ASSERT_EQ(driver.device_count(&count), 0);
    std::set<Uuid> seen;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        Device device = 0;
        Uuid uuid{}, again{};
        ASSERT_EQ(driver.device(&device, ordinal), 0);
        EXPECT_EQ(driver.device_uuid(&uuid, device), 0);
        EXPECT_EQ(driver.device_uuid(&again, device), 0);
        EXPECT_EQ(uuid, again);
        EXPECT_TRUE(seen.insert(uuid).second) << ordinal;
    }
}

/// Four pages of host memory and as many on the device.
class Registered : public DriverTest {
protected:
    static constexpr std::size_t page = 4_KiB;
    void SetUp() override {
        DriverTest::SetUp();
        if (context != nullptr) {
            ASSERT_EQ(driver.allocate(&on_device, 4 * page), 0);
        }
    }
    void TearDown() override {
        if (on_device != 0) driver.free(on_device);
        DriverTest::TearDown();
    }
    Address at(std::size_t offset) { return reinterpret_cast<Address>(&host[offset]); }

    Address on_device = 0;
    alignas(4096) unsigned char host[4 * page] = {};
};

TEST_F(Registered, OverlapsAndUnknownRangesAreErrors) {
    ASSERT_EQ(driver.register_host(&host[page], 2 * page, register_portable), 0);

    EXPECT_EQ(driver.register_host(&host[page], page, register_portable), 712);
    EXPECT_EQ(driver.register_host(host, 2 * page, register_portable), 712);
    EXPECT_EQ(driver.unregister_host(host), 713);

    EXPECT_EQ(driver.unregister_host(&host[page]), 0);
    EXPECT_EQ(driver.unregister_host(&host[page]), 713);
}

TEST_F(Registered, ACopyMustNotSpanTwo) {
    ASSERT_EQ(driver.register_host(host, page, register_portable), 0);
    ASSERT_EQ(driver.register_host(&host[page], page, register_portable), 0);

    EXPECT_EQ(driver.copy_async(on_device, at(0), page, nullptr), 0);
    EXPECT_EQ(driver.copy_async(on_device, at(page), page, nullptr), 0);
    EXPECT_EQ(driver.copy_async(on_device, at(page / 2), page, nullptr), 1);
    EXPECT_EQ(driver.copy(on_device, at(page / 2), page), 1);

    EXPECT_EQ(driver.unregister_host(host), 0);
    EXPECT_EQ(driver.unregister_host(&host[page]), 0);
}

TEST_F(Registered, CopiesAndSetsReachTheBytes) {
    ASSERT_EQ(driver.register_host(host, sizeof host, register_portable), 0);
    ASSERT_EQ(driver.set_async(on_device, 5, page, nullptr), 0);
    ASSERT_EQ(driver.copy_async(at(page), on_device, page, nullptr), 0);
    ASSERT_EQ(driver.stream_synchronize(nullptr), 0);

    EXPECT_EQ(host[page - 1], 0);
    EXPECT_EQ(host[page], 5);
    EXPECT_EQ(host[2 * page - 1], 5);
    EXPECT_EQ(driver.unregister_host(host), 0);
}

TEST_F(DriverTest, TheHostReadsAndWritesManagedBytes) {
    Address data = 0;
    ASSERT_EQ(driver.allocate_managed(&data, 64_KiB, attach_global), 0);
    ASSERT_EQ(driver.set_async(data, 3, 64_KiB, nullptr), 0);
    ASSERT_EQ(driver.synchronize(), 0);
    EXPECT_EQ(reinterpret_cast<unsigned char*>(data)[64_KiB - 1], 3);
    EXPECT_EQ(driver.free(data), 0);
}

TEST_F(DriverTest, IsGoneInAForkedChild) {
    const pid_t child = fork();
    if (child == 0) {
        Address data = 0;
        _exit(driver.allocate(&data, 64));
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 3);
}

/// What only the stand-in can do.
class Control : public DriverTest {
protected:
    void SetUp() override {
        DriverTest::SetUp();
        if (!IsSkipped() && !driver.is_stand_in()) GTEST_SKIP() << "needs the stand-in";
    }
    void TearDown() override {
        if (driver.is_stand_in()) {
            driver.control->stop_failing();
            driver.control->set_hook(nullptr, nullptr);
        }
        DriverTest::TearDown();
    }
};

TEST_F(Control, CountsCallsByName) {
    const auto before = driver.control->calls("cuMemGetInfo_v2");
    std::size_t free = 0, total = 0;
    driver.memory_info(&free, &total);
    driver.memory_info(&free, &total);
    EXPECT_EQ(driver.control->calls("cuMemGetInfo_v2"), before + 2);
    EXPECT_EQ(driver.control->calls("cuNothing"), 0u);
}

TEST_F(Control, FailsTheCallsItIsAskedTo) {
    std::size_t free = 0, total = 0;
    driver.control->fail("cuMemGetInfo_v2", 2, 2, 999);
    std::vector<int> results;
    for (int i = 0; i < 4; ++i) results.push_back(driver.memory_info(&free, &total));
    EXPECT_EQ(results, (std::vector<int>{0, 999, 999, 0}));
}

TEST_F(Control, TellsTheHookOfEveryCall) {
    std::vector<std::string> seen;
    driver.control->set_hook(
        [](void* data, const char* function) {
            static_cast<std::vector<std::string>*>(data)->emplace_back(function);
            std::size_t free = 0, total = 0;
            Library::get().memory_info(&free, &total);  // the hook's own calls are not told
        },
        &seen);
    Context current = nullptr;
    driver.current_context(&current);
    driver.control->set_hook(nullptr, nullptr);
    EXPECT_EQ(seen, std::vector<std::string>{"cuCtxGetCurrent"});
}

TEST_F(Control, ChangesWhatTheDevicesCan) {
    int value = 0;
    driver.control->set_attribute(attribute_virtual_memory, 0);
    driver.device_attribute(&value, attribute_virtual_memory, 0);
    EXPECT_EQ(value, 0);
    driver.control->set_attribute(attribute_virtual_memory, 1);

    std::size_t total = 0;
    driver.device_total(&total, 1);
    driver.control->set_total_bytes(1, 4_MiB);
    std::size_t changed = 0;
    driver.device_total(&changed, 1);
    EXPECT_EQ(changed, 4_MiB);
    driver.control->set_total_bytes(1, total);
}

TEST_F(Control, APoisonedContextStaysSo) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            driver.control->poison();
            Address data = 0;
            const bool refused = driver.allocate(&data, 64) == 700 && driver.synchronize() == 700 &&
                                 driver.synchronize() == 700;
            std::exit(refused ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
}

TEST_F(Control, WorkOnUnmappedBytesPoisonsTheContext) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            const AllocationProperties properties = properties_of(0);
            const AccessDescription access = access_of(0);
            Address range = 0;
            Handle handle = 0;
            driver.reserve(&range, step, 0, 0, 0);
            driver.create(&handle, step, &properties, 0);
            driver.map(range, step, 0, handle, 0);
            driver.set_access(range, step, &access, 1);
            const cuda::Stream stream = make_stream();
            Gate gate;
            gate.close(driver, stream);
            driver.set_async(range, 1, step, stream);
            driver.unmap(range, step);
            gate.open();
            std::exit(driver.stream_synchronize(stream) == 700 ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cistern::test
