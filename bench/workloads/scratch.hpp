#pragma once
// Zeroed doubles straight from the system, for what all stores have alike: the state of a solver and
// the inputs of a network. They leave nothing behind in malloc, and huge pages spare no store's time.

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>

namespace cistern::workloads {

class Scratch {
public:
    explicit Scratch(std::size_t elements)
        : elements_(elements),
          data_(
              mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        if (data_ == MAP_FAILED) throw std::bad_alloc();
        madvise(data_, bytes(), MADV_HUGEPAGE);
        std::memset(data_, 0, bytes());
    }
    ~Scratch() { munmap(data_, bytes()); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    [[nodiscard]] double* data() const noexcept { return static_cast<double*>(data_); }
    [[nodiscard]] std::size_t size() const noexcept { return elements_; }

private:
    [[nodiscard]] std::size_t bytes() const noexcept { return elements_ * sizeof(double); }

    std::size_t elements_;
    void* data_;
};

}  // namespace cistern::workloads
