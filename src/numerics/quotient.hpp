// x / s without a division, as good as one where only its rint counts.
//
//     hi = RN(1 / s)      lo = RN((1 - s * hi) / s)      q = fma(x, hi, x * lo)
//     rint(q) == rint(RN(x / s))          for |x / s| <= 1024 and 2^-64 <= s <= 2^64
//
// tests/exhaustive proves it for every significand. (q itself may differ in its last bit.)
#pragma once

#include <bit>
#include <cstdint>

#include "octavo/dtype.hpp"

namespace octavo::numerics {

inline constexpr float min_exact_scale = 0x1p-64F;
inline constexpr float max_exact_scale = 0x1p64F;
inline constexpr std::int64_t max_exact_bound = 1000;  // of q_min - zp and q_max - zp

/// What hi lacks: lo. (1 - s * hi is exact. Times hi instead of divided by s, lo would be too
/// coarse for three scales.) Inlined, to be a vector of them in a caller's loop.
[[gnu::always_inline]] inline float reciprocal_lack(float scale, float reciprocal) {
  return __builtin_fmaf(-reciprocal, scale, 1.0F) / scale;
}

/// Decided on the bits: in the caller's floating-point environment a comparison might trap.
inline bool is_exact_scale(float scale) {
  const auto bits = std::bit_cast<std::int32_t>(scale);
  return bits >= std::bit_cast<std::int32_t>(min_exact_scale) &&
         bits <= std::bit_cast<std::int32_t>(max_exact_scale);
}

inline bool are_exact_bounds(std::int64_t least_zero_point, std::int64_t most_zero_point,
                             IntRange range) {
  return range.min - most_zero_point >= -max_exact_bound &&
         range.max - least_zero_point <= max_exact_bound;
}

}  // namespace octavo::numerics
