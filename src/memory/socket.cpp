// Shared buffers over a Unix-domain socket: a header, then batches of sizes, each with its descriptors. Every
// batch is one message, so that sockets which keep messages apart serve as well as streams.

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "cistern/error.hpp"
#include "memory/shareable.hpp"

namespace cistern {

namespace {

constexpr std::size_t batch_files = 250;  // the kernel carries 253 in one message
constexpr std::size_t most_parts = 1 << 20;

struct Header {
    std::array<char, 8> magic{'c', 'i', 's', 't', 'e', 'r', 'n', '1'};
    std::uint64_t parts = 0, offset = 0, size = 0;
    std::array<unsigned char, 16> device{};
};

[[noreturn]] void fail(const char* what, int error) {
    const std::string text = std::string(what) + ": " + std::strerror(error);
    if (error == EBADF || error == ENOTSOCK || error == ENOTCONN || error == EOPNOTSUPP ||
        error == EINVAL) {
        throw InvalidArgument(text);
    }
    throw Unavailable(text);
}

/// Calls transfer() until it is not interrupted; waits where a socket does not wait by itself.
template <class Transfer>
std::size_t persist(const char* what, int socket, short events, Transfer transfer) {
    for (;;) {
        const ssize_t done = transfer();
        if (done >= 0) return static_cast<std::size_t>(done);
        if (errno == EINTR) continue;
        // A socket that does wait has timed out.
        if ((errno != EAGAIN && errno != EWOULDBLOCK) ||
            (fcntl(socket, F_GETFL) & O_NONBLOCK) == 0) {
            fail(what, errno);
        }
        pollfd wait{.fd = socket, .events = events, .revents = 0};
        if (poll(&wait, 1, -1) < 0 && errno != EINTR) fail(what, errno);
    }
}

/// Room for the descriptors that come with one message, and for the sender's identity if the socket asks for
/// it, aligned as the system wants it.
union Control {
    cmsghdr head;
    std::array<char, CMSG_SPACE(253 * sizeof(int)) + CMSG_SPACE(sizeof(ucred))> room;
};

void send_all(int socket, std::span<const std::byte> bytes, std::span<const int> files) {
    Control control{};
    while (!bytes.empty()) {
        iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        if (!files.empty()) {
            message.msg_control = &control;
            message.msg_controllen = CMSG_SPACE(files.size_bytes());
            cmsghdr* const head = CMSG_FIRSTHDR(&message);
            head->cmsg_level = SOL_SOCKET;
            head->cmsg_type = SCM_RIGHTS;
            head->cmsg_len = CMSG_LEN(files.size_bytes());
            std::memcpy(CMSG_DATA(head), files.data(), files.size_bytes());
        }
        const std::size_t sent = persist("cannot send a shared buffer", socket, POLLOUT,
                                         [&] { return sendmsg(socket, &message, MSG_NOSIGNAL); });
        bytes = bytes.subspan(sent);
        files = {};  // they went with the first byte
    }
}

/// Keeps the descriptors of a message; closes those that there is no memory for.
void keep_files(msghdr& message, std::vector<FileDescriptor>& files) {
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
         head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
        std::array<FileDescriptor, 253> came;
        const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int number = -1;
            std::memcpy(&number, CMSG_DATA(head) + i * sizeof number, sizeof number);
            came.at(i) = FileDescriptor(number);
        }
        std::move(came.begin(), came.begin() + static_cast<std::ptrdiff_t>(count),
                  std::back_inserter(files));
    }
}

/// Fills `bytes`; appends the descriptors that come with them.
void receive_all(int socket, std::span<std::byte> bytes, std::vector<FileDescriptor>& files) {
    Control control{};
    while (!bytes.empty()) {
        iovec part{bytes.data(), bytes.size()};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        const std::size_t came = persist("cannot receive a shared buffer", socket, POLLIN, [&] {
            return recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
        });
        keep_files(message, files);
        if (came == 0) {
            throw Unavailable("cannot receive a shared buffer: the peer hung up");
        }
        if ((message.msg_flags & MSG_CTRUNC) != 0) {
            throw Unavailable(
                "cannot receive a shared buffer: this process may not open as many files");
        }
        if ((message.msg_flags & MSG_TRUNC) != 0) {
            throw InvalidArgument("not a shared buffer: a message is too long");
        }
        bytes = bytes.subspan(came);
    }
}

void check_is_unix(int socket) {
    int domain = 0;
    socklen_t bytes = sizeof domain;
    if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0) {
        fail("not a socket", errno);
    }
    if (domain != AF_UNIX) throw InvalidArgument("not a Unix-domain socket");
}

}  // namespace

void send(const SharedBuffer& shared, int socket) {
    check_shared(shared);
    check_is_unix(socket);
    const Header header{.parts = shared.parts.size(),
                        .offset = shared.offset,
                        .size = shared.size,
                        .device = shared.device};
    send_all(socket, std::as_bytes(std::span(&header, 1)), {});
    std::vector<std::uint64_t> sizes;
    std::vector<int> files;
    for (const SharedBuffer::Part& part : shared.parts) {
        sizes.push_back(part.bytes);
        files.push_back(part.file.number());
        if (sizes.size() < batch_files && &part != &shared.parts.back()) continue;
        send_all(socket, std::as_bytes(std::span(sizes)), files);
        sizes.clear();
        files.clear();
    }
}

SharedBuffer receive(int socket) {
    check_is_unix(socket);
    Header header;
    std::vector<FileDescriptor> files;
    receive_all(socket, std::as_writable_bytes(std::span(&header, 1)), files);
    if (header.magic != Header{}.magic || !files.empty()) {
        throw InvalidArgument("not a shared buffer: it does not begin like one");
    }
    if (header.parts == 0 || header.parts > most_parts) {
        throw InvalidArgument("not a shared buffer: parts " + std::to_string(header.parts) +
                              ", limit " + std::to_string(most_parts));
    }
    SharedBuffer shared;
    shared.offset = header.offset;
    shared.size = header.size;
    shared.device = header.device;
    while (shared.parts.size() < header.parts) {
        std::vector<std::uint64_t> sizes(
            std::min<std::size_t>(header.parts - shared.parts.size(), batch_files));
        files.clear();
        receive_all(socket, std::as_writable_bytes(std::span(sizes)), files);
        if (files.size() != sizes.size()) {
            throw InvalidArgument("not a shared buffer: file descriptors " +
                                  std::to_string(files.size()) + ", expected " +
                                  std::to_string(sizes.size()));
        }
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            shared.parts.push_back({std::move(files[i]), sizes[i]});
        }
    }
    check_shared(shared);
    return shared;
}

}  // namespace cistern
