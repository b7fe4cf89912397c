#pragma once
// boost::pool: blocks of one size, one thread.

#include <boost/pool/pool.hpp>
#include <cstddef>
#include <new>
#include <utility>

namespace bench {

class BoostLoan {
public:
    BoostLoan(boost::pool<>& pool, void* data) : pool_(&pool), data_(data) {}
    BoostLoan(BoostLoan&& other) noexcept
        : pool_(other.pool_), data_(std::exchange(other.data_, nullptr)) {}
    BoostLoan& operator=(BoostLoan&&) = delete;
    ~BoostLoan() {
        if (data_ != nullptr) pool_->free(data_);
    }
    [[nodiscard]] void* data() const { return data_; }

private:
    boost::pool<>* pool_;
    void* data_;
};

class BoostPool {
public:
    static constexpr bool any_size = false;
    static constexpr bool any_thread = false;

    // One block at a time: the default of 32 would ask for 32 GiB at 1 GiB.
    explicit BoostPool(std::size_t bytes) : pool_(bytes, 1, 1) {}

    [[gnu::always_inline]] BoostLoan acquire(std::size_t /*bytes*/) {
        void* const data = pool_.malloc();
        if (data == nullptr) [[unlikely]]
            throw std::bad_alloc();
        return {pool_, data};
    }

private:
    boost::pool<> pool_;
};

}  // namespace bench
