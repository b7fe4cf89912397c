// Shared buffers over a socket: what arrives is what was sent; what does not arrive whole is an error, and
// leaves no descriptor behind. Any file does here, so none of this needs a device.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "cistern/cistern.hpp"
#include "descriptors.hpp"
#include "support/failing_new.hpp"
#include "support/literals.hpp"
#include "support/text.hpp"

namespace cistern::test {
namespace {

SharedBuffer some_buffer(std::size_t parts) {
    SharedBuffer shared;
    for (std::size_t i = 0; i < parts; ++i) {
        shared.parts.push_back(
            {FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)), 2_MiB + i * 2_MiB});
        shared.size += shared.parts.back().bytes;
    }
    shared.offset = 12345;
    shared.size -= 12345 + 99;
    shared.device.fill(7);
    return shared;
}

ino_t inode_of(int file) {
    struct stat status {};
    EXPECT_EQ(fstat(file, &status), 0);
    return status.st_ino;
}

void expect_same(const SharedBuffer& sent, const SharedBuffer& came) {
    EXPECT_EQ(came.offset, sent.offset);
    EXPECT_EQ(came.size, sent.size);
    EXPECT_EQ(came.device, sent.device);
    ASSERT_EQ(came.parts.size(), sent.parts.size());
    for (std::size_t i = 0; i < sent.parts.size(); ++i) {
        const int file = came.parts[i].file.number();
        EXPECT_EQ(came.parts[i].bytes, sent.parts[i].bytes);
        EXPECT_EQ(inode_of(file), inode_of(sent.parts[i].file.number()));
        EXPECT_EQ(fcntl(file, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    }
}

class Wire : public testing::TestWithParam<int> {
protected:
    void SetUp() override { before_ = open_descriptors(); }
    void TearDown() override {
        ours = FileDescriptor();
        theirs = FileDescriptor();
        EXPECT_EQ(open_descriptors(), before_);
    }
    void connect(int type) { std::tie(ours, theirs) = socket_pair(type); }
    /// Sends bytes, with copies of the standard input if asked to.
    void send_raw(const void* data, std::size_t bytes, std::size_t files = 0) {
        std::array<char, CMSG_SPACE(200 * sizeof(int))> room{};
        iovec part{const_cast<void*>(data), bytes};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        const FileDescriptor any(open("/dev/null", O_RDONLY | O_CLOEXEC));
        if (files > 0) {
            message.msg_control = room.data();
            message.msg_controllen = CMSG_SPACE(files * sizeof(int));
            cmsghdr* const head = CMSG_FIRSTHDR(&message);
            head->cmsg_level = SOL_SOCKET;
            head->cmsg_type = SCM_RIGHTS;
            head->cmsg_len = CMSG_LEN(files * sizeof(int));
            for (std::size_t i = 0; i < files; ++i) {
                const int number = any.number();
                std::memcpy(CMSG_DATA(head) + i * sizeof(int), &number, sizeof number);
            }
        }
        ASSERT_EQ(sendmsg(theirs.number(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
    }

    FileDescriptor ours, theirs;

private:
    std::size_t before_ = 0;
};

/// As it travels.
struct Header {
    std::array<char, 8> magic{'c', 'i', 's', 't', 'e', 'r', 'n', '1'};
    std::uint64_t parts = 1, offset = 0, size = 1;
    std::array<unsigned char, 16> device{};
};

TEST_P(Wire, WhatArrivesIsWhatWasSent) {
    connect(GetParam());
    for (const std::size_t parts : {1U, 2U, 249U, 250U, 251U, 300U}) {
        SCOPED_TRACE(parts);
        const SharedBuffer sent = some_buffer(parts);
        send(sent, theirs.number());
        expect_same(sent, receive(ours.number()));
    }
}

TEST_P(Wire, WaitsForTheOtherSide) {
    connect(GetParam() | SOCK_NONBLOCK);
    const SharedBuffer sent = some_buffer(10);
    std::thread sender([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        send(sent, theirs.number());
    });
    expect_same(sent, receive(ours.number()));
    sender.join();
}

TEST_P(Wire, ATimeoutOfTheSocketIsAnError) {
    connect(GetParam());
    const timeval soon{.tv_sec = 0, .tv_usec = 10'000};
    ASSERT_EQ(setsockopt(ours.number(), SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon), 0);
    EXPECT_THROW((void)receive(ours.number()), Unavailable);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Wire, testing::Values(SOCK_STREAM, SOCK_SEQPACKET),
                         [](const auto& test) {
                             return test.param == SOCK_STREAM ? "Stream" : "Packets";
                         });

using Garbage = Wire;

TEST_F(Garbage, AStreamMayComeInPieces) {
    connect(SOCK_STREAM);
    const Header header{.parts = 2, .size = 2_MiB + 1};
    const std::array<std::uint64_t, 2> sizes{2_MiB, 2_MiB};
    const auto* const bytes = reinterpret_cast<const char*>(&header);
    std::thread sender([&] {
        for (std::size_t i = 0; i < sizeof header; ++i) send_raw(bytes + i, 1);
        const auto* const tail = reinterpret_cast<const char*>(sizes.data());
        send_raw(tail, 3, 1);
        send_raw(tail + 3, 4);
        send_raw(tail + 7, 9, 1);
    });
    const SharedBuffer came = receive(ours.number());
    sender.join();
    EXPECT_EQ(came.parts.size(), 2u);
    EXPECT_EQ(came.size, 2_MiB + 1);
}

TEST_F(Garbage, APeerThatHangsUpIsAnError) {
    const Header header{.parts = 3, .size = 5_MiB};
    const std::array<std::uint64_t, 3> sizes{2_MiB, 2_MiB, 2_MiB};
    for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
        for (const int step : {0, 1, 2, 3}) {
            SCOPED_TRACE(testing::Message() << type << ", step " << step);
            connect(type);
            if (step == 1) send_raw(&header, sizeof header - 1);
            if (step >= 2) send_raw(&header, sizeof header);
            if (step == 3) send_raw(sizes.data(), 8, 3);
            theirs = FileDescriptor();
            const std::string text = text_of<Unavailable>([&] { (void)receive(ours.number()); });
            EXPECT_TRUE(mentions(text, "hung up")) << text;
        }
    }
}

TEST_F(Garbage, SendingToNobodyIsAnErrorAndNoSignal) {
    connect(SOCK_STREAM);
    ours = FileDescriptor();
    const SharedBuffer shared = some_buffer(3);
    const std::string text = text_of<Unavailable>([&] { send(shared, theirs.number()); });
    EXPECT_TRUE(mentions(text, "Broken pipe")) << text;
}

TEST_F(Garbage, OtherBytesAreRefused) {
    const auto refused = [&](Header header, std::size_t header_files, std::uint64_t size,
                             std::size_t files) {
        connect(SOCK_STREAM);
        send_raw(&header, sizeof header, header_files);
        send_raw(&size, sizeof size, files);
        theirs = FileDescriptor();
        return text_of<InvalidArgument>([&] { (void)receive(ours.number()); });
    };
    const std::uint64_t huge = ~std::uint64_t{0};
    EXPECT_TRUE(mentions(refused({.magic = {'H', 'T', 'T', 'P'}}, 0, 2_MiB, 1), "begin"));
    EXPECT_TRUE(mentions(refused({}, 1, 2_MiB, 1), "begin"));
    EXPECT_TRUE(mentions(refused({.parts = 0}, 0, 2_MiB, 1), "parts 0"));
    EXPECT_TRUE(mentions(refused({.parts = huge}, 0, 2_MiB, 1), std::to_string(huge)));
    EXPECT_TRUE(mentions(refused({}, 0, 2_MiB, 0), "descriptors 0, expected 1"));
    EXPECT_TRUE(mentions(refused({}, 0, 2_MiB, 200), "descriptors 200, expected 1"));
    EXPECT_TRUE(mentions(refused({}, 0, 0, 1), "no such size"));
    EXPECT_TRUE(mentions(refused({}, 0, huge, 1), "no such size"));
    EXPECT_TRUE(mentions(refused({.size = 0}, 0, 2_MiB, 1), "no bytes"));
    EXPECT_TRUE(mentions(refused({.size = 2_MiB + 1}, 0, 2_MiB, 1), "last part"));
    EXPECT_TRUE(mentions(refused({.size = huge}, 0, 2_MiB, 1), "last part"));
    EXPECT_TRUE(mentions(refused({.offset = 2_MiB}, 0, 2_MiB, 1), "first part"));
    EXPECT_TRUE(mentions(refused({.offset = 1_MiB, .size = 2_MiB}, 0, 2_MiB, 1), "last part"));
}

TEST_F(Garbage, APacketThatIsTooLongIsRefused) {
    connect(SOCK_SEQPACKET);
    const std::array<char, 5000> bytes{};
    send_raw(bytes.data(), bytes.size(), 3);
    EXPECT_THROW((void)receive(ours.number()), InvalidArgument);
}

TEST_F(Garbage, TooManyFilesForTheProcessIsAnError) {
    connect(SOCK_STREAM);
    {
        const SharedBuffer sent = some_buffer(200);
        send(sent, theirs.number());
    }
    rlimit was{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
    rlimit few = was;
    few.rlim_cur = 100;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const std::string text = text_of<Unavailable>([&] { (void)receive(ours.number()); });
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
    EXPECT_TRUE(mentions(text, "may not open")) << text;
}

TEST_F(Garbage, WhatIsNoUnixSocketIsRefused) {
    const SharedBuffer shared = some_buffer(1);
    const FileDescriptor file(open("/dev/null", O_RDWR | O_CLOEXEC));
    const FileDescriptor network(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const FileDescriptor alone(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    for (const int number : {-1, 9999, file.number(), network.number(), alone.number()}) {
        EXPECT_THROW(send(shared, number), InvalidArgument) << number;
        EXPECT_THROW((void)receive(number), InvalidArgument) << number;
    }
}

TEST_F(Garbage, WhatCannotBeSharedIsNotSent) {
    connect(SOCK_STREAM);
    EXPECT_THROW(send(SharedBuffer(), theirs.number()), InvalidArgument);
    SharedBuffer holey = some_buffer(3);
    holey.parts[1].file = FileDescriptor();
    EXPECT_THROW(send(holey, theirs.number()), InvalidArgument);
    EXPECT_THROW(ImportedBuffer{holey}, InvalidArgument);
}

TEST_F(Garbage, WithoutHostMemoryNothingIsLost) {
    const SharedBuffer sent = some_buffer(3);
    for (std::uint64_t nth = 1;; ++nth) {
        connect(SOCK_STREAM);
        bool failed = false;
        {
            const FailingNew failing(nth);
            try {
                send(sent, theirs.number());
                (void)receive(ours.number());
            } catch (const std::bad_alloc&) {
                failed = true;
            }
        }
        if (!failed) {
            EXPECT_GT(nth, 5u) << "it allocates, and each time may fail";
            break;
        }
    }
}

}  // namespace
}  // namespace cistern::test
