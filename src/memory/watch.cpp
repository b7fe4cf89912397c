#include "memory/watch.hpp"

#ifdef CISTERN_VALGRIND
#include <valgrind/memcheck.h>
#else
#define RUNNING_ON_VALGRIND 0
#define VALGRIND_MAKE_MEM_NOACCESS(data, bytes) static_cast<void>(0)
#define VALGRIND_MAKE_MEM_UNDEFINED(data, bytes) static_cast<void>(0)
#define VALGRIND_MAKE_MEM_DEFINED(data, bytes) static_cast<void>(0)
#endif

// Weak: null unless the program was linked with the sanitizer.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): their names, not ours
extern "C" {
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* data, std::size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* data, std::size_t bytes);
[[gnu::weak]] void __msan_allocated_memory(const volatile void* data, std::size_t bytes);
[[gnu::weak]] void __msan_unpoison(const volatile void* data, std::size_t bytes);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace cistern {

bool under_valgrind() noexcept {
    static const bool running = RUNNING_ON_VALGRIND != 0;
    return running;
}

bool memory_is_watched() noexcept {
    return __asan_poison_memory_region != nullptr || __msan_allocated_memory != nullptr ||
           under_valgrind();
}

void mark_idle(void* data, std::size_t bytes) noexcept {
    if (__asan_poison_memory_region != nullptr) __asan_poison_memory_region(data, bytes);
    if (__msan_allocated_memory != nullptr) __msan_allocated_memory(data, bytes);
    if (under_valgrind()) VALGRIND_MAKE_MEM_NOACCESS(data, bytes);
}

void mark_lent(void* data, std::size_t bytes) noexcept {
    if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(data, bytes);
    if (__msan_allocated_memory != nullptr) __msan_allocated_memory(data, bytes);
    if (under_valgrind()) VALGRIND_MAKE_MEM_UNDEFINED(data, bytes);
}

void mark_defined(void* data, std::size_t bytes) noexcept {
    if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(data, bytes);
    if (__msan_unpoison != nullptr) __msan_unpoison(data, bytes);
    if (under_valgrind()) VALGRIND_MAKE_MEM_DEFINED(data, bytes);
}

}  // namespace cistern
