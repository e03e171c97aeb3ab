// Floating-point formats by their bits: the conversions that the host has no instruction for.
#pragma once

#include "tests/cuda/driver/program.hpp"

namespace standin::STANDIN_TARGET {

enum class Rounding : u8 { nearest, zero, down, up };

// p bits of precision; the least exponent of a normal number; bits of the whole format.
struct Format {
  int precision;
  int least;
  int bits;
};
constexpr Format binary16{11, -14, 16};
constexpr Format bfloat16{8, -126, 16};
constexpr Format binary32{24, -126, 32};
constexpr Format binary64{53, -1022, 64};

// mantissa * 2^exponent, rounded.
inline u64 packed(const Format& f, bool sign, u64 mantissa, int exponent, Rounding rounding) {
  const int p = f.precision;
  const u64 sign_bit = sign ? u64{1} << (f.bits - 1) : 0;
  const u64 infinity = ((u64{1} << (f.bits - p)) - 1) << (p - 1);
  if (mantissa == 0) return sign_bit;
  const int top = 63 - __builtin_clzll(mantissa) + exponent;
  const int unit = (top < f.least ? f.least : top) - (p - 1);  // exponent of the last place
  const int shift = unit - exponent;
  u64 kept = 0;
  bool up = false;
  if (shift <= 0) {
    kept = mantissa << -shift;
  } else {
    kept = shift > 63 ? 0 : mantissa >> shift;
    const u64 lost = shift > 63 ? mantissa : mantissa & ((u64{1} << shift) - 1);
    const u64 half = shift > 64 ? 0 : u64{1} << (shift - 1);
    const bool above = half != 0 && lost > half;
    const bool tie = half != 0 && lost == half;
    up = rounding == Rounding::nearest ? above || (tie && (kept & 1) != 0)
         : rounding == Rounding::zero  ? false
                                       : lost != 0 && (rounding == Rounding::up) != sign;
  }
  kept += up ? 1 : 0;
  // A carry out of the mantissa goes on into the exponent, as it should.
  const u64 biased = top < f.least ? 0 : static_cast<u64>(top - f.least);
  const u64 r = (biased << (p - 1)) + kept;
  if (r >= infinity) {
    const bool to_infinity = rounding == Rounding::nearest || (rounding == Rounding::up && !sign) ||
                             (rounding == Rounding::down && sign);
    return sign_bit | (to_infinity ? infinity : infinity - 1);
  }
  return sign_bit | r;
}

// The number of these bits of format `from`, rounded to `to`. NaN gives the canonical NaN.
inline u64 converted(const Format& from, const Format& to, u64 bits, Rounding rounding) {
  const int p = from.precision;
  const bool sign = (bits >> (from.bits - 1) & 1) != 0;
  const u64 fraction = bits & ((u64{1} << (p - 1)) - 1);
  const u64 biased = bits >> (p - 1) & ((u64{1} << (from.bits - p)) - 1);
  const u64 infinity = ((u64{1} << (to.bits - to.precision)) - 1) << (to.precision - 1);
  if (biased == (u64{1} << (from.bits - p)) - 1) {
    if (fraction != 0) return (u64{1} << (to.bits - 1)) - 1;
    return (sign ? u64{1} << (to.bits - 1) : 0) | infinity;
  }
  const u64 mantissa = biased == 0 ? fraction : fraction | u64{1} << (p - 1);
  const int exponent =
      (biased == 0 ? from.least : static_cast<int>(biased) - 1 + from.least) - (p - 1);
  return packed(to, sign, mantissa, exponent, rounding);
}

}  // namespace standin::STANDIN_TARGET
