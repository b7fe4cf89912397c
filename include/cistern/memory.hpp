#pragma once
// A memory is where a pool gets its bytes.
//
//     Pool pool{Memory::host()};                                // the default
//     Pool quick{Memory::host({.huge_pages = false})};          // no huge pages
//     Pool mine{Memory::from(*std::pmr::get_default_resource())};
//
// `Memory` is a small copyable handle; copies name the same memory. Thread-safe.

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <string>

namespace [[gnu::visibility("default")]] cistern {

enum class MemoryKind { host, pinned, device, managed };

/// The one interface to implement for a memory of your own: it hands out whole blocks. Calls may
/// come from several threads at once.
class MemorySource {
public:
    virtual ~MemorySource() = default;
    MemorySource() = default;
    MemorySource(const MemorySource&) = delete;
    MemorySource& operator=(const MemorySource&) = delete;

    /// Returns `bytes` bytes at a multiple of `alignment`, or nullptr when there are none.
    virtual void* allocate(std::size_t bytes, std::size_t alignment) = 0;
    virtual void deallocate(void* data, std::size_t bytes, std::size_t alignment) noexcept = 0;

    [[nodiscard]] virtual std::string name() const = 0;
    [[nodiscard]] virtual MemoryKind kind() const noexcept { return MemoryKind::host; }
    [[nodiscard]] virtual int device_id() const noexcept { return -1; }
    [[nodiscard]] virtual bool host_accessible() const noexcept { return true; }

    /// Sets bytes to zero. The default writes them from the host.
    virtual void zero(void* data, std::size_t bytes) noexcept;
    /// Copies bytes within this memory, or between it and the host's. The default copies on the host.
    virtual void copy(void* to, const void* from, std::size_t bytes);
};

struct HostOptions {
    bool huge_pages = true;  // advise huge pages (2 MiB), where the system has them
    int numa_node = -1;      // place pages on this node; -1 leaves it to the system
};

struct SimulatedOptions {
    std::size_t capacity = static_cast<std::size_t>(-1);  // fails beyond this many bytes
};

class Memory {
public:
    /// Ordinary memory of this process. Throws InvalidArgument for a node that does not exist.
    static Memory host(HostOptions options = {});
    /// Page-locked host memory: devices copy from and to it at full speed, while the host goes on.
    static Memory pinned(int device = 0);
    /// Memory of a CUDA device. These three throw Unavailable where there is none, saying why, and
    /// InvalidArgument for a device number out of range.
    static Memory device(int device = 0);
    /// Memory that host and devices share; pages travel to who touches them.
    static Memory managed(int device = 0);
    /// One of these four. Throws InvalidArgument for what is no kind.
    static Memory of(MemoryKind kind, int device = 0);
    /// Any host resource; it must outlive every pool on it.
    static Memory from(std::pmr::memory_resource& resource);
    /// Hands out addresses and owns no bytes: for tests, replay and planning.
    static Memory simulated(SimulatedOptions options = {});
    /// Your own. Throws InvalidArgument if `source` is null.
    explicit Memory(std::shared_ptr<MemorySource> source);

    [[nodiscard]] MemoryKind kind() const noexcept { return source_->kind(); }
    [[nodiscard]] int device_id() const noexcept { return source_->device_id(); }
    [[nodiscard]] std::string name() const { return source_->name(); }
    [[nodiscard]] bool host_accessible() const noexcept { return source_->host_accessible(); }
    [[nodiscard]] const std::shared_ptr<MemorySource>& source() const noexcept { return source_; }

    friend bool operator==(const Memory&, const Memory&) = default;

private:
    std::shared_ptr<MemorySource> source_;
};

/// Whether there is a CUDA driver with a device.
bool cuda_available() noexcept;

/// Returns how many bytes this process may use: its cgroup's limit (v1 or v2), else the machine's.
std::size_t process_memory_limit();

/// Returns what a pool keeps idle at most unless told otherwise: CISTERN_MAX_IDLE_BYTES if it is an
/// unsigned number, else half of process_memory_limit().
std::size_t default_max_idle_bytes();

}  // namespace cistern
