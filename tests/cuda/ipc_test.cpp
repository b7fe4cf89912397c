// Device memory between processes. The other one is peer/peer.cpp, which starts a driver of its own.

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cistern/cistern.h"
#include "descriptors.hpp"
#include "gpu.hpp"
#include "support/text.hpp"

namespace cistern::test {
namespace {

static_assert(!std::is_copy_constructible_v<SharedBuffer> &&
              std::is_nothrow_move_constructible_v<SharedBuffer> &&
              !std::is_copy_constructible_v<ImportedBuffer> &&
              std::is_nothrow_move_constructible_v<ImportedBuffer>);

/// Another process and a socket to it.
class Peer {
public:
    explicit Peer(std::vector<std::string> arguments, std::vector<std::string> variables = {}) {
        FileDescriptor theirs;
        std::tie(socket_, theirs) = socket_pair();
        arguments.insert(arguments.begin(), program());
        for (char** variable = environ; *variable != nullptr; ++variable) {
            variables.emplace_back(*variable);  // the first of two with one name counts
        }
        const auto pointers_to = [](std::vector<std::string>& texts) {
            std::vector<char*> pointers;
            for (std::string& text : texts) pointers.push_back(text.data());
            pointers.push_back(nullptr);
            return pointers;
        };
        posix_spawn_file_actions_t actions{};
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, theirs.number(), 3);
        EXPECT_EQ(posix_spawn(&process_, arguments.front().c_str(), &actions, nullptr,
                              pointers_to(arguments).data(), pointers_to(variables).data()),
                  0);
        posix_spawn_file_actions_destroy(&actions);
    }
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;
    ~Peer() {
        socket_ = FileDescriptor();
        if (process_ > 0) wait();
    }

    [[nodiscard]] int socket() const { return socket_.number(); }
    /// Reads until the peer hangs up.
    [[nodiscard]] std::string answer() const {
        std::string text;
        char letter = 0;
        while (read(socket(), &letter, 1) == 1) text += letter;
        return text;
    }
    /// Returns the exit code.
    int wait() {
        int status = -1;
        waitpid(std::exchange(process_, -1), &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

private:
    static std::string program() {
        return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "cistern_cuda_peer";
    }

    FileDescriptor socket_;
    pid_t process_ = -1;
};

/// Bytes that differ wherever two parts could be taken for each other.
std::vector<unsigned char> pattern(std::size_t bytes) {
    std::vector<unsigned char> out(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
        out[i] = static_cast<unsigned char>(i ^ i >> 8 ^ i >> 16 ^ i >> 24);
    }
    return out;
}

class Ipc : public Gpu {
protected:
    void write(void* data, const std::vector<unsigned char>& bytes) {
        ASSERT_EQ(driver.copy(reinterpret_cast<cuda::Address>(data),
                              reinterpret_cast<cuda::Address>(bytes.data()), bytes.size()),
                  0);
        ASSERT_EQ(driver.synchronize(), 0);
    }
    std::vector<unsigned char> read(const void* data, std::size_t bytes) {
        std::vector<unsigned char> out(bytes);
        EXPECT_EQ(driver.copy(reinterpret_cast<cuda::Address>(out.data()),
                              reinterpret_cast<cuda::Address>(data), bytes),
                  0);
        return out;
    }
    /// Has another process add 1 to every byte.
    void expect_shared(const Buffer& buffer) {
        std::vector<unsigned char> bytes = pattern(buffer.size());
        write(buffer.data(), bytes);
        Peer peer({"add"});
        send(share(buffer), peer.socket());
        EXPECT_EQ(peer.answer(), "done");
        EXPECT_EQ(peer.wait(), 0);
        for (unsigned char& byte : bytes) ++byte;
        EXPECT_TRUE(read(buffer.data(), buffer.size()) == bytes);
    }
};

TEST_F(Ipc, AnotherProcessUsesTheSameBytes) {
    Pool pool{Memory::device()};
    for (const std::size_t bytes : {std::size_t{1}, 100_KiB, 2_MiB, 5_MiB + 3}) {
        SCOPED_TRACE(bytes);
        expect_shared(pool.acquire(bytes));
    }
}

TEST_F(Ipc, ABufferMayBeginAndEndInTheMiddleOfHandles) {
    Pool pool{Memory::device()};
    const Buffer before = pool.acquire(1_MiB);
    const Buffer buffer = pool.acquire(40_MiB + 64);
    const Buffer after = pool.acquire(1_MiB);
    const SharedBuffer shared = share(buffer);
    EXPECT_GT(shared.parts.size(), 3u);
    EXPECT_EQ(shared.offset, 1_MiB);
    EXPECT_EQ(shared.size, 40_MiB + 64);
    expect_shared(buffer);
}

TEST_F(Ipc, ManyHandlesTravelInSeveralMessages) {
    constexpr std::size_t count = 260;
    Pool pool{Memory::device()};
    {
        std::vector<Buffer> handle_by_handle;
        for (std::size_t i = 1; i <= count; ++i) {
            pool.set_limits({.max_bytes = i * 2_MiB});
            handle_by_handle.push_back(pool.acquire(2_MiB));
        }
    }
    const Buffer buffer = pool.acquire(count * 2_MiB);
    const auto [ours, theirs] = socket_pair();
    send(share(buffer), theirs.number());
    const SharedBuffer came = receive(ours.number());
    EXPECT_EQ(came.parts.size(), count);

    const ImportedBuffer mine{came};

    const auto handle_of = [](void* data, std::size_t i) {
        return static_cast<std::byte*>(data) + i * 2_MiB;
    };
    for (std::size_t i = 0; i < count; ++i) {
        write(handle_of(buffer.data(), i), {static_cast<unsigned char>(i), i == 256});
    }
    for (std::size_t i = 0; i < count; ++i) {
        const std::vector<unsigned char> right{static_cast<unsigned char>(i), i == 256};
        EXPECT_EQ(read(handle_of(mine.data(), i), 2), right) << i;
    }
}

TEST_F(Ipc, BytesOutliveTheProcessThatLentThem) {
    Peer peer({"lend", std::to_string(20_MiB), "42"});
    const SharedBuffer shared = receive(peer.socket());
    EXPECT_EQ(peer.wait(), 0);
    const ImportedBuffer mine{shared};
    EXPECT_EQ(mine.size(), 20_MiB);
    EXPECT_EQ(mine.device_id(), 0);
    EXPECT_EQ(read(mine.data(), mine.size()), std::vector<unsigned char>(20_MiB, 42));
}

TEST_F(Ipc, BytesOutliveTheirPool) {
    ImportedBuffer mine;
    {
        Pool pool{Memory::device()};
        const Buffer buffer = pool.acquire(9_MiB);
        write(buffer.data(), pattern(9_MiB));
        mine = ImportedBuffer{share(buffer)};
    }
    EXPECT_TRUE(read(mine.data(), mine.size()) == pattern(9_MiB));
}

TEST_F(Ipc, AnImportedBufferMoves) {
    Pool pool{Memory::device()};
    const Buffer buffer = pool.acquire(1_MiB);
    ImportedBuffer first{share(buffer)};
    void* const data = first.data();
    EXPECT_NE(data, buffer.data()) << "mapped a second time";
    ImportedBuffer second = std::move(first);
    EXPECT_EQ(second.data(), data);
    EXPECT_EQ(second.size(), 1_MiB);
    second = ImportedBuffer();
    EXPECT_TRUE(second.empty());
    EXPECT_EQ(second.data(), nullptr);
    EXPECT_EQ(second.size(), 0u);
    EXPECT_EQ(second.device_id(), -1);
}

TEST_F(Ipc, ItsEndWaitsForTheDevice) {
    Pool pool{Memory::device()};
    const Buffer buffer = pool.acquire(1_MiB);
    const cuda::Stream stream = make_stream();
    {
        const ImportedBuffer mine{share(buffer)};
        fill(stream, mine.data(), mine.size(), 77, late);
    }
    check(nullptr, buffer, 77);
    EXPECT_EQ(mismatches(), 0u);
}

TEST_F(Ipc, OfOtherMemoriesIsRefused) {
    Pool host, pinned{Memory::pinned()}, managed{Memory::managed()};
    EXPECT_THROW((void)share(Buffer()), InvalidArgument);
    for (Pool* const pool : {&host, &pinned, &managed}) {
        const Buffer buffer = pool->acquire(1_MiB);
        const std::string text = text_of<InvalidArgument>([&] { (void)share(buffer); });
        EXPECT_TRUE(mentions(text, pool->memory().name())) << text;
        EXPECT_TRUE(mentions(text, "only device memory")) << text;
    }
}

TEST_F(Ipc, OfAdoptedBytesIsRefused) {
    cuda::Address data = 0;
    ASSERT_EQ(driver.allocate(&data, 2_MiB), 0);
    Pool pool{Memory::device()};
    pool.adopt(reinterpret_cast<void*>(data), 2_MiB, [&](void*) { driver.free(data); });
    const Buffer buffer = pool.acquire(2_MiB);
    ASSERT_EQ(buffer.data(), reinterpret_cast<void*>(data));
    const std::string text = text_of<InvalidArgument>([&] { (void)share(buffer); });
    EXPECT_TRUE(mentions(text, "adopted")) << text;
}

TEST_F(Ipc, ServesEveryFit) {
    for (const Fit& fit : std::initializer_list<Fit>{ExactFit{}, BestFit{}, FixedBlock{3_MiB}}) {
        Pool pool{Memory::device(), {.fit = fit}};
        const Buffer first = pool.acquire(3_MiB), second = pool.acquire(3_MiB);
        expect_shared(first);
        expect_shared(second);
    }
}

TEST_F(Ipc, OfWhatIsNoHandleIsRefused) {
    Pool pool{Memory::device()};
    const Buffer buffer = pool.acquire(1_MiB);
    SharedBuffer shared = share(buffer);
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    const FileDescriptor other_end(ends[1]);
    shared.parts[0].file = FileDescriptor(ends[0]);
    EXPECT_THROW(ImportedBuffer{shared}, DeviceError);

    shared = share(buffer);
    shared.parts[0].bytes = 3_MiB;
    EXPECT_THROW(ImportedBuffer{shared}, DeviceError);
}

TEST_F(Ipc, ADeviceThatThisProcessDoesNotSeeIsNamed) {
    Pool pool{Memory::device()};
    SharedBuffer shared = share(pool.acquire(1_MiB));
    shared.device.fill(0xab);
    const std::string text = text_of<Unavailable>([&] { ImportedBuffer{shared}; });
    EXPECT_TRUE(mentions(text, "GPU-abababab-abab-abab-abab-abababababab")) << text;
}

TEST_F(Ipc, WithoutADriverTheBytesAreUnavailable) {
    Pool pool{Memory::device()};
    const Buffer buffer = pool.acquire(1_MiB);
    Peer peer({"name"}, {"CISTERN_CUDA_DRIVER=/nonexistent/libcuda.so.1"});
    send(share(buffer), peer.socket());
    const std::string text = peer.answer();
    EXPECT_TRUE(mentions(text, "Unavailable: no CUDA driver")) << text;
}

TEST_F(Ipc, DevicesAreKnownByMoreThanTheirNumber) {
    int count = 0;
    ASSERT_EQ(driver.device_count(&count), 0);
    if (count < 2) GTEST_SKIP() << "needs two devices; here are " << count;
    const auto answer_for = [](int device) {
        Pool pool{Memory::device(device)};
        const Buffer buffer = pool.acquire(1_MiB);
        Peer peer({"name"}, {"CUDA_VISIBLE_DEVICES=1", "TEST_CUDA_HIDDEN=1"});
        send(share(buffer), peer.socket());
        return peer.answer();
    };
    EXPECT_EQ(answer_for(1), "device 0");
    const std::string text = answer_for(0);
    EXPECT_TRUE(mentions(text, "Unavailable: no device that this process sees")) << text;
}

TEST_F(Ipc, FromC) {
    const cistern_pool pool = cistern_pool_create_on(CISTERN_DEVICE, 0, nullptr);
    const cistern_buffer buffer = cistern_acquire(pool, 5_MiB);
    write(cistern_buffer_data(buffer), pattern(5_MiB));
    const auto [ours, theirs] = socket_pair();

    ASSERT_EQ(cistern_share(buffer, theirs.number()), CISTERN_OK) << cistern_last_error();
    std::size_t bytes = 0;
    std::int32_t device = -1;
    void* const data = cistern_open_shared(ours.number(), &bytes, &device);
    ASSERT_NE(data, nullptr) << cistern_last_error();
    EXPECT_EQ(bytes, 5_MiB);
    EXPECT_EQ(device, 0);
    EXPECT_TRUE(read(data, bytes) == pattern(5_MiB));
    EXPECT_EQ(cistern_close_shared(data), CISTERN_OK);
    EXPECT_EQ(cistern_close_shared(data), CISTERN_INVALID_ARGUMENT);
    EXPECT_EQ(cistern_close_shared(nullptr), CISTERN_OK) << "nothing to do";

    ASSERT_EQ(cistern_share(buffer, theirs.number()), CISTERN_OK);
    EXPECT_EQ(cistern_open_shared(ours.number(), nullptr, nullptr), nullptr)
        << "nobody would know how many bytes";
    EXPECT_EQ(cistern_last_error_code(), CISTERN_INVALID_ARGUMENT);
    EXPECT_EQ(cistern_share(buffer, -1), CISTERN_INVALID_ARGUMENT);
    EXPECT_EQ(cistern_open_shared(-1, &bytes, nullptr), nullptr);
    EXPECT_EQ(cistern_last_error_code(), CISTERN_INVALID_ARGUMENT);
    EXPECT_EQ(cistern_release(buffer), CISTERN_OK);
    EXPECT_EQ(cistern_share(buffer, theirs.number()), CISTERN_INVALID_HANDLE);
    EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

// --- What only the stand-in shows -------------------------------------------------------------------

class IpcFaults : public StandIn {
protected:
    struct Held {
        std::size_t descriptors, handles, ranges, bytes;
        friend bool operator==(const Held&, const Held&) = default;
        friend void PrintTo(const Held& held, std::ostream* out) {
            *out << held.descriptors << " descriptors, " << held.handles << " handles, "
                 << held.ranges << " ranges, " << held.bytes << " bytes";
        }
    };
    Held held() const {
        return {open_descriptors(), driver.control->handles(), driver.control->ranges(), in_use()};
    }
};

TEST_F(IpcFaults, EachCallMayFailAndNothingIsLost) {
    Pool pool{Memory::device()};
    const Buffer before = pool.acquire(1_MiB);
    const Buffer buffer = pool.acquire(30_MiB);
    const SharedBuffer kept = share(buffer);
    ASSERT_GT(kept.parts.size(), 3u);
    const Held at_rest = held();
    const auto attempt = [&](const char* function, unsigned nth, auto body) {
        SCOPED_TRACE(testing::Message() << function << ", call " << nth);
        driver.control->fail(function, nth, 1, 999);
        EXPECT_THROW(body(), DeviceError);
        driver.control->stop_failing();
        EXPECT_EQ(held(), at_rest);
    };
    for (unsigned nth = 1; nth <= kept.parts.size(); ++nth) {
        attempt("cuMemExportToShareableHandle", nth, [&] { (void)share(buffer); });
        attempt("cuMemImportFromShareableHandle", nth, [&] { ImportedBuffer{kept}; });
        attempt("cuMemMap", nth, [&] { ImportedBuffer{kept}; });
    }
    attempt("cuDeviceGetUuid_v2", 1, [&] { (void)share(buffer); });
    attempt("cuDeviceGetUuid_v2", 1, [&] { ImportedBuffer{kept}; });
    attempt("cuMemAddressReserve", 1, [&] { ImportedBuffer{kept}; });
    attempt("cuMemSetAccess", 1, [&] { ImportedBuffer{kept}; });
    EXPECT_EQ(ImportedBuffer{kept}.size(), 30_MiB) << "it works again";
    EXPECT_EQ(held(), at_rest);
}

TEST_F(IpcFaults, AnImportedBufferKeepsOneMappingAndNothingElse) {
    Pool pool{Memory::device()};
    const Buffer buffer = pool.acquire(30_MiB);
    const Held at_rest = held();
    {
        const ImportedBuffer mine{share(buffer)};
        const Held now = held();
        EXPECT_EQ(now.descriptors, at_rest.descriptors);
        EXPECT_EQ(now.handles, at_rest.handles);
        EXPECT_EQ(now.ranges, at_rest.ranges + 1);
        EXPECT_EQ(now.bytes, at_rest.bytes);
    }
    EXPECT_EQ(held(), at_rest);
}

TEST_F(IpcFaults, ADeviceThatExportsNothingSaysSo) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            driver.control->set_attribute(cuda::attribute_file_descriptors, 0);
            Pool pool{Memory::device(2)};
            const Buffer buffer = pool.acquire(1_MiB);
            const std::string text = text_of<Unavailable>([&] { (void)share(buffer); });
            std::exit(mentions(text, "exports no file descriptors") ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
}

TEST_F(IpcFaults, ADeviceThatCannotMapSaysSo) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            driver.control->set_attribute(cuda::attribute_virtual_memory, 0);
            Pool pool{Memory::device(2)};
            const Buffer buffer = pool.acquire(1_MiB);
            const std::string text = text_of<InvalidArgument>([&] { (void)share(buffer); });
            std::exit(mentions(text, "nothing could be mapped") ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
}

TEST_F(IpcFaults, ABufferReleasedMeanwhileIsNotSent) {
    static cistern_buffer buffer = 0;
    const cistern_pool pool = cistern_pool_create_on(CISTERN_DEVICE, 0, nullptr);
    buffer = cistern_acquire(pool, 5_MiB);
    const auto [ours, theirs] = socket_pair();
    driver.control->set_hook(
        [](void*, const char* function) {
            if (std::string(function) == "cuMemExportToShareableHandle") cistern_release(buffer);
        },
        nullptr);
    EXPECT_EQ(cistern_share(buffer, theirs.number()), CISTERN_INVALID_HANDLE);
    driver.control->set_hook(nullptr, nullptr);
    char byte = 0;
    EXPECT_EQ(recv(ours.number(), &byte, 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

}  // namespace
}  // namespace cistern::test
