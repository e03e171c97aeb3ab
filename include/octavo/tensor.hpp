// Tensors are views: a pointer, a type, a shape and strides. They own nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <ranges>
#include <span>
#include <type_traits>

#include "octavo/dtype.hpp"

namespace octavo {

inline constexpr int max_rank = 8;

/// Up to eight int64 sizes (or strides), held in place. More are counted, not kept, so that a plan
/// can refuse them by name.
class Shape {
 public:
  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> sizes)
      : Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}
  constexpr Shape(std::span<const std::int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
    for (std::size_t i = 0; i < sizes.size() && i < max_rank; ++i) sizes_[i] = sizes[i];
  }

  [[nodiscard]] constexpr int rank() const noexcept { return rank_; }
  [[nodiscard]] constexpr std::int64_t operator[](int i) const noexcept {
    return sizes_[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] constexpr std::int64_t& operator[](int i) noexcept {
    return sizes_[static_cast<std::size_t>(i)];
  }
  friend constexpr bool operator==(const Shape& a, const Shape& b) noexcept {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_ && i < max_rank; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  std::array<std::int64_t, max_rank> sizes_{};
  int rank_ = 0;
};

/// Row-major strides in elements. Rows (the last dimension) of packed 4-bit tensors start on a
/// byte, so their row stride is the row length rounded up to even.
[[nodiscard]] constexpr Shape contiguous_strides(const Shape& shape, DType dtype) noexcept {
  Shape strides = shape;
  std::int64_t step = 1;
  for (int i = (shape.rank() < max_rank ? shape.rank() : max_rank) - 1; i >= 0; --i) {
    strides[i] = step;
    const std::int64_t size = shape[i];
    if (size > 0 && __builtin_mul_overflow(step, size, &step)) step = INT64_MAX;
    if (i == shape.rank() - 1 && is_packed(dtype) && step < INT64_MAX) step += step % 2;
  }
  return strides;
}

namespace detail {
template <class R>
concept ElementRange = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    Element<std::remove_cv_t<std::ranges::range_value_t<R>>>;

template <class R>
concept WritableRange =
    ElementRange<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

// A pointer and not an array, whose size is known and kept.
template <class P>
concept ElementPointer =
    std::is_pointer_v<P> && Element<std::remove_cv_t<std::remove_pointer_t<P>>>;
template <class P>
concept WritablePointer = ElementPointer<P> && !std::is_const_v<std::remove_pointer_t<P>>;
template <ElementPointer P>
inline constexpr DType pointed = dtype_of<std::remove_cv_t<std::remove_pointer_t<P>>>;

template <class Void>
struct View {
  Void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;                     ///< in elements; rank 0 is one element
  Shape strides;                   ///< in elements; as many as `shape`
  std::int64_t buffer_bytes = -1;  ///< bytes that may be touched from `data` on; -1: not known
};

template <class T>
constexpr std::int64_t elements_in(std::int64_t objects) {
  return is_packed(dtype_of<T>) ? 2 * objects : objects;
}
}  // namespace detail

/// A tensor that is read.
///
///     std::vector<float> x(6);
///     TensorRef a = x;                                // [6]
///     TensorRef b(x, {2, 3});                         // [2, 3], the size is checked by the plan
///     TensorRef c(x.data(), {3, 2}, {1, 3});          // the transpose of b
///     TensorRef d(bytes, DType::s4, {2, 3});          // packed, from a raw pointer
struct TensorRef : detail::View<const void> {
  TensorRef() = default;
  TensorRef(const void* data, DType dtype, const Shape& shape)
      : TensorRef(data, dtype, shape, contiguous_strides(shape, dtype)) {}
  TensorRef(const void* data, DType dtype, const Shape& shape, const Shape& strides,
            std::int64_t buffer_bytes = -1)
      : View{data, dtype, shape, strides, buffer_bytes} {}
  template <detail::ElementPointer P>
  TensorRef(const P& data, const Shape& shape) : TensorRef(data, detail::pointed<P>, shape) {}
  template <detail::ElementPointer P>
  TensorRef(const P& data, const Shape& shape, const Shape& strides)
      : TensorRef(data, detail::pointed<P>, shape, strides) {}
  template <detail::ElementRange R>
  TensorRef(const R& range, const Shape& shape)
      : TensorRef(std::ranges::data(range), dtype_of<std::ranges::range_value_t<R>>, shape) {
    buffer_bytes =
        static_cast<std::int64_t>(std::ranges::size(range) * sizeof(*std::ranges::data(range)));
  }
  template <detail::ElementRange R>
  TensorRef(const R& range)
      : TensorRef(range, Shape{detail::elements_in<std::ranges::range_value_t<R>>(
                             static_cast<std::int64_t>(std::ranges::size(range)))}) {}
};

/// A tensor that is written. Made like a TensorRef, and converts to one.
struct TensorMut : detail::View<void> {
  TensorMut() = default;
  TensorMut(void* data, DType dtype, const Shape& shape)
      : TensorMut(data, dtype, shape, contiguous_strides(shape, dtype)) {}
  TensorMut(void* data, DType dtype, const Shape& shape, const Shape& strides,
            std::int64_t buffer_bytes = -1)
      : View{data, dtype, shape, strides, buffer_bytes} {}
  template <detail::WritablePointer P>
  TensorMut(const P& data, const Shape& shape) : TensorMut(data, detail::pointed<P>, shape) {}
  template <detail::WritablePointer P>
  TensorMut(const P& data, const Shape& shape, const Shape& strides)
      : TensorMut(data, detail::pointed<P>, shape, strides) {}
  template <Element T, std::size_t n>
  TensorMut(std::span<T, n> range, const Shape& shape)
      : TensorMut(range.data(), dtype_of<T>, shape) {
    buffer_bytes = static_cast<std::int64_t>(range.size_bytes());
  }
  template <Element T, std::size_t n>
  TensorMut(std::span<T, n> range)
      : TensorMut(range, Shape{detail::elements_in<T>(static_cast<std::int64_t>(range.size()))}) {}
  template <detail::WritableRange R>
  TensorMut(R& range, const Shape& shape) : TensorMut(std::span(range), shape) {}
  template <detail::WritableRange R>
  TensorMut(R& range) : TensorMut(std::span(range)) {}

  operator TensorRef() const { return {data, dtype, shape, strides, buffer_bytes}; }
};

}  // namespace octavo
