#pragma once
// malloc and free of whichever allocator this process was started with.

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace bench {

class MallocLoan {
public:
    explicit MallocLoan(void* data) : data_(data) {}
    MallocLoan(MallocLoan&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
    MallocLoan& operator=(MallocLoan&& other) noexcept {
        std::swap(data_, other.data_);
        return *this;
    }
    ~MallocLoan() {
        if (data_ != nullptr) std::free(data_);
    }
    [[nodiscard]] void* data() const { return data_; }

private:
    void* data_;
};

class Malloc {
public:
    static constexpr bool any_size = true;
    static constexpr bool any_thread = true;

    explicit Malloc(std::size_t /*bytes*/) {}

    [[gnu::always_inline]] MallocLoan acquire(std::size_t bytes) {
        return checked(std::malloc(bytes));
    }
    MallocLoan acquire_zeroed(std::size_t bytes) { return checked(std::calloc(bytes, 1)); }

private:
    static MallocLoan checked(void* data) {
        if (data == nullptr) [[unlikely]]
            throw std::bad_alloc();
        return MallocLoan(data);
    }
};

}  // namespace bench
