// THE scale of weights whose scales are stored in 16 bits.
//
//     bf16, and f16 from 2^-14 on      s rounded to nearest even
//     f16 below 2^-14 (subnormal)      s rounded up
//
// To nearest, the largest weight of a slice moves by less than a third of a step, and rounds to the
// same end of the range as before. A subnormal f16 may be half of s, or 0: rounded up, no weight is
// cut off and every scale can be divided by.
#pragma once

#include <cmath>

#include "numerics/half.hpp"

namespace octavo::numerics {

/// Of a scale that dynamic_range.hpp finds: finite, above 0.
inline bf16 stored_scale_bf16(float s) { return narrow_bf16(s); }

inline f16 stored_scale_f16(float s) {
  constexpr float least_normal = 0x1p-14F, step = 0x1p-24F;
  return narrow_f16(s < least_normal ? std::ceil(s / step) * step : s);  // (both are exact)
}

}  // namespace octavo::numerics
