#pragma once
// Memories that count what they lend and fail when told to.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <new>
#include <string>
#include <utility>

#include "cistern/memory.hpp"

namespace cistern::test {

/// What a memory has handed out and not got back.
struct Outstanding {
    std::atomic<std::size_t> blocks{0}, bytes{0};
    std::atomic<std::uint64_t> allocations{0}, mistakes{0};

    void lend(std::size_t size) {
        ++blocks;
        ++allocations;
        bytes += size;
    }
    void take_back(std::size_t size) {
        if (blocks.fetch_sub(1) == 0 || bytes.fetch_sub(size) < size) ++mistakes;
    }
};

/// More than any test needs: what a sanitizer's allocator would end the process for.
inline constexpr std::size_t absurd_bytes = std::size_t{1} << 40;

/// A user's own memory: plain aligned blocks, every n-th request refused when asked for.
class FailingSource : public MemorySource {
public:
    static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

    void* allocate(std::size_t bytes, std::size_t alignment) override {
        if (requests_.fetch_add(1) >= fail_from_.load() || is_over_capacity(bytes)) return nullptr;
        void* const data = ::operator new (bytes, std::align_val_t{alignment}, std::nothrow);
        if (data != nullptr) outstanding_.lend(bytes);
        return data;
    }
    void deallocate(void* data, std::size_t bytes, std::size_t alignment) noexcept override {
        outstanding_.take_back(bytes);
        ::operator delete (data, std::align_val_t{alignment});
    }
    [[nodiscard]] std::string name() const override { return "mine"; }

    /// Fails every request from now on, after `allowed` more.
    void fail_after(std::uint64_t allowed) { fail_from_ = requests_.load() + allowed; }
    void stop_failing() { fail_from_ = never; }
    void set_capacity(std::size_t bytes) { capacity_ = bytes; }

    [[nodiscard]] std::uint64_t requests() const { return requests_.load(); }
    [[nodiscard]] const Outstanding& outstanding() const { return outstanding_; }

private:
    [[nodiscard]] bool is_over_capacity(std::size_t bytes) const {
        return bytes > absurd_bytes || outstanding_.bytes.load() + bytes > capacity_.load();
    }

    std::atomic<std::uint64_t> requests_{0}, fail_from_{never};
    std::atomic<std::size_t> capacity_{std::numeric_limits<std::size_t>::max()};
    Outstanding outstanding_;
};

/// The global heap as a pmr resource that counts.
class CountingResource : public std::pmr::memory_resource {
public:
    [[nodiscard]] const Outstanding& outstanding() const { return outstanding_; }

private:
    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
        if (bytes > absurd_bytes) throw std::bad_alloc();
        void* const data = std::pmr::new_delete_resource()->allocate(bytes, alignment);
        outstanding_.lend(bytes);
        return data;
    }
    void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override {
        outstanding_.take_back(bytes);
        std::pmr::new_delete_resource()->deallocate(data, bytes, alignment);
    }
    [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
        return this == &other;
    }

    Outstanding outstanding_;
};

}  // namespace cistern::test
