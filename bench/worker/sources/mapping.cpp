// Maps 2 MiB more than asked for, so that an aligned part of the right size lies inside.

#include "sources/mapping.hpp"

#include <sys/mman.h>

#include <memory>
#include <new>
#include <utility>

namespace bench {

namespace {
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
}

HugeMapping::HugeMapping(std::size_t bytes) : mapped_bytes_(bytes + huge_page_bytes) {
    base_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    data_ = base_;
    std::size_t room = mapped_bytes_;
    std::align(huge_page_bytes, bytes, data_, room);
    madvise(data_, room, MADV_HUGEPAGE);
}

HugeMapping::HugeMapping(HugeMapping&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      mapped_bytes_(other.mapped_bytes_),
      data_(other.data_) {}

HugeMapping::~HugeMapping() {
    if (base_ != nullptr) munmap(base_, mapped_bytes_);
}

}  // namespace bench
