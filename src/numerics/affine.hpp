// THE arithmetic of the elementwise family: the specification as code. Everything else in the
// library must give the same bits as these few functions.
//
//     v = x * (1 / s)  (profile torch)      v = x / s  (profile onnx)
//     q = clamp(rint(v) + zp, q_min, q_max)             as if in unbounded integers
//
// C is the compute type, float or double. The floating-point environment is the default one
// (core/fp_environment.hpp); nothing is contracted (-ffp-contract=off).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "octavo/dtype.hpp"
#include "octavo/profile.hpp"

namespace octavo::numerics {

/// A scale with what follows from it, and the integer range it maps to.
template <class C>
struct Affine {
  C scale;
  C reciprocal;  // RN(1 / scale)
  Profile profile;
  std::int32_t zero_point;
  // q_min - zp and q_max - zp: the range of rint(v). Up to 33 bits, so exact in a double only.
  double low;
  double high;

  Affine(C s, std::int32_t zp, IntRange range, Profile p)
      : scale(s),
        reciprocal(C(1) / s),
        profile(p),
        zero_point(zp),
        low(static_cast<double>(std::int64_t{range.min} - zp)),
        high(static_cast<double>(std::int64_t{range.max} - zp)) {}

  [[nodiscard]] C divide(C x) const {
    return profile == Profile::torch ? x * reciprocal : x / scale;
  }
};

template <class C>
inline constexpr C quiet_nan = std::numeric_limits<C>::quiet_NaN();

/// Every NaN result is the canonical quiet NaN: CPUs differ in the sign and payload they produce.
template <class C>
C canonical(C x) {
  return std::isnan(x) ? quiet_nan<C> : x;
}

/// rint(v): every float is exact in a double, and so is its rounding.
template <class C>
double rounded_quotient(C x, const Affine<C>& a) {
  return std::nearbyint(static_cast<double>(a.divide(x)));
}

/// q - zp, for x that is not NaN.
template <class C>
std::int64_t centred(C x, const Affine<C>& a) {
  return static_cast<std::int64_t>(std::clamp(rounded_quotient(x, a), a.low, a.high));
}

/// NaN quantizes like 0.
template <class C>
std::int32_t quantize(C x, const Affine<C>& a) {
  return static_cast<std::int32_t>(centred(std::isnan(x) ? C(0) : x, a) + a.zero_point);
}

template <class C>
C fake_quantize(C x, const Affine<C>& a) {
  return std::isnan(x) ? quiet_nan<C> : a.scale * static_cast<C>(centred(x, a));
}

/// Whether the gradient passes: q_min <= rint(v) + zp <= q_max. False for NaN.
template <class C>
bool passes(C x, const Affine<C>& a) {
  const double r = rounded_quotient(x, a);
  return a.low <= r && r <= a.high;
}

template <class C>
C quantize_backward(C x, C dy, const Affine<C>& a) {
  return passes(x, a) ? canonical(a.divide(dy)) : C(0);
}

template <class C>
C fake_quantize_backward(C x, C dy, const Affine<C>& a) {
  return passes(x, a) ? canonical(dy) : C(0);
}

template <class C>
C dequantize(std::int32_t q, C scale, std::int32_t zp) {
  return scale * static_cast<C>(std::int64_t{q} - zp);
}

template <class C>
C dequantize_backward(C dy, C scale) {
  return canonical(dy * scale);
}

/// A scale that values are divided by: finite, > 0, with a finite reciprocal. Decided on the bits,
/// so that flush-to-zero in the caller's environment cannot change the answer.
template <class C>
bool is_divisor(C scale) {
  // As signed integers, positive floats are in order and negative ones below all of them.
  using Bits = std::conditional_t<sizeof(C) == 4, std::int32_t, std::int64_t>;
  // 1/s rounds to infinity up to 2^-128 (2^-1024), and is finite for the next number above it.
  constexpr C last_bad = static_cast<C>(std::is_same_v<C, float> ? 0x1p-128 : 0x1p-1024);
  constexpr auto last = std::bit_cast<Bits>(std::numeric_limits<C>::max());
  const auto bits = std::bit_cast<Bits>(scale);
  return bits > std::bit_cast<Bits>(last_bad) && bits <= last;
}

template <class C>
bool is_finite(C scale) {
  using Bits = std::conditional_t<sizeof(C) == 4, std::int32_t, std::int64_t>;
  constexpr auto last = std::bit_cast<Bits>(std::numeric_limits<C>::max());
  return (std::bit_cast<Bits>(scale) & std::numeric_limits<Bits>::max()) <= last;
}

}  // namespace octavo::numerics
