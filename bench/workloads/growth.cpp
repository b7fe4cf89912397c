// On pages of 4 KiB, so that every page that comes anew is one fault.

#include "growth.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "cistern/keyed.hpp"
#include "meter.hpp"

namespace cistern::workloads {

namespace {

constexpr std::size_t page = 4096;

void write_pages(std::byte* data, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += page) data[at] = std::byte{1};
}

struct Cost {
    std::uint64_t page_faults;
    double milliseconds;
};

/// Measures a function that returns the larger buffer, and the writing of all of it.
template <class Grow>
Cost cost_of(std::size_t bytes, Grow&& grow) {
    const std::uint64_t faults = page_faults();
    const auto begin = std::chrono::steady_clock::now();
    write_pages(grow(), bytes);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    return {page_faults() - faults, took.count()};
}

Cost on_cistern(std::size_t bytes, std::size_t more, bool neighbour) {
    KeyedPool pool{Pool(Memory::host({.huge_pages = false}), presets::keyed())};
    const auto take = [&](const char* key, std::size_t size) {
        return pool.get<std::byte>(key, size).data();
    };
    write_pages(take("coeff", bytes), bytes);
    if (neighbour) write_pages(take("E_tilda_lm", page), page);
    return cost_of(more, [&] { return take("coeff", more); });
}

/// Another array, as NumPy's without huge pages; then the old one goes.
Cost by_the_seed(std::size_t bytes, std::size_t more) {
    const auto small_pages = [](std::size_t size) {
        const auto unmap = [size](void* data) { munmap(data, size); };
        void* const data =
            mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) throw std::bad_alloc();
        madvise(data, size, MADV_NOHUGEPAGE);
        return std::unique_ptr<void, decltype(unmap)>(data, unmap);
    };
    auto coeff = small_pages(bytes);
    write_pages(static_cast<std::byte*>(coeff.get()), bytes);
    auto larger = small_pages(more);
    return cost_of(more, [&] {
        coeff.reset();
        return static_cast<std::byte*>(larger.get());
    });
}

void print_row(const char* name, const Cost& cost) {
    fmt::print("{:<34}{:>12}{:>9.1f} ms\n", name, cost.page_faults, cost.milliseconds);
}

}  // namespace

void print_growth(std::size_t bytes) {
    bytes = bytes / page * page;
    const std::size_t more = (bytes + bytes / 10) / page * page;
    fmt::print("A key of {} pages grows by {}, and all are written\n{:<34}{:>12}{:>12}\n",
               bytes / page, (more - bytes) / page, "", "page faults", "time");
    print_row("Cistern, room behind it", on_cistern(bytes, more, false));
    print_row("Cistern, another key behind it", on_cistern(bytes, more, true));
    print_row("seed's rule", by_the_seed(bytes, more));
}

}  // namespace cistern::workloads
