// affine.hpp of f32 without a double: the same bits, for machines where doubles are slow. (There is
// no form of f64: its compute type is a double anyway.)
//
// Where q_min - zp and q_max - zp are exact in f32, as for every range and zero point of up to 16
// bits, the rounded quotient is clamped as a float. Elsewhere it is clamped as an integer of 64
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
  float low;  // q_min - zp and q_max - zp, where `narrow`
  float high;
  std::int64_t wide_low;
  std::int64_t wide_high;
  std::int32_t zero_point;
  Profile profile;
  bool narrow;

  AffineF32(float s, std::int32_t zp, IntRange range, Profile p)
      : scale(s),
        reciprocal(1.0F / s),
        wide_low(std::int64_t{range.min} - zp),
        wide_high(std::int64_t{range.max} - zp),
        zero_point(zp),
        profile(p) {
    constexpr std::int64_t most = std::int64_t{1} << 24;
    narrow = wide_low >= -most && wide_high <= most;
    low = static_cast<float>(wide_low);
    high = static_cast<float>(wide_high);
  }

  [[nodiscard]] float divide(float x) const {
    return profile == Profile::torch ? x * reciprocal : x / scale;
  }
};

/// rint(v) within 34 bits, which is beyond every bound.
inline std::int64_t wide_quotient(float rounded) {
  return static_cast<std::int64_t>(std::min(std::max(rounded, -0x1p34F), 0x1p34F));
}

inline std::int32_t quantize(float x, const AffineF32& a) {
  const float r = std::nearbyint(a.divide(std::isnan(x) ? 0.0F : x));
  if (a.narrow)
    return static_cast<std::int32_t>(std::min(std::max(r, a.low), a.high)) + a.zero_point;
  return static_cast<std::int32_t>(std::min(std::max(wide_quotient(r), a.wide_low), a.wide_high) +
                                   a.zero_point);
}

inline float fake_quantize(float x, const AffineF32& a) {
  if (std::isnan(x)) return quiet_nan<float>;
  const float r = std::nearbyint(a.divide(x));
  // (An integer has no -0: what is added makes it 0.)
  if (a.narrow) return a.scale * (std::min(std::max(r, a.low), a.high) + 0.0F);
  return a.scale *
         static_cast<float>(std::min(std::max(wide_quotient(r), a.wide_low), a.wide_high));
}

inline bool passes(float x, const AffineF32& a) {
  const float r = std::nearbyint(a.divide(x));
  if (a.narrow) return a.low <= r && r <= a.high;
  const std::int64_t wide = std::isnan(r) ? INT64_MIN : wide_quotient(r);
  return a.wide_low <= wide && wide <= a.wide_high;
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
