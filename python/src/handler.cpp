// What NumPy calls. Large pieces of work (zeroing) let other Python threads run.

#include "handler.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "gil.hpp"
#include "interop/loans.hpp"

namespace cistern::python {

namespace {

constexpr const char* capsule_name = "mem_handler";  // NumPy asks for this one
constexpr const char* handler_name = "cistern";

constinit PyDataMemAllocator numpy_allocator{};  // NumPy's own; read when the module is loaded

void* mark(void* block, std::size_t bytes) noexcept {
    if (block == nullptr) return nullptr;
    void* const data = static_cast<std::byte*>(block) + sizeof(Tag);
    tag_of(data) = {bytes, owned_by_numpy};
    return data;
}

// Freed blocks of up to a kibibyte, a few of each size, in steps of a tag's size: a second level of
// NumPy's allocator that costs less than to go through it. Protected by the GIL, as NumPy's cache is.
struct FreeBlocks {
    static constexpr std::size_t sizes = 1 + (1024 + sizeof(Tag)) / sizeof(Tag);
    static constexpr std::size_t most = 7;  // with the count, one cache line
    std::size_t count;
    void* blocks[most];
};
constinit FreeBlocks free_blocks[FreeBlocks::sizes]{};

constexpr std::size_t with_tag(std::size_t bytes) noexcept {
    return (bytes + 2 * sizeof(Tag) - 1) / sizeof(Tag) * sizeof(Tag);
}

void* allocate_small(std::size_t bytes) noexcept {
    const std::size_t all = with_tag(bytes);
    if (all / sizeof(Tag) < FreeBlocks::sizes) [[likely]] {
        FreeBlocks& free = free_blocks[all / sizeof(Tag)];
        if (free.count != 0) [[likely]] {
            return mark(free.blocks[--free.count], all);
        }
    }
    return mark(numpy_allocator.malloc(numpy_allocator.ctx, all), all);
}

void* allocate_small_zeroed(std::size_t bytes) noexcept {
    const std::size_t all = with_tag(bytes);
    if (all / sizeof(Tag) >= FreeBlocks::sizes) {
        return mark(numpy_allocator.calloc(numpy_allocator.ctx, 1, all), all);
    }
    void* const data = allocate_small(bytes);
    if (data != nullptr) std::memset(data, 0, bytes);
    return data;
}

void free_small(void* data) noexcept {
    Tag& tag = tag_of(data);
    if (tag.bytes / sizeof(Tag) < FreeBlocks::sizes) [[likely]] {
        FreeBlocks& free = free_blocks[tag.bytes / sizeof(Tag)];
        if (free.count != FreeBlocks::most) [[likely]] {
            free.blocks[free.count++] = &tag;
            return;
        }
    }
    numpy_allocator.free(numpy_allocator.ctx, &tag, tag.bytes);
}

bool pooled(void* data) noexcept {
    const std::size_t owner = tag_of(data).owner;
    if (owner == owned_by_pool) return true;
    if (owner == owned_by_numpy) return false;
    std::fputs("cistern: the bytes in front of an array were overwritten\n", stderr);
    std::abort();
}

// A pool that keeps no more returns the pages to the system. Apart, so that it costs the others nothing.
[[gnu::noinline]] void give_back_much(void* data) noexcept {
    const WithoutGil without(PyGILState_Check() != 0);
    Handler::give_back(data);
}

void destroy(PyObject* capsule) noexcept { delete &Handler::of(capsule); }

}  // namespace

void import_allocator() noexcept {
    numpy_allocator = static_cast<const PyDataMem_Handler*>(
                          PyCapsule_GetPointer(PyDataMem_DefaultHandler, capsule_name))
                          ->allocator;
}

Handler::Handler(Pool pool, std::size_t min_bytes)
    : numpy_{}, pool_(std::move(pool)), min_bytes_(min_bytes) {
    const PoolOptions options = pool_.options();
    header_bytes_ = std::max(options.alignment, least_header);
    separate_types_ = options.separate_types;
    std::strncpy(numpy_.name, handler_name, sizeof numpy_.name - 1);
    numpy_.version = 1;
    numpy_.allocator = {this, &allocate, &allocate_zeroed, &reallocate, &release};
}

PyObject* Handler::make(const Pool& pool, std::size_t min_bytes) {
    auto handler = std::make_unique<Handler>(pool, min_bytes);
    PyObject* const capsule = PyCapsule_New(&handler->numpy_, capsule_name, &destroy);
    if (capsule != nullptr) handler.release();
    return capsule;
}

Handler& Handler::of(PyObject* capsule) noexcept {
    auto* const numpy =
        static_cast<PyDataMem_Handler*>(PyCapsule_GetPointer(capsule, capsule_name));
    return *static_cast<Handler*>(numpy->allocator.ctx);
}

bool Handler::ours(PyObject* capsule) noexcept {
    if (capsule == nullptr || PyCapsule_IsValid(capsule, capsule_name) == 0) return false;
    auto* const numpy =
        static_cast<PyDataMem_Handler*>(PyCapsule_GetPointer(capsule, capsule_name));
    return numpy->allocator.free == &Handler::release;
}

void* Handler::lend_zeroed(std::size_t bytes) {
    if (separate_types_) return lend_typed(bytes, 0, true);
    return place(pool_.acquire_zeroed(bytes + header_bytes_));
}

void* Handler::lend_typed(std::size_t bytes, std::size_t type, bool zeroed) {
    void* const data = place(detail::Interop::acquire(pool_, bytes + header_bytes_, type));
    if (zeroed) std::memset(data, 0, bytes);
    return data;
}

void* Handler::grow(void* data, std::size_t bytes) {
    Buffer buffer(std::move(handle_of(data)));
    try {
        pool_.grow(buffer, bytes + header_bytes_);
    } catch (...) {
        new (&handle_of(data)) Buffer(std::move(buffer));
        throw;
    }
    return place(std::move(buffer));
}

void* Handler::allocate(void* context, std::size_t bytes) noexcept {
    auto& handler = *static_cast<Handler*>(context);
    if (bytes < handler.min_bytes_) return allocate_small(bytes);
    try {
        return handler.lend(bytes);
    } catch (...) {
        return nullptr;  // NumPy raises MemoryError
    }
}

void* Handler::allocate_zeroed(void* context, std::size_t count, std::size_t bytes) noexcept {
    auto& handler = *static_cast<Handler*>(context);
    std::size_t all = 0;
    if (__builtin_mul_overflow(count, bytes, &all)) return nullptr;
    if (all < handler.min_bytes_) return allocate_small_zeroed(all);
    try {
        const WithoutGil without(all >= much_to_zero && PyGILState_Check() != 0);
        return handler.lend_zeroed(all);
    } catch (...) {
        return nullptr;
    }
}

void* Handler::reallocate(void* context, void* data, std::size_t bytes) noexcept {
    if (data == nullptr) return allocate(context, bytes);
    auto& handler = *static_cast<Handler*>(context);
    std::size_t old_bytes = 0;
    if (pooled(data)) {
        const Buffer& buffer = handle_of(data);
        old_bytes = buffer.size() - handler.header_bytes_;
        // One that shrinks to less than half moves, so that it does not hold on to the rest.
        if (bytes >= old_bytes / 2) {
            if (bytes <= old_bytes) return data;
            try {
                return handler.grow(data, bytes);
            } catch (...) {
                return nullptr;
            }
        }
    } else {
        old_bytes = tag_of(data).bytes - sizeof(Tag);
        if (bytes < handler.min_bytes_) {
            const std::size_t all = with_tag(bytes);
            return mark(numpy_allocator.realloc(numpy_allocator.ctx, &tag_of(data), all), all);
        }
    }
    void* const moved = allocate(context, bytes);
    if (moved == nullptr) return nullptr;
    std::memcpy(moved, data, std::min(old_bytes, bytes));
    if (pooled(data)) {
        give_back(data);  // with the GIL: the array still shows the old bytes to other threads
    } else {
        free_small(data);
    }
    return moved;
}

void Handler::release(void* /*context*/, void* data, std::size_t /*bytes*/) noexcept {
    if (data == nullptr) return;
    if (!pooled(data)) {
        free_small(data);
    } else if (handle_of(data).size() < much_to_give_back) {
        give_back(data);
    } else {
        give_back_much(data);
    }
}

}  // namespace cistern::python
