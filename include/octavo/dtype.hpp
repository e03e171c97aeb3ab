// Element types: what a tensor holds.
#pragma once

#if __cplusplus < 202002L
#error "the C++ headers of Octavo need C++20 (-std=c++20); octavo/octavo.h is for C and all others"
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "octavo/export.h"

namespace octavo {

/// The type of one element. Values are pinned: they cross the C ABI and stand in files.
enum class DType : std::uint8_t {
  f32 = 0,
  f64 = 1,
  f16 = 2,   ///< IEEE binary16
  bf16 = 3,  ///< the upper half of an f32
  s8 = 4,
  u8 = 5,
  s4 = 6,  ///< two per byte, the even index in the low nibble; each row starts on a byte
  u4 = 7,
  s32 = 8,  ///< zero points and raw sums; never the element of an elementwise operation
  s16 = 9,  ///< of quantize, dequantize and dynamic ranges; activations of linear layers
};

inline constexpr int dtype_count = 10;

/// A half-precision number as it lies in memory. Convert with `to_float` and `to_f16`.
struct f16 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(f16, f16) = default;
};

/// A bfloat16 number as it lies in memory. Convert with `to_float` and `to_bf16`.
struct bf16 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(bf16, bf16) = default;
};

/// Two 4-bit integers in a byte: element 2i in the low nibble, element 2i+1 in the high one.
struct s4x2 {
  std::uint8_t bits = 0;
  friend constexpr bool operator==(s4x2, s4x2) = default;
};
struct u4x2 {
  std::uint8_t bits = 0;
  friend constexpr bool operator==(u4x2, u4x2) = default;
};

/// Exact widening, and rounding to nearest even with subnormals kept. A NaN becomes the type's
/// canonical quiet NaN.
[[nodiscard]] OCTAVO_API float to_float(f16 value) noexcept;
[[nodiscard]] OCTAVO_API float to_float(bf16 value) noexcept;
[[nodiscard]] OCTAVO_API f16 to_f16(float value) noexcept;
[[nodiscard]] OCTAVO_API bf16 to_bf16(float value) noexcept;

struct IntRange {
  std::int32_t min = 0;
  std::int32_t max = 0;
};

namespace detail {
enum class Kind : std::uint8_t { floating, integer };
struct DTypeInfo {
  std::string_view name;
  int bits;
  Kind kind;
  IntRange range;  // integers only
};
inline constexpr std::array<DTypeInfo, dtype_count + 1> dtype_info{{
    {"f32", 32, Kind::floating, {}},
    {"f64", 64, Kind::floating, {}},
    {"f16", 16, Kind::floating, {}},
    {"bf16", 16, Kind::floating, {}},
    {"s8", 8, Kind::integer, {-128, 127}},
    {"u8", 8, Kind::integer, {0, 255}},
    {"s4", 4, Kind::integer, {-8, 7}},
    {"u4", 4, Kind::integer, {0, 15}},
    {"s32", 32, Kind::integer, {INT32_MIN, INT32_MAX}},
    {"s16", 16, Kind::integer, {INT16_MIN, INT16_MAX}},
    {"unknown", 0, Kind::integer, {}},  // any other value
}};
[[nodiscard]] constexpr const DTypeInfo& info(DType t) noexcept {
  const auto i = static_cast<std::size_t>(t);
  return dtype_info[i < dtype_count ? i : dtype_count];
}
}  // namespace detail

/// Whether a value that came from outside (C, a file) is a type at all.
[[nodiscard]] constexpr bool is_valid(DType t) noexcept {
  return static_cast<int>(t) < dtype_count;
}
[[nodiscard]] constexpr std::string_view name(DType t) noexcept { return detail::info(t).name; }
[[nodiscard]] constexpr int bits(DType t) noexcept { return detail::info(t).bits; }
[[nodiscard]] constexpr bool is_float(DType t) noexcept {
  return is_valid(t) && detail::info(t).kind == detail::Kind::floating;
}
/// s8, u8, s4, u4 or s16: what a float tensor is quantized to.
[[nodiscard]] constexpr bool is_quantized(DType t) noexcept {
  return is_valid(t) && detail::info(t).kind == detail::Kind::integer && bits(t) <= 16;
}
/// Whether two elements share a byte.
[[nodiscard]] constexpr bool is_packed(DType t) noexcept { return bits(t) == 4; }
/// The values an integer type can hold.
[[nodiscard]] constexpr IntRange storage_range(DType t) noexcept { return detail::info(t).range; }
/// The type all arithmetic on `t` is done in: f64 for f64, else f32.
[[nodiscard]] constexpr DType compute_type(DType t) noexcept {
  return t == DType::f64 ? DType::f64 : DType::f32;
}
/// Bytes of `n` consecutive elements that start on a byte: 0 for a negative `n`, and INT64_MAX,
/// which no memory has, for more than fit into the result.
[[nodiscard]] constexpr std::int64_t bytes_for(DType t, std::int64_t n) noexcept {
  if (n < 0) return 0;
  if (is_packed(t)) return n / 2 + n % 2;
  std::int64_t bytes = 0;
  return __builtin_mul_overflow(n, std::int64_t{bits(t) / 8}, &bytes) ? INT64_MAX : bytes;
}

/// The DType of a C++ element type: `dtype_of<float>` is `DType::f32`.
template <class T>
struct ElementTraits;
template <DType t>
struct ElementOf {
  static constexpr DType dtype = t;
};
template <>
struct ElementTraits<float> : ElementOf<DType::f32> {};
template <>
struct ElementTraits<double> : ElementOf<DType::f64> {};
template <>
struct ElementTraits<f16> : ElementOf<DType::f16> {};
template <>
struct ElementTraits<bf16> : ElementOf<DType::bf16> {};
template <>
struct ElementTraits<std::int8_t> : ElementOf<DType::s8> {};
template <>
struct ElementTraits<std::uint8_t> : ElementOf<DType::u8> {};
template <>
struct ElementTraits<s4x2> : ElementOf<DType::s4> {};
template <>
struct ElementTraits<u4x2> : ElementOf<DType::u4> {};
template <>
struct ElementTraits<std::int16_t> : ElementOf<DType::s16> {};
template <>
struct ElementTraits<std::int32_t> : ElementOf<DType::s32> {};

template <class T>
concept Element = requires {
  ElementTraits<T>::dtype;
};
template <Element T>
inline constexpr DType dtype_of = ElementTraits<T>::dtype;

}  // namespace octavo
