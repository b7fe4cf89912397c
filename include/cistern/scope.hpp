#pragma once
// Arrays for the length of a call.
//
//     with_arrays([&](auto u, auto v) { ... }, pool, shape<float>(ny, nx), shape<double>(n));
//     with_arrays_like([&](auto copy) { ... }, pool, field);
//
// One block per spec. A spec may be nested: a tuple, pair, array or vector of specs gives the same
// nest of views, packed in one block, each aligned for its type. Everything goes back when the
// function returns or throws; its result is returned. On every memory and fit. A call whose blocks are
// hits allocates nothing else.

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <new>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "cistern/array.hpp"
#include "cistern/buffer.hpp"
#include "cistern/pool.hpp"
#include "cistern/ranged.hpp"
#include "cistern/shape.hpp"

namespace [[gnu::visibility("default")]] cistern {

/// The views that a vector of specs gives: like a vector of them, in pooled memory.
template <class View>
class Views {
public:
    template <class Make>
    Views(std::size_t count, Make&& make) : storage_(default_pool().acquire(count * sizeof(View))) {
        for (; size_ < count; ++size_) new (data() + size_) View(make(size_));
    }
    Views(Views&& other) noexcept
        : storage_(std::move(other.storage_)), size_(std::exchange(other.size_, 0)) {}
    Views& operator=(Views&&) = delete;
    ~Views() {
        for (View& view : *this) view.~View();
    }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] View& operator[](std::size_t index) const noexcept { return data()[index]; }
    [[nodiscard]] View* begin() const noexcept { return data(); }
    [[nodiscard]] View* end() const noexcept { return data() + size_; }

private:
    [[nodiscard]] View* data() const noexcept { return static_cast<View*>(storage_.data()); }

    Buffer storage_;
    std::size_t size_ = 0;
};

namespace detail {

/// A place in a block, moved along as views are laid out.
class Cursor {
public:
    explicit Cursor(void* base) noexcept : base_(static_cast<std::byte*>(base)) {}
    /// Steps over room for a shape. Throws InvalidArgument if the bytes cannot be counted.
    template <class T, std::size_t Rank>
    T* step(const Shape<T, Rank>& shape) {
        std::size_t end = 0;
        const std::size_t at = (offset_ + alignof(T) - 1) & ~(alignof(T) - 1);
        if (at < offset_ || __builtin_add_overflow(at, shape.bytes(), &end)) throw_spec_overflow();
        offset_ = end;
        return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
    }
    [[nodiscard]] std::size_t offset() const noexcept { return offset_; }

private:
    std::byte* base_;
    std::size_t offset_ = 0;
};

// How each kind of spec, and each array taken as one, is measured and turned into views.
template <class Spec>
struct Layout;

template <class T, std::size_t Rank>
struct Layout<Shape<T, Rank>> {
    using View = ArrayView<T, Rank>;
    static constexpr std::size_t alignment = alignof(T);
    static View lay(const Shape<T, Rank>& shape, Cursor& cursor) {
        return {cursor.step(shape), shape.extents(), shape.elements()};
    }
    static void measure(const Shape<T, Rank>& shape, Cursor& cursor) { cursor.step(shape); }
    static Buffer acquire(Pool& pool, const Shape<T, Rank>& shape, std::size_t) {
        return pool.acquire_for<T>(shape.bytes());
    }
};

/// What is laid out like something else that it converts to with `Like::of`.
template <class Spec, class Other, class Like>
struct LayoutLike {
    using View = typename Layout<Other>::View;
    static constexpr std::size_t alignment = Layout<Other>::alignment;
    static View lay(const Spec& spec, Cursor& cursor) {
        return Layout<Other>::lay(Like::of(spec), cursor);
    }
    static void measure(const Spec& spec, Cursor& cursor) {
        Layout<Other>::measure(Like::of(spec), cursor);
    }
    static Buffer acquire(Pool& pool, const Spec& spec, std::size_t bytes) {
        return Layout<Other>::acquire(pool, Like::of(spec), bytes);
    }
};

template <class T, std::size_t Rank>
struct Layout<RangedShape<T, Rank>> {
    using View = RangedView<T, Rank>;
    static constexpr std::size_t alignment = alignof(T);
    static View lay(const RangedShape<T, Rank>& spec, Cursor& cursor) {
        return {Layout<Shape<T, Rank>>::lay(spec.shape(), cursor), spec.origin()};
    }
    static void measure(const RangedShape<T, Rank>& spec, Cursor& cursor) {
        cursor.step(spec.shape());
    }
    static Buffer acquire(Pool& pool, const RangedShape<T, Rank>& spec, std::size_t bytes) {
        return Layout<Shape<T, Rank>>::acquire(pool, spec.shape(), bytes);
    }
};

template <class T, std::size_t Rank>
struct Layout<ArrayView<T, Rank>>
    : LayoutLike<ArrayView<T, Rank>, Shape<T, Rank>, Layout<ArrayView<T, Rank>>> {
    static Shape<T, Rank> of(const ArrayView<T, Rank>& view) {
        return std::apply([](auto... extents) { return Shape<T, Rank>(extents...); }, view.shape());
    }
};
template <class T, std::size_t Rank>
struct Layout<Array<T, Rank>>
    : LayoutLike<Array<T, Rank>, ArrayView<T, Rank>, Layout<Array<T, Rank>>> {
    static const ArrayView<T, Rank>& of(const Array<T, Rank>& array) { return array.view(); }
};
template <class T, std::size_t Rank>
struct Layout<RangedView<T, Rank>>
    : LayoutLike<RangedView<T, Rank>, RangedShape<T, Rank>, Layout<RangedView<T, Rank>>> {
    static RangedShape<T, Rank> of(const RangedView<T, Rank>& view) {
        return {Layout<ArrayView<T, Rank>>::of(view.view()), view.origin()};
    }
};

/// A nest is one block; its parts follow each other.
struct NestLayout {
    template <class Spec>
    static Buffer acquire(Pool& pool, const Spec&, std::size_t bytes) {
        return pool.acquire(bytes);
    }
};

template <class... Specs>
struct Layout<std::tuple<Specs...>> : NestLayout {
    using View = std::tuple<typename Layout<Specs>::View...>;
    static constexpr std::size_t alignment =
        std::max({std::size_t{1}, Layout<Specs>::alignment...});
    static View lay(const std::tuple<Specs...>& specs, Cursor& cursor) {
        return std::apply(
            [&](const Specs&... each) { return View{Layout<Specs>::lay(each, cursor)...}; }, specs);
    }
    static void measure(const std::tuple<Specs...>& specs, Cursor& cursor) {
        std::apply([&](const Specs&... each) { (Layout<Specs>::measure(each, cursor), ...); },
                   specs);
    }
};
template <class A, class B>
struct Layout<std::pair<A, B>> : NestLayout {
    using View = std::pair<typename Layout<A>::View, typename Layout<B>::View>;
    static constexpr std::size_t alignment = std::max(Layout<A>::alignment, Layout<B>::alignment);
    static View lay(const std::pair<A, B>& specs, Cursor& cursor) {
        return View{Layout<A>::lay(specs.first, cursor), Layout<B>::lay(specs.second, cursor)};
    }
    static void measure(const std::pair<A, B>& specs, Cursor& cursor) {
        Layout<A>::measure(specs.first, cursor);
        Layout<B>::measure(specs.second, cursor);
    }
};
template <class Spec, std::size_t N>
struct Layout<std::array<Spec, N>> : NestLayout {
    using View = std::array<typename Layout<Spec>::View, N>;
    static constexpr std::size_t alignment = Layout<Spec>::alignment;
    static View lay(const std::array<Spec, N>& specs, Cursor& cursor) {
        return std::apply(
            [&](const auto&... each) { return View{Layout<Spec>::lay(each, cursor)...}; }, specs);
    }
    static void measure(const std::array<Spec, N>& specs, Cursor& cursor) {
        for (const Spec& spec : specs) Layout<Spec>::measure(spec, cursor);
    }
};
template <class Spec>
struct Layout<std::vector<Spec>> : NestLayout {
    using View = Views<typename Layout<Spec>::View>;
    static constexpr std::size_t alignment = Layout<Spec>::alignment;
    static View lay(const std::vector<Spec>& specs, Cursor& cursor) {
        return View(specs.size(),
                    [&](std::size_t i) { return Layout<Spec>::lay(specs[i], cursor); });
    }
    static void measure(const std::vector<Spec>& specs, Cursor& cursor) {
        for (const Spec& spec : specs) Layout<Spec>::measure(spec, cursor);
    }
};
// What another vector of specs gave may be asked for again.
template <class V>
struct Layout<Views<V>> : NestLayout {
    using View = Views<typename Layout<V>::View>;
    static constexpr std::size_t alignment = Layout<V>::alignment;
    static View lay(const Views<V>& views, Cursor& cursor) {
        return View(views.size(), [&](std::size_t i) { return Layout<V>::lay(views[i], cursor); });
    }
    static void measure(const Views<V>& views, Cursor& cursor) {
        for (const V& view : views) Layout<V>::measure(view, cursor);
    }
};

template <class Spec>
std::size_t measured(const Spec& spec) {
    Cursor cursor(nullptr);
    Layout<Spec>::measure(spec, cursor);
    return cursor.offset();
}

template <class Spec>
Buffer acquire_for(Pool& pool, const Spec& spec, std::size_t bytes) {
    if constexpr (Layout<Spec>::alignment > 64) {
        const std::size_t alignment = pool.options().alignment;
        if (Layout<Spec>::alignment > alignment) {
            throw_not_aligned(Layout<Spec>::alignment, alignment);
        }
    }
    return Layout<Spec>::acquire(pool, spec, bytes);
}

template <class Spec>
typename Layout<Spec>::View views_in(const Buffer& buffer, const Spec& spec) {
    Cursor cursor(buffer.data());
    return Layout<Spec>::lay(spec, cursor);
}

template <class F, std::size_t... I, class... Specs>
decltype(auto) call_with(F&& f, Pool& pool, std::index_sequence<I...>, const Specs&... specs) {
    // Measured first: a spec that makes no sense takes nothing.
    [[maybe_unused]] const std::array<std::size_t, sizeof...(Specs)> bytes{measured(specs)...};
    [[maybe_unused]] const std::array<Buffer, sizeof...(Specs)> buffers{
        acquire_for(pool, specs, bytes[I])...};
    return std::invoke(std::forward<F>(f), views_in(buffers[I], specs)...);
}

}  // namespace detail

/// Calls f with one view, or nest of views, per spec and returns what it returns. Throws what acquire
/// throws, before f is called, and what f throws; either way everything is given back.
template <class F, class... Specs>
decltype(auto) with_arrays(F&& f, Pool& pool, const Specs&... specs) {
    return detail::call_with(std::forward<F>(f), pool, std::index_sequence_for<Specs...>{},
                             specs...);
}

/// The same with the element types and shapes of the given arrays, views, or nests of them.
template <class F, class... Arrays>
decltype(auto) with_arrays_like(F&& f, Pool& pool, const Arrays&... arrays) {
    return detail::call_with(std::forward<F>(f), pool, std::index_sequence_for<Arrays...>{},
                             arrays...);
}

}  // namespace cistern
