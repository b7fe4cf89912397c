// The C ABI's allocator hooks: loans by address.

#include <string>

#include "cistern/cistern.h"
#include "interop/c_call.hpp"
#include "interop/loans.hpp"

using cistern::detail::call;
using cistern::detail::lend;
using cistern::detail::status_of;
using cistern::detail::visit_pool;

namespace {

constexpr std::size_t block_alignment = 64;

}  // namespace

void* cistern_malloc(cistern_pool pool, size_t bytes) {
    return call([&] { return lend(*visit_pool(pool), bytes, block_alignment, false); });
}

void* cistern_aligned_alloc(cistern_pool pool, size_t alignment, size_t bytes) {
    return call([&] { return lend(*visit_pool(pool), bytes, alignment, false); });
}

void* cistern_calloc(cistern_pool pool, size_t count, size_t bytes) {
    return call([&] {
        std::size_t total = 0;
        const auto visit = visit_pool(pool);
        if (__builtin_mul_overflow(count, bytes, &total)) {
            throw cistern::OutOfMemory(
                "more bytes than can be addressed: " + std::to_string(count) + " x " +
                std::to_string(bytes) + " B");
        }
        return lend(*visit, total, block_alignment, true);
    });
}

void* cistern_realloc(cistern_pool pool, void* data, size_t bytes) {
    return call([&] {
        const auto visit = visit_pool(pool);
        if (data == nullptr) return lend(*visit, bytes, block_alignment, false);
        return cistern::detail::resize(*visit, data, bytes);
    });
}

cistern_status cistern_free(cistern_pool pool, void* data) {
    return status_of([&] {
        const auto visit = visit_pool(pool);
        if (data != nullptr) cistern::detail::take_back(*visit, data);
    });
}

size_t cistern_usable_size(cistern_pool pool, const void* data) {
    return call([&] {
        const auto visit = visit_pool(pool);
        cistern::detail::check_pointer(data, "data");
        return cistern::detail::usable_bytes(*visit, data);
    });
}
