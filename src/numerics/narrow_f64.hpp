// f64 rounded to f32 in integer arithmetic: for machines where an f64 instruction is slow or
// unwanted.
#pragma once

#include <bit>
#include <cstdint>

#include "numerics/half.hpp"

namespace octavo::numerics {

/// The bits of a double as a float: to nearest, ties to even, subnormals kept, every NaN canonical.
constexpr float narrow_f64(std::uint64_t bits) {
  const auto sign = static_cast<std::uint32_t>(bits >> 32U) & 0x80000000U;
  const std::uint64_t magnitude = bits & 0x7FFFFFFFFFFFFFFFU;
  const auto with_sign = [sign](std::uint32_t rest) { return std::bit_cast<float>(sign | rest); };
  if (magnitude > 0x7FF0000000000000U) return std::bit_cast<float>(std::uint32_t{canonical_nan});
  if (magnitude >= 0x47F0000000000000U) return with_sign(0x7F800000U);  // 2^128 and above
  if (magnitude >= 0x3810000000000000U) {                               // 2^-126 and above: normal
    const std::uint64_t rebased = magnitude - (std::uint64_t{896} << 52U);
    const std::uint64_t rounded = rebased + 0xFFFFFFFU + ((rebased >> 29U) & 1U);
    return with_sign(static_cast<std::uint32_t>(rounded >> 29U));  // may carry into infinity
  }
  if (magnitude <= 0x3690000000000000U) return with_sign(0);  // up to half the smallest subnormal
  const std::uint64_t significand = (magnitude & 0xFFFFFFFFFFFFFU) | 0x10000000000000U;
  const auto shift = static_cast<std::uint32_t>(926U - (magnitude >> 52U));  // 30 .. 53
  const std::uint64_t kept = significand >> shift;
  const std::uint64_t lost = significand & ((std::uint64_t{1} << shift) - 1U);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1U);
  const bool up = lost > half || (lost == half && (kept & 1U) != 0);
  return with_sign(static_cast<std::uint32_t>(kept + (up ? 1U : 0U)));
}

}  // namespace octavo::numerics
