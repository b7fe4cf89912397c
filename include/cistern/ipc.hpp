#pragma once
// Device memory between processes: the same bytes, no copy.
//
//     Buffer buffer = pool.acquire(bytes);               // one process, a pool on Memory::device()
//     send(share(buffer), socket);                       // a connected Unix-domain socket
//
//     ImportedBuffer bytes{receive(socket)};             // another process, the same device
//     kernel<<<grid, block, 0, stream>>>(bytes.data());
//
// - The exporter keeps the buffer lent while others use it: what is released, the pool lends again, and
//   both write to the same bytes.
// - The pool does not order the streams of two processes. Synchronise before you send, and before you say
//   that you are done; or share an event yourself (cuIpcGetEventHandle).
// - An importer's bytes stay valid when the exporter releases them or exits. The device's memory is free
//   once the last process has unmapped it and closed its descriptors; a SharedBuffer has one per physical
//   handle, of 2 to 64 MiB each, so large ones may need a higher `ulimit -n`.
// - Share with processes you trust: they can write beyond the buffer, to all of the handles it lies on.

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "cistern/buffer.hpp"

namespace [[gnu::visibility("default")]] cistern {

/// Owns a file descriptor, and closes it at its end. -1 is none.
class FileDescriptor {
public:
    FileDescriptor() noexcept = default;
    explicit FileDescriptor(int number) noexcept : number_(number) {}
    FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~FileDescriptor();

    [[nodiscard]] int number() const noexcept { return number_; }

private:
    int number_ = -1;
};

/// Bytes of a device as they travel between processes: whole physical handles, and where in them the bytes
/// lie. Move-only, since it owns descriptors; it does not keep the buffer lent.
struct SharedBuffer {
    SharedBuffer() = default;
    SharedBuffer(SharedBuffer&&) noexcept = default;
    SharedBuffer& operator=(SharedBuffer&&) noexcept = default;
    ~SharedBuffer() = default;

    struct Part {
        FileDescriptor file;
        std::size_t bytes = 0;  // of the handle
    };
    std::vector<Part> parts;                 // in the order of addresses
    std::size_t offset = 0;                  // of the bytes in the first part
    std::size_t size = 0;                    // of the bytes
    std::array<unsigned char, 16> device{};  // its UUID: numbers differ between processes
};

/// Exports a buffer that a pool on Memory::device() has lent. Throws InvalidArgument for an empty buffer,
/// another memory, and bytes without handles (adopted ones; all, where the device refuses to map);
/// Unavailable if the device exports nothing; DeviceError if the driver fails.
[[nodiscard]] SharedBuffer share(const Buffer& buffer);

/// Send and receive over a connected Unix-domain socket, waiting as long as it takes unless the socket has a
/// timeout. Throw InvalidArgument for what is no such socket, or no shared buffer; Unavailable if the peer
/// hangs up or the system fails. What was received until then is closed; the socket is of no more use.
void send(const SharedBuffer& shared, int socket);
[[nodiscard]] SharedBuffer receive(int socket);

/// Shared bytes, mapped into this process. Its end waits for the device's work and unmaps them; while a stream is being
/// captured nobody can, so then the next ImportedBuffer's beginning or end does it. Move-only.
class ImportedBuffer {
public:
    ImportedBuffer() noexcept;
    /// Throws InvalidArgument for what share() cannot have made, Unavailable without a driver or where the
    /// device is not visible, DeviceError if the driver fails.
    explicit ImportedBuffer(const SharedBuffer& shared);
    ImportedBuffer(ImportedBuffer&& other) noexcept;
    ImportedBuffer& operator=(ImportedBuffer&& other) noexcept;
    ~ImportedBuffer();

    [[nodiscard]] void* data() const noexcept;
    [[nodiscard]] std::size_t size() const noexcept;
    /// Returns the device's number in this process, -1 if empty.
    [[nodiscard]] int device_id() const noexcept;
    [[nodiscard]] bool empty() const noexcept { return mapping_ == nullptr; }

private:
    struct Mapping;
    std::unique_ptr<Mapping> mapping_;
};

}  // namespace cistern
