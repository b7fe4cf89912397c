#pragma once
// Extents, checked: how many elements of which type, in how many dimensions.
//
//     auto [u, v] = pool.arrays(shape<float>(nx, ny), shape<double>(n));

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace [[gnu::visibility("default")]] cistern {

/// What an array may hold: anything that can be copied byte by byte (complex, half, small structs).
template <class T>
concept Element = std::is_object_v<T> && std::is_trivially_copyable_v<T> && !std::is_const_v<T>;

namespace detail {

[[noreturn]] void throw_negative_extent(std::intmax_t extent, std::size_t dimension);
[[noreturn]] void throw_shape_overflow(const std::size_t* extents, std::size_t rank,
                                       std::size_t element_bytes);
[[noreturn]] void throw_rank_mismatch(std::size_t extents, std::size_t rank);
[[noreturn]] void throw_not_aligned(std::size_t needed, std::size_t alignment);
[[noreturn]] void throw_range_overflow(std::ptrdiff_t begin, std::ptrdiff_t end);
[[noreturn]] void throw_spec_overflow();
[[noreturn]] void throw_index_out_of_range(std::size_t index, std::size_t limit);

}  // namespace detail

/// A type and extents. Throws InvalidArgument for a negative extent and for more bytes than can be
/// counted.
template <Element T, std::size_t Rank>
class Shape {
public:
    using element_type = T;

    template <std::integral... E>
        requires(sizeof...(E) == Rank)
    explicit constexpr Shape(E... extents)
        : extents_{checked(extents)...}, elements_(product(std::make_index_sequence<Rank>{})) {
        check_signs(std::make_index_sequence<Rank>{}, extents...);
        std::size_t bytes = 0;
        if (overflow_ || __builtin_mul_overflow(elements_, sizeof(T), &bytes) ||
            bytes > static_cast<std::size_t>(PTRDIFF_MAX)) [[unlikely]] {
            detail::throw_shape_overflow(extents_.data(), Rank, sizeof(T));
        }
    }

    [[nodiscard]] constexpr const std::array<std::size_t, Rank>& extents() const noexcept {
        return extents_;
    }
    [[nodiscard]] constexpr std::size_t elements() const noexcept { return elements_; }
    [[nodiscard]] constexpr std::size_t bytes() const noexcept { return elements_ * sizeof(T); }

private:
    template <class E>
    static constexpr std::size_t checked(E extent) noexcept {
        return static_cast<std::size_t>(extent);
    }
    template <std::size_t... I, class... E>
    static constexpr void check_signs(std::index_sequence<I...>, E... extents) {
        (check_sign(extents, I), ...);
    }
    template <class E>
    static constexpr void check_sign(E extent, std::size_t dimension) {
        if constexpr (std::is_signed_v<E>) {
            if (extent < 0) [[unlikely]] {
                detail::throw_negative_extent(static_cast<std::intmax_t>(extent), dimension);
            }
        }
    }
    // An empty shape overflows nothing, whatever its other extents.
    template <std::size_t... I>
    constexpr std::size_t product(std::index_sequence<I...>) noexcept {
        std::size_t elements = 1;
        bool overflow = false;
        ((overflow |= __builtin_mul_overflow(elements, extents_[I], &elements)), ...);
        const bool empty = ((extents_[I] == 0) || ...);
        overflow_ = overflow && !empty;
        return empty ? 0 : elements;
    }

    bool overflow_ = false;
    std::array<std::size_t, Rank> extents_;
    std::size_t elements_;
};

template <Element T, std::integral... E>
[[nodiscard]] constexpr Shape<T, sizeof...(E)> shape(E... extents) {
    return Shape<T, sizeof...(E)>(extents...);
}

}  // namespace cistern
