#pragma once
// Arrays over pooled memory, row-major and contiguous.
//
//     Array<double, 2> u = pool.array<double>(ny, nx);
//     u(j, i) = 1.0;
//     ArrayView<double, 2> view = u;      // borrows; valid while u lives
//
// An Array owns its buffer and is move-only; a view is copied freely. Distinct arrays may be used by
// distinct threads at once.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <utility>
#include <version>

#include "cistern/buffer.hpp"
#include "cistern/shape.hpp"

#if defined(__cpp_lib_mdspan)
#include <mdspan>
#endif

namespace [[gnu::visibility("default")]] cistern {

template <Element T, std::size_t Rank>
class ArrayView {
public:
    using value_type = T;

    ArrayView() noexcept = default;
    ArrayView(T* data, const std::array<std::size_t, Rank>& extents, std::size_t elements) noexcept
        : data_(data), size_(elements), extents_(extents) {}

    [[nodiscard]] T* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] static constexpr std::size_t rank() noexcept { return Rank; }
    [[nodiscard]] const std::array<std::size_t, Rank>& shape() const noexcept { return extents_; }
    [[nodiscard]] std::size_t extent(std::size_t dimension) const noexcept {
        return extents_[dimension];
    }
    [[nodiscard]] std::span<T> span() const noexcept { return {data_, size_}; }
    [[nodiscard]] T* begin() const noexcept { return data_; }
    [[nodiscard]] T* end() const noexcept { return data_ + size_; }

    /// Returns the element at these indices, unchecked.
    template <std::integral... I>
        requires(sizeof...(I) == Rank)
    [[nodiscard]] T& operator()(I... indices) const noexcept {
        std::size_t offset = 0, dimension = 0;
        ((offset = offset * extents_[dimension++] + static_cast<std::size_t>(indices)), ...);
        return data_[offset];
    }
    void fill(const T& value) const { std::fill(begin(), end(), value); }

#if defined(__cpp_lib_mdspan)
    [[nodiscard]] auto mdspan() const noexcept {
        return std::mdspan<T, std::dextents<std::size_t, Rank>>(data_, extents_);
    }
    operator std::mdspan<T, std::dextents<std::size_t, Rank>>() const noexcept { return mdspan(); }
#endif

private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
    std::array<std::size_t, Rank> extents_{};
};

template <Element T, std::size_t Rank>
class Array {
public:
    using value_type = T;

    Array() noexcept = default;
    [[gnu::always_inline]] Array(Buffer buffer, const Shape<T, Rank>& shape) noexcept
        : view_(static_cast<T*>(buffer.data()), shape.extents(), shape.elements()),
          buffer_(std::move(buffer)) {}
    Array(Array&& other) noexcept
        : view_(std::exchange(other.view_, {})), buffer_(std::move(other.buffer_)) {}
    Array& operator=(Array&& other) noexcept {
        view_ = std::exchange(other.view_, {});
        buffer_ = std::move(other.buffer_);
        return *this;
    }
    ~Array() = default;

    [[nodiscard]] T* data() const noexcept { return view_.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return view_.size(); }
    [[nodiscard]] std::size_t size_bytes() const noexcept { return view_.size_bytes(); }
    [[nodiscard]] bool empty() const noexcept { return view_.empty(); }
    [[nodiscard]] static constexpr std::size_t rank() noexcept { return Rank; }
    [[nodiscard]] const std::array<std::size_t, Rank>& shape() const noexcept {
        return view_.shape();
    }
    [[nodiscard]] std::size_t extent(std::size_t dimension) const noexcept {
        return view_.extent(dimension);
    }
    [[nodiscard]] std::span<T> span() const noexcept { return view_.span(); }
    [[nodiscard]] T* begin() const noexcept { return view_.begin(); }
    [[nodiscard]] T* end() const noexcept { return view_.end(); }

    template <std::integral... I>
        requires(sizeof...(I) == Rank)
    [[nodiscard]] T& operator()(I... indices) const noexcept { return view_(indices...); }
    void fill(const T& value) const { view_.fill(value); }

    [[nodiscard]] const ArrayView<T, Rank>& view() const noexcept { return view_; }
    operator ArrayView<T, Rank>() const noexcept { return view_; }
#if defined(__cpp_lib_mdspan)
    [[nodiscard]] auto mdspan() const noexcept { return view_.mdspan(); }
    operator std::mdspan<T, std::dextents<std::size_t, Rank>>() const noexcept { return mdspan(); }
#endif
    [[nodiscard]] const Buffer& buffer() const noexcept { return buffer_; }
    /// Hands over the buffer and leaves the array empty.
    [[nodiscard]] Buffer take_buffer() noexcept {
        view_ = {};
        return std::move(buffer_);
    }

private:
    ArrayView<T, Rank> view_;
    Buffer buffer_;
};

}  // namespace cistern
