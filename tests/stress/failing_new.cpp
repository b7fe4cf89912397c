// Replaces the global operator new of this executable; ordinary unless a FailingNew lives.

#include "support/failing_new.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

namespace cistern::test {

namespace {

constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
thread_local std::uint64_t until_failure = never;
thread_local bool failed = false;

bool refuses() noexcept {
    if (until_failure == never) return false;
    if (until_failure-- != 0) return false;
    until_failure = never;
    failed = true;
    return true;
}

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    if (refuses()) return nullptr;
    if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes != 0 ? bytes : 1);
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
    if (void* const data = allocate(bytes, alignment)) return data;
    throw std::bad_alloc();
}

}  // namespace

FailingNew::FailingNew(std::uint64_t n) noexcept {
    failed = false;
    until_failure = n;
}
FailingNew::~FailingNew() { until_failure = never; }
bool FailingNew::has_failed() noexcept { return failed; }

}  // namespace cistern::test

using cistern::test::allocate;
using cistern::test::allocate_or_throw;

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }
