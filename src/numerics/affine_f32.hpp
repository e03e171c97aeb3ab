// affine.hpp of f32 without a double: the same bits, for machines where doubles are slow. (There is
// no form of f64: its compute type is a double anyway.)
//
// Where q_min, q_max and the zero point are within 24 bits, q_min - zp and q_max - zp are exact in
// f32, and the rounded quotient is clamped as a float. Elsewhere it is clamped as an integer of 64
// bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "numerics/affine.hpp"

namespace octavo::numerics {

struct AffineF32 {
  float scale;
  float reciprocal;
  float low = 0;  // q_min - zp and q_max - zp, where `narrow`
  float high = 0;
  IntRange range;
  std::int32_t zero_point;
  Profile profile;
  bool narrow;

  AffineF32(float s, std::int32_t zp, IntRange r, Profile p)
      : scale(s),
        reciprocal(1.0F / s),
        range(r),
        zero_point(zp),
        profile(p) {
    constexpr std::int32_t most = std::int32_t{1} << 23;
    narrow = r.min >= -most && r.max <= most && zp >= -most && zp <= most;
    if (!narrow) return;
    low = static_cast<float>(r.min - zp);
    high = static_cast<float>(r.max - zp);
  }

  [[nodiscard]] float divide(float x) const {
    return profile == Profile::torch ? x * reciprocal : x / scale;
  }
  /// Of what is not NaN. (Of two zeros either may come out.)
  [[nodiscard]] float clamp(float x) const {
    return __builtin_fminf(__builtin_fmaxf(x, low), high);
  }
  [[nodiscard]] std::int64_t wide_low() const { return std::int64_t{range.min} - zero_point; }
  [[nodiscard]] std::int64_t wide_high() const { return std::int64_t{range.max} - zero_point; }
  /// q - zp of a rounded quotient, whose 34 bits are beyond every bound.
  [[nodiscard]] std::int64_t wide_clamp(float rounded) const {
    const auto r =
        static_cast<std::int64_t>(__builtin_fminf(__builtin_fmaxf(rounded, -0x1p34F), 0x1p34F));
    return std::min(std::max(r, wide_low()), wide_high());
  }
};

inline std::int32_t quantize(float x, const AffineF32& a) {
  const float r = std::nearbyint(a.divide(std::isnan(x) ? 0.0F : x));
  if (a.narrow) return static_cast<std::int32_t>(a.clamp(r)) + a.zero_point;
  return static_cast<std::int32_t>(a.wide_clamp(r) + a.zero_point);
}

inline float fake_quantize(float x, const AffineF32& a) {
  if (std::isnan(x)) return quiet_nan<float>;
  const float r = std::nearbyint(a.divide(x));
  // (An integer has no -0: what is added makes it 0.)
  if (a.narrow) return a.scale * (a.clamp(r) + 0.0F);
  return a.scale * static_cast<float>(a.wide_clamp(r));
}

inline bool passes(float x, const AffineF32& a) {
  const float r = std::nearbyint(a.divide(x));
  if (a.narrow) return a.low <= r && r <= a.high;
  // (What is clamped to 34 bits is outside where it was.)
  const auto wide =
      static_cast<std::int64_t>(__builtin_fminf(__builtin_fmaxf(r, -0x1p34F), 0x1p34F));
  return !std::isnan(r) && a.wide_low() <= wide && wide <= a.wide_high();
}

inline float quantize_backward(float x, float dy, const AffineF32& a) {
  return passes(x, a) ? canonical(a.divide(dy)) : 0.0F;
}

inline float fake_quantize_backward(float x, float dy, const AffineF32& a) {
  return passes(x, a) ? canonical(dy) : 0.0F;
}

/// Zero points of up to 30 bits are subtracted in 32.
inline float dequantize_f32(std::int32_t q, float scale, std::int32_t zp) {
  constexpr std::int32_t most = std::int32_t{1} << 30;
  if (-most <= zp && zp <= most) return scale * static_cast<float>(q - zp);
  return scale * static_cast<float>(std::int64_t{q} - zp);
}

/// What to compute with: the same for both compute types.
template <class C>
struct AffineOf {
  using type = Affine<C>;
};
template <>
struct AffineOf<float> {
  using type = AffineF32;
};

}  // namespace octavo::numerics
