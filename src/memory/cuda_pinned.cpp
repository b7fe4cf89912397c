// Pinned memory: host pages, touched by several threads and registered, ten times as fast as cuMemHostAlloc for the
// first GiB. No copy may span two registrations, so they are seams.

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "cistern/error.hpp"
#include "memory/cuda_source.hpp"
#include "memory/limits.hpp"
#include "memory/watch.hpp"

namespace cistern::cuda {

namespace {

struct Nothing {};

class PinnedSource final : public SegmentedSource<Nothing> {
public:
    explicit PinnedSource(const DeviceContext& on) : SegmentedSource(on, MemoryKind::pinned) {}

    void* allocate(std::size_t bytes, std::size_t) override {
        void* const data = reserve(round_up(bytes, unit));
        if (data == nullptr) return nullptr;
        if (map(data, round_up(bytes, unit), {})) return data;
        unreserve(data, round_up(bytes, unit));
        return nullptr;
    }
    void deallocate(void* data, std::size_t bytes, std::size_t) noexcept override {
        unmap(data, round_up(bytes, unit));
        unreserve(data, round_up(bytes, unit));
    }

    [[nodiscard]] bool could_lend(std::size_t bytes, std::size_t /*held*/) const noexcept override {
        return bytes <= process_memory_limit();
    }
    [[nodiscard]] std::size_t range_bytes(std::size_t bytes) const noexcept override {
        return sparse().range_bytes(bytes);
    }
    void* reserve(std::size_t bytes) override { return sparse().reserve(bytes); }
    void unreserve(void* range, std::size_t bytes) noexcept override {
        sparse().unreserve(range, bytes);
    }
    [[nodiscard]] std::size_t page() const noexcept override { return unit; }
    [[nodiscard]] bool seams() const noexcept override { return true; }
    [[nodiscard]] bool moves() const noexcept override { return false; }

    bool map(void* data, std::size_t bytes, Parts /*moved: none*/) override {
        // Relaxed: the sum alone decides.
        if (pinned_.fetch_add(bytes, std::memory_order_relaxed) + bytes > process_memory_limit()) {
            pinned_.fetch_sub(bytes, std::memory_order_relaxed);
            return false;
        }
        auto* const begin = static_cast<std::byte*>(data);
        madvise(begin, bytes, MADV_HUGEPAGE);
        mark_defined(begin, bytes);  // nobody's until now
        touch(begin, bytes);
        const Entered entered(device());
        Result result = driver().register_host(data, bytes, register_portable);
        if (result == success) {
            try {
                segments().add(begin, bytes, {});
                host_bytes_held.fetch_add(bytes, std::memory_order_relaxed);
                return true;
            } catch (const std::bad_alloc&) {
                driver().unregister_host(data);
                result = error_out_of_memory;
            }
        }
        madvise(begin, bytes, MADV_DONTNEED);
        pinned_.fetch_sub(bytes, std::memory_order_relaxed);
        if (result == error_out_of_memory) return false;
        throw DeviceError(text_of("cannot pin host memory", result));
    }
    std::size_t unmap(void* data, std::size_t bytes) noexcept override {
        const Entered entered(device());
        std::size_t gone = 0;
        segments().remove(static_cast<std::byte*>(data), bytes,
                          [&](std::byte* begin, std::size_t part, Nothing) {
                              driver().unregister_host(begin);
                              madvise(begin, part, MADV_DONTNEED);
                              pinned_.fetch_sub(part, std::memory_order_relaxed);
                              host_bytes_held.fetch_sub(part, std::memory_order_relaxed);
                              gone += part;
                          });
        return gone;
    }

private:
    [[nodiscard]] SparseSource& sparse() const noexcept {
        return static_cast<SparseSource&>(*host_.source());
    }

    /// Has pages come, on several threads where it pays: registering finds them then, and needs not
    /// fetch them one by one.
    static void touch(std::byte* begin, std::size_t bytes) noexcept {
        constexpr std::size_t per_thread = 16 << 20;
        constexpr std::size_t most_threads = 16;
        const std::size_t wanted = std::clamp<std::size_t>(
            bytes / per_thread, 1,
            std::min<std::size_t>(most_threads, std::max(1U, std::thread::hardware_concurrency())));
        const std::size_t part = round_up(bytes / wanted, unit);
        const auto write = [begin, bytes, part](std::size_t first) {
            for (std::size_t at = first; at < std::min(bytes, first + part); at += 4096) {
                // Volatile: every page has to be written to.
                *reinterpret_cast<volatile char*>(begin + at) = 0;
            }
        };
        std::vector<std::thread> threads;
        std::size_t at = part;
        try {
            for (; at < bytes; at += part) threads.emplace_back(write, at);
        } catch (...) {  // fewer threads, then
            for (; at < bytes; at += part) write(at);
        }
        write(0);
        for (std::thread& thread : threads) thread.join();
    }

    Memory host_ = Memory::host();  // for its ranges
    std::atomic<std::size_t> pinned_{0};
};

}  // namespace

std::shared_ptr<MemorySource> make_pinned_source(const DeviceContext& on) {
    return std::make_shared<PinnedSource>(on);
}

}  // namespace cistern::cuda
