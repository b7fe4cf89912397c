// Memory without bytes: addresses far from anything mapped, and a count of what is committed. Behaves
// as host memory does, moves included, so that replaying a trace on it tells what a host would hold.

#include <atomic>
#include <bit>
#include <cstdint>

#include "base/size_class.hpp"
#include "memory/sparse.hpp"

namespace cistern {

namespace {

class SimulatedSource final : public SparseSource {
public:
    explicit SimulatedSource(SimulatedOptions options) : capacity_(options.capacity) {}

    [[nodiscard]] std::string name() const override { return "simulated"; }
    [[nodiscard]] bool host_accessible() const noexcept override { return false; }
    void zero(void*, std::size_t) noexcept override {}
    void copy(void*, const void*, std::size_t) override {}

    void* allocate(std::size_t bytes, std::size_t) override {
        if (!commit(nullptr, bytes)) return nullptr;
        void* const data = reserve(bytes);
        if (data == nullptr) decommit(nullptr, bytes, nullptr, 0);
        return data;
    }
    void deallocate(void* data, std::size_t bytes, std::size_t) noexcept override {
        decommit(data, bytes, nullptr, 0);
    }

    [[nodiscard]] std::size_t range_bytes(std::size_t bytes) const noexcept override {
        constexpr std::size_t usual = std::size_t{1} << 44;
        return bytes <= usual / 4 ? usual : bytes;
    }
    void* reserve(std::size_t bytes) override {
        if (bytes > largest_range) return nullptr;
        // Relaxed: only the number itself is shared.
        const std::uintptr_t at =
            next_.fetch_add(round_up(bytes, move_step()), std::memory_order_relaxed);
        return reinterpret_cast<void*>(at);  // NOLINT(performance-no-int-to-ptr)
    }
    void unreserve(void*, std::size_t) noexcept override {}

    [[nodiscard]] std::size_t page() const noexcept override { return 4 << 10; }
    [[nodiscard]] std::size_t move_step() const noexcept override { return 2 << 20; }
    [[nodiscard]] std::size_t least_move() const noexcept override { return 16 << 10; }

    [[nodiscard]] bool commit(void*, std::size_t bytes) noexcept override {
        // Relaxed: the sum alone decides; no other data is published through it.
        std::size_t used = used_.load(std::memory_order_relaxed);
        do {
            if (bytes > capacity_ - used) return false;
        } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
        return true;
    }
    void decommit(void*, std::size_t bytes, void*, std::size_t) noexcept override {
        used_.fetch_sub(bytes, std::memory_order_relaxed);
    }
    bool move(void*, void*, std::size_t) noexcept override { return true; }

private:
    static constexpr std::size_t largest_range = std::size_t{1} << 50;

    std::size_t capacity_;
    std::atomic<std::size_t> used_{0};
    std::atomic<std::uintptr_t> next_{std::uintptr_t{1} << 56};
};

}  // namespace

Memory Memory::simulated(SimulatedOptions options) {
    return Memory(std::make_shared<SimulatedSource>(options));
}

}  // namespace cistern
