// THE arithmetic of dynamic ranges: from the extremes of a slice to its scale and zero point.
//
//     symmetric    m = max |x|
//                  s = m > 0 ? max(m / q_max, smallest normal) : 1            zp = 0
//     asymmetric   lo = min(0, min x)      hi = max(0, max x)
//                  s = hi > lo ? max((hi - lo) / (q_max - q_min), smallest normal) : 1
//                  zp = clamp(rint(q_min - lo / s), q_min, q_max)
//
// over the finite x only: a slice that has none is as if all zero. If hi - lo overflows,
// s = min((hi / 2 - lo / 2) / ((q_max - q_min) / 2), largest finite).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "numerics/linear.hpp"
#include "octavo/dtype.hpp"

namespace octavo::numerics {

/// The integers that a range is mapped to where nobody says: all that the type holds, and of s16
/// those that linear layers can take apart (linear.hpp).
constexpr IntRange default_range(DType integer) {
  return integer == DType::s16 ? range_16 : storage_range(integer);
}

/// The extremes of the finite values seen so far, and 0. Symmetric: `low` is unused and `high` is
/// the largest magnitude.
template <class C>
struct Range {
  C low = 0;
  C high = 0;

  void add_symmetric(C x) {
    if (std::isfinite(x)) high = std::max(high, std::abs(x));
  }
  void add_asymmetric(C x) {
    if (!std::isfinite(x)) return;
    low = std::min(low, x);
    high = std::max(high, x);
  }
};

template <class C>
struct ScaleAndZeroPoint {
  C scale = 1;
  std::int32_t zero_point = 0;
};

template <class C>
[[gnu::always_inline]] inline ScaleAndZeroPoint<C> symmetric_parameters(C magnitude,
                                                                        IntRange range) {
  constexpr C smallest = std::numeric_limits<C>::min();
  const C scale = std::max(magnitude / static_cast<C>(range.max), smallest);
  return {magnitude > 0 ? scale : C(1), 0};
}

template <class C>
[[gnu::always_inline]] inline ScaleAndZeroPoint<C> asymmetric_parameters(C low, C high,
                                                                         IntRange range) {
  constexpr C smallest = std::numeric_limits<C>::min();
  constexpr C largest = std::numeric_limits<C>::max();
  if (!(high > low)) return {C(1), range.min};
  const auto steps = static_cast<C>(range.max - range.min);
  const C width = high - low;
  C scale = std::max(width / steps, smallest);
  if (width > largest) scale = std::min((high * C(0.5) - low * C(0.5)) / (steps * C(0.5)), largest);
  const C zero_point = std::nearbyint(static_cast<C>(range.min) - low / scale);
  return {scale, static_cast<std::int32_t>(
                     std::clamp(zero_point, static_cast<C>(range.min), static_cast<C>(range.max)))};
}

template <class C>
ScaleAndZeroPoint<C> range_parameters(const Range<C>& r, bool symmetric, IntRange range) {
  return symmetric ? symmetric_parameters(r.high, range)
                   : asymmetric_parameters(r.low, r.high, range);
}

}  // namespace octavo::numerics
