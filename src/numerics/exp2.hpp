// 2^x and powers of doubles from specified operations only: libraries differ in the last bits from
// CPU to CPU.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "numerics/log2.hpp"

namespace octavo::numerics {

/// 2^x for |x| <= 1000, within about 2^-50 of itself.
inline double exp2(double x) {
  // x = n + f with |f| <= 1/2; 2^f by its series.
  const double n = std::rint(x);
  constexpr double ln2 = 0.69314718055994531;
  const double t = (x - n) * ln2;
  double sum = 1.0;
  for (int k = 18; k >= 1; --k) sum = 1.0 + t / k * sum;
  const auto exponent = static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023);
  return sum * std::bit_cast<double>(exponent << 52U);
}

/// x^p for an x of 0 or of a float's magnitude and p in [0, 1].
inline double power(double x, double p) {
  if (p == 0.0) return 1.0;
  return x == 0.0 ? 0.0 : exp2(p * log2(x));
}

}  // namespace octavo::numerics
