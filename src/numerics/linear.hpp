// THE arithmetic of linear layers: from the exact sum of products to the output.
//
//     y = C(acc) * (sa * sw)         or, with a bias, fma(C(acc), sa * sw, bias)
//     y = y + residual;   y = y < 0 ? +0 : y                     where asked for
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "numerics/affine.hpp"
#include "numerics/half.hpp"

namespace octavo::numerics {

/// The largest k whose sums fit 32 bits, whatever the values. A side is wide if its values, less
/// the zero point, need nine bits: u8, or a zero point.
constexpr std::int64_t max_exact_k(bool wide_activations, bool wide_weights) {
  const std::int64_t a = wide_activations ? 255 : 128;
  const std::int64_t w = wide_weights ? 255 : 128;
  return INT32_MAX / (a * w);
}

template <class C>
C relu(C y) {
  return y < 0 ? C(0) : y;
}

/// y from an exact sum, before it is stored. `bias` and `residual` are null where there is none.
template <class C, class Sum>
C finished_sum(Sum sum, C activation_scale, C weight_scale, const C* bias, const C* residual,
               bool has_relu) {
  const C scale = activation_scale * weight_scale;
  C y = bias == nullptr ? static_cast<C>(sum) * scale : std::fma(static_cast<C>(sum), scale, *bias);
  if (residual != nullptr) y = y + *residual;
  return has_relu ? relu(y) : y;
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
