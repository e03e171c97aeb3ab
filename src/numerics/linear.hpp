// THE arithmetic of linear layers: from the exact sum of products to the output.
//
//     y = C(acc) * (sa * sw)         or, with a bias, fma(C(acc), sa * sw, bias)
//     y = y + residual;   y = y < 0 ? +0 : y                     where asked for
//
// With weights in groups, d the exact sum of a group,
//
//     y_j = fma(C(d), sw of the group, y_j)       over the groups of segment j (segments.hpp)
//     acc = the tree of the segments;   y = acc * sa, or fma(acc, sa, bias), and then as above
//
// and of floats, y_j = fma(x, w, y_j) over k, and sa is 1.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "numerics/affine.hpp"
#include "numerics/half.hpp"

namespace octavo::numerics {

/// The range of activations of 16 bits.
inline constexpr IntRange range_16{-32639, 32639};

/// The greatest magnitude of a type's values; of s16, those of its range here. Less a zero point,
/// they may span all of the type.
constexpr std::int64_t magnitude_of(DType type, bool zero_points) {
  const IntRange range = type == DType::s16 ? range_16 : storage_range(type);
  return zero_points ? std::int64_t{range.max} - range.min
                     : std::max<std::int64_t>(range.max, -std::int64_t{range.min});
}
/// The largest k whose sums fit 32 bits, whatever the values of these magnitudes.
constexpr std::int64_t max_exact_k(std::int64_t activations, std::int64_t weights) {
  return INT32_MAX / (activations * weights);
}

/// Activations of 16 bits in two halves, 256 * high + low, which both fit 8 bits: the range is
/// chosen for that.
struct Halves {
  std::int8_t high = 0;
  std::int8_t low = 0;
};
constexpr Halves halves_of(std::int32_t q) {
  const std::int32_t high = (q + 128) >> 8;
  return {static_cast<std::int8_t>(high), static_cast<std::int8_t>(q - 256 * high)};
}

template <class C>
C relu(C y) {
  return y < 0 ? C(0) : y;
}

/// y before it is stored. `bias` and `residual` are null where there is none.
template <class C>
C finished(C acc, C scale, const C* bias, const C* residual, bool has_relu) {
  C y = bias == nullptr ? acc * scale : std::fma(acc, scale, *bias);
  if (residual != nullptr) y = y + *residual;
  return has_relu ? relu(y) : y;
}
/// y from an exact sum.
template <class C, class Sum>
C finished_sum(Sum sum, C activation_scale, C weight_scale, const C* bias, const C* residual,
               bool has_relu) {
  return finished(static_cast<C>(sum), activation_scale * weight_scale, bias, residual, has_relu);
}

/// A double rounded to odd: rounding the result once more, to fewer bits, is as good as rounding
/// the double itself.
inline float round_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  if (!(std::fabs(x) <= 0x1.FFFFFEp127)) {  // beyond the largest float: NaN, inf, or just below it
    if (std::isnan(x) || std::isinf(x)) return nearest;
    return std::copysign(0x1.FFFFFEp127F, static_cast<float>(x > 0 ? 1 : -1));
  }
  if (static_cast<double>(nearest) == x) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(x)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1U);
}

/// y as it is stored: NaN canonical, rounded once.
template <class T, class C>
T stored(C y) {
  const C x = canonical(y);
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>) {
    float narrow;
    if constexpr (std::is_same_v<C, double>) {
      narrow = round_to_odd(x);
    } else {
      narrow = x;
    }
    if constexpr (std::is_same_v<T, f16>) return narrow_f16(narrow);
    if constexpr (std::is_same_v<T, bf16>) return narrow_bf16(narrow);
  } else {
    return static_cast<T>(x);
  }
}

}  // namespace octavo::numerics
