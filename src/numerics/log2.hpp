// log2 of a double from specified operations only: libraries differ in the last bits from CPU to
// CPU.
#pragma once

#include <bit>
#include <cstdint>

namespace octavo::numerics {

/// log2(x) for a normal x > 0, within about 2^-50.
inline double log2(double x) {
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)), about; log(m) = 2 * atanh((m - 1) / (m + 1)).
  const auto bits = std::bit_cast<std::uint64_t>(x);
  constexpr std::uint64_t root_half = 0x3FE6A09E667F3BCD;
  const std::uint64_t shifted = bits - root_half;
  const auto exponent = static_cast<std::int64_t>(shifted) >> 52;
  const auto m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(exponent) << 52));
  const double f = (m - 1.0) / (m + 1.0);
  const double f2 = f * f;
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * f2 + 1.0 / k;
  constexpr double two_over_ln2 = 2.8853900817779268;
  return static_cast<double>(exponent) + f * sum * two_over_ln2;
}

}  // namespace octavo::numerics
