#pragma once
// A vector over pooled memory: grows through its pool, keeps its elements in one buffer.
//
//     Vector<double> residuals = pool.vector<double>(1000);
//     residuals.push_back(norm);
//
// Move-only; elements are trivially copyable. One thread at a time. The host writes the elements: on memory that it
// cannot reach, a vector is no more than its bytes.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "cistern/pool.hpp"

namespace [[gnu::visibility("default")]] cistern {

template <Element T>
class Vector {
public:
    using value_type = T;

    /// Throws OutOfMemory, or InvalidArgument if the bytes cannot be counted.
    explicit Vector(const Pool& pool, std::size_t capacity = 0)
        : pool_(pool), array_(pool_.array<T>(capacity)) {}
    Vector(Vector&& other) noexcept
        : pool_(other.pool_),
          array_(std::move(other.array_)),
          size_(std::exchange(other.size_, 0)) {}
    Vector& operator=(Vector&& other) noexcept {
        pool_ = other.pool_;
        array_ = std::move(other.array_);
        size_ = std::exchange(other.size_, 0);
        return *this;
    }
    ~Vector() = default;

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::size_t capacity() const noexcept { return array_.size(); }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] T* data() const noexcept { return array_.data(); }
    [[nodiscard]] T* begin() const noexcept { return data(); }
    [[nodiscard]] T* end() const noexcept { return data() + size_; }
    [[nodiscard]] std::span<T> span() const noexcept { return {data(), size_}; }
    [[nodiscard]] T& operator[](std::size_t index) const noexcept { return data()[index]; }
    /// Returns the element; throws InvalidArgument if there is none.
    [[nodiscard]] T& at(std::size_t index) const {
        if (index >= size_) detail::throw_index_out_of_range(index, size_);
        return data()[index];
    }

    void push_back(T value) {
        if (size_ == capacity()) [[unlikely]]
            grow(size_ + 1);
        data()[size_++] = value;
    }
    /// Adds the values at the end; they may be elements of this vector.
    void append(std::span<const T> values) {
        if (values.size() > capacity() - size_) {
            const Array<T, 1> old = grow(size_ + values.size());
            copy_to_end(values);  // `old` still holds them if they were ours
            return;
        }
        copy_to_end(values);
    }
    void reserve(std::size_t capacity) {
        if (capacity > this->capacity()) grow(capacity);
    }
    void clear() noexcept { size_ = 0; }
    /// Hands over the buffer and leaves the vector empty, without capacity.
    [[nodiscard]] Buffer take_buffer() noexcept {
        size_ = 0;
        return array_.take_buffer();
    }
    [[nodiscard]] const Pool& pool() const noexcept { return pool_; }

private:
    void copy_to_end(std::span<const T> values) noexcept {
        if (!values.empty()) std::memcpy(data() + size_, values.data(), values.size_bytes());
        size_ += values.size();
    }
    /// Moves to a buffer with room for at least `needed`, half as many again as before. Returns the
    /// old one. If it throws, nothing has changed.
    Array<T, 1> grow(std::size_t needed) {
        Array<T, 1> larger = pool_.array<T>(std::max({needed, size_ + size_ / 2, std::size_t{8}}));
        if (size_ != 0) std::memcpy(larger.data(), data(), size_ * sizeof(T));
        std::swap(array_, larger);
        return larger;
    }

    template <Element U>
    friend void give_to(Pool& pool, Vector<U>&& vector);

    Pool pool_;
    Array<T, 1> array_;
    std::size_t size_ = 0;
};

/// Gives a vector's bytes to a pool, which need not be its own: that one then lends them, and they
/// return to their own when it lets them go. Leaves the vector empty. Throws InvalidArgument, changing
/// nothing, if the pool cannot adopt them.
template <Element T>
void give_to(Pool& pool, Vector<T>&& vector) {
    if (pool == vector.pool()) {
        (void)vector.take_buffer();
        return;
    }
    const std::size_t size = vector.size(), capacity = vector.capacity();
    const auto kept = std::make_shared<Buffer>(vector.take_buffer());
    const std::size_t grain = pool.options().alignment;
    // What was asked for, as the pool counts it: the block may be a little longer.
    const std::size_t whole = (kept->size() + grain - 1) / grain * grain;
    const std::size_t bytes = whole <= kept->capacity() ? whole : whole - grain;
    if (bytes == 0) return;
    try {
        pool.adopt(kept->data(), bytes, [kept](void*) { kept->release(); });
    } catch (...) {
        vector.array_ = Array<T, 1>(std::move(*kept), Shape<T, 1>(capacity));
        vector.size_ = size;
        throw;
    }
}

template <Element T>
Vector<T> Pool::vector(std::size_t capacity) {
    return Vector<T>(*this, capacity);
}

}  // namespace cistern
