// Host memory: one private anonymous mapping per range, readable and writable from the start and not
// reserved against the system's commit limit. Pages come with the first touch and are zero then, so
// commit costs nothing, and refuses only what the machine could never back; decommit drops whole pages;
// move is mremap, which carries page table entries
// (whole huge pages where both sides are aligned) and leaves the source mapped and empty.

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/size_class.hpp"
#include "cistern/error.hpp"
#include "memory/limits.hpp"
#include "memory/sparse.hpp"
#include "memory/watch.hpp"

namespace cistern {

namespace {

constexpr std::size_t huge_page = 2 << 20;
constexpr std::size_t most_nodes = 1024;  // of NUMA, as the kernel has at most

/// What the machine has, swap included: as the system itself, more is never lent at once.
std::size_t machine_bytes() noexcept {
    static const std::size_t bytes = [] {
        struct sysinfo info {};
        if (sysinfo(&info) != 0) return SIZE_MAX;
        return static_cast<std::size_t>(info.totalram + info.totalswap) * info.mem_unit;
    }();
    return bytes;
}

class HostSource final : public SparseSource {
public:
    explicit HostSource(HostOptions options)
        : options_(options), page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {}

    [[nodiscard]] std::string name() const override {
        return options_.numa_node < 0 ? "host" : "host:" + std::to_string(options_.numa_node);
    }

    // Whole blocks, for callers that want no range; the arena never asks for them.
    void* allocate(std::size_t bytes, std::size_t /*alignment: at most a huge page*/) override {
        return bytes > PTRDIFF_MAX - huge_page ? nullptr : reserve(round_up(bytes, page_));
    }
    void deallocate(void* data, std::size_t bytes, std::size_t) noexcept override {
        unreserve(data, round_up(bytes, page_));
    }

    [[nodiscard]] std::size_t range_bytes(std::size_t bytes) const noexcept override {
        // Addresses are free; four times the machine leaves room for holes that were moved away.
        const std::size_t usual =
            under_valgrind() ? std::size_t{1} << 30 : std::bit_ceil(process_memory_limit()) * 4;
        return bytes <= usual / 4 ? usual : bytes > PTRDIFF_MAX / 2 ? bytes : bytes * 2;
    }
    void* reserve(std::size_t bytes) override {
        if (bytes > PTRDIFF_MAX - huge_page) return nullptr;
        // Over-reserve by one huge page, then cut both ends, for the alignment.
        void* const mapping = mmap(nullptr, bytes + huge_page, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapping == MAP_FAILED) return nullptr;
        auto* const begin = static_cast<std::byte*>(mapping);
        const std::size_t lead = -reinterpret_cast<std::uintptr_t>(begin) & (huge_page - 1);
        const std::size_t used = round_up(bytes, page_);
        if (lead != 0) munmap(begin, lead);
        if (huge_page - lead + bytes > used) {
            munmap(begin + lead + used, bytes + huge_page - lead - used);
        }
        place(begin + lead, used);
        return begin + lead;
    }
    void unreserve(void* range, std::size_t bytes) noexcept override {
        munmap(range, round_up(bytes, page_));
    }

    [[nodiscard]] std::size_t page() const noexcept override { return page_; }
    [[nodiscard]] std::size_t move_step() const noexcept override { return huge_page; }
    [[nodiscard]] std::size_t least_move() const noexcept override { return 16 << 10; }

    [[nodiscard]] bool could_lend(std::size_t bytes, std::size_t held) const noexcept override {
        return bytes <= held || bytes - held <= machine_bytes();
    }
    [[nodiscard]] std::ptrdiff_t bytes_left() const noexcept override { return host_bytes_left(); }
    /// Pages come when they are touched. A range that outgrows its first huge page gets that one too.
    [[nodiscard]] bool commit(void* data, std::size_t bytes) noexcept override {
        if (bytes > machine_bytes()) return false;
        const std::size_t offset = reinterpret_cast<std::uintptr_t>(data) & (huge_page - 1);
        if (options_.huge_pages && offset + bytes > huge_page) {
            madvise(static_cast<std::byte*>(data) - offset, huge_page, MADV_HUGEPAGE);
        }
        host_bytes_held.fetch_add(bytes, std::memory_order_relaxed);
        return true;
    }
    void decommit(void*, std::size_t bytes, void* pages, std::size_t page_bytes) noexcept override {
        host_bytes_held.fetch_sub(bytes, std::memory_order_relaxed);
        if (page_bytes != 0) madvise(pages, page_bytes, MADV_DONTNEED);
    }
    bool move(void* from, void* to, std::size_t bytes) noexcept override {
        return mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) ==
               to;
    }

private:
    void place(void* range, std::size_t bytes) const noexcept {
        if (!options_.huge_pages) {
            madvise(range, bytes, MADV_NOHUGEPAGE);
        } else if (bytes > huge_page) {  // not the first one: a small pool needs no 2 MiB
            madvise(static_cast<std::byte*>(range) + huge_page, bytes - huge_page, MADV_HUGEPAGE);
        }
        if (options_.numa_node < 0) return;
        const auto node = static_cast<std::size_t>(options_.numa_node);
        constexpr std::size_t bits = 8 * sizeof(unsigned long);
        std::array<unsigned long, most_nodes / bits> mask{};
        mask.at(node / bits) = 1UL << (node % bits);
        // Advice, like the huge pages: where the system refuses, pages come from anywhere.
        syscall(SYS_mbind, range, bytes, MPOL_PREFERRED, mask.data(), 8 * sizeof(mask), 0);
    }

    HostOptions options_;
    std::size_t page_;
};

}  // namespace

Memory Memory::host(HostOptions options) {
    if (options.numa_node != -1 && !std::filesystem::exists("/sys/devices/system/node/node" +
                                                            std::to_string(options.numa_node))) {
        throw InvalidArgument("there is no such NUMA node: " + std::to_string(options.numa_node));
    }
    // One source of each kind for the process, so that pools on it find each other when it runs out. Made
    // without a lock, which a fork might leave locked; never destroyed.
    using Source = std::shared_ptr<MemorySource>;
    static std::array<std::atomic<Source*>, 2 * (most_nodes + 1)> kinds{};
    std::atomic<Source*>& kind = kinds.at(2 * static_cast<std::size_t>(options.numa_node + 1) +
                                          (options.huge_pages ? 1 : 0));
    // Acquire and release: who finds a source finds it made.
    Source* known = kind.load(std::memory_order_acquire);
    if (known == nullptr) {
        auto made = std::make_unique<Source>(std::make_shared<HostSource>(options));
        const bool first = kind.compare_exchange_strong(
            known, made.get(), std::memory_order_acq_rel, std::memory_order_acquire);
        if (first) known = made.release();
    }
    return Memory(*known);
}

}  // namespace cistern
