#pragma once
// Index ranges as extents: arrays that are indexed from where you like, as grids with ghost cells are.
//
//     with_arrays([&](auto u) { u(-1, 0) = 0.0; }, pool, shape<double>(range(-1, nx + 1), ny));
//
// A range is half-open; one that ends before it begins is empty.

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "cistern/array.hpp"
#include "cistern/shape.hpp"

namespace [[gnu::visibility("default")]] cistern {

struct IndexRange {
    std::ptrdiff_t begin = 0, end = 0;

    /// Returns how many indices there are. Throws InvalidArgument if they cannot be counted.
    [[nodiscard]] constexpr std::ptrdiff_t size() const {
        if (end <= begin) return 0;
        std::ptrdiff_t count = 0;
        if (__builtin_sub_overflow(end, begin, &count)) detail::throw_range_overflow(begin, end);
        return count;
    }
};
[[nodiscard]] constexpr IndexRange range(std::ptrdiff_t begin, std::ptrdiff_t end) noexcept {
    return {begin, end};
}

/// A view whose indices start where its ranges do.
template <Element T, std::size_t Rank>
class RangedView {
public:
    using value_type = T;

    RangedView() noexcept = default;
    RangedView(const ArrayView<T, Rank>& view, const std::array<std::ptrdiff_t, Rank>& origin)
        : view_(view), origin_(origin) {}

    [[nodiscard]] T* data() const noexcept { return view_.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return view_.size(); }
    [[nodiscard]] bool empty() const noexcept { return view_.empty(); }
    [[nodiscard]] static constexpr std::size_t rank() noexcept { return Rank; }
    [[nodiscard]] const std::array<std::size_t, Rank>& shape() const noexcept {
        return view_.shape();
    }
    [[nodiscard]] const std::array<std::ptrdiff_t, Rank>& origin() const noexcept {
        return origin_;
    }
    [[nodiscard]] IndexRange range(std::size_t dimension) const noexcept {
        const std::ptrdiff_t begin = origin_[dimension];
        return {begin, begin + static_cast<std::ptrdiff_t>(view_.extent(dimension))};
    }
    [[nodiscard]] std::span<T> span() const noexcept { return view_.span(); }
    [[nodiscard]] T* begin() const noexcept { return view_.begin(); }
    [[nodiscard]] T* end() const noexcept { return view_.end(); }

    /// Returns the element at these indices, unchecked.
    template <std::integral... I>
        requires(sizeof...(I) == Rank)
    [[nodiscard]] T& operator()(I... indices) const noexcept {
        const std::array<std::ptrdiff_t, Rank> at{static_cast<std::ptrdiff_t>(indices)...};
        return [&]<std::size_t... D>(std::index_sequence<D...>)->T& {
            return view_((at[D] - origin_[D])...);
        }
        (std::make_index_sequence<Rank>{});
    }
    void fill(const T& value) const { view_.fill(value); }
    /// The same elements, indexed from zero.
    [[nodiscard]] const ArrayView<T, Rank>& view() const noexcept { return view_; }

private:
    ArrayView<T, Rank> view_;
    std::array<std::ptrdiff_t, Rank> origin_{};
};

/// A type, extents, and where each index starts.
template <Element T, std::size_t Rank>
class RangedShape {
public:
    using element_type = T;

    template <class... E>
        requires(sizeof...(E) == Rank)
    explicit constexpr RangedShape(E... extents)
        : shape_(count(extents)...), origin_{start(extents)...} {}
    RangedShape(const Shape<T, Rank>& shape, const std::array<std::ptrdiff_t, Rank>& origin)
        : shape_(shape), origin_(origin) {}

    [[nodiscard]] constexpr const Shape<T, Rank>& shape() const noexcept { return shape_; }
    [[nodiscard]] constexpr const std::array<std::ptrdiff_t, Rank>& origin() const noexcept {
        return origin_;
    }

private:
    template <std::integral E>
    static constexpr E count(E extent) noexcept {
        return extent;
    }
    static constexpr std::ptrdiff_t count(IndexRange range) { return range.size(); }
    template <std::integral E>
    static constexpr std::ptrdiff_t start(E) noexcept {
        return 0;
    }
    static constexpr std::ptrdiff_t start(IndexRange range) noexcept { return range.begin; }

    Shape<T, Rank> shape_;
    std::array<std::ptrdiff_t, Rank> origin_;
};

template <class E>
concept Extent = std::integral<E> || std::same_as<E, IndexRange>;

/// Extents of which at least one is a range.
template <Element T, Extent... E>
    requires(std::same_as<E, IndexRange> || ...)
[[nodiscard]] constexpr RangedShape<T, sizeof...(E)> shape(E... extents) {
    return RangedShape<T, sizeof...(E)>(extents...);
}

}  // namespace cistern
