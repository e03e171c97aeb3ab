// f16 and bf16 as bits: exact widening, rounding to nearest even with subnormals kept, every NaN
// narrowed to the canonical quiet one. Integer arithmetic, so no CPU or rounding mode matters.
#pragma once

#include <bit>
#include <cstdint>

#include "octavo/dtype.hpp"

namespace octavo::numerics {

inline constexpr std::uint32_t canonical_nan = 0x7FC00000U;

constexpr float widen(bf16 h) { return std::bit_cast<float>(std::uint32_t{h.bits} << 16U); }

constexpr bf16 narrow_bf16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7FFFFFFFU) > 0x7F800000U) return {0x7FC0U};
  return {static_cast<std::uint16_t>((u + 0x7FFFU + ((u >> 16U) & 1U)) >> 16U)};
}

constexpr float widen(f16 h) {
  const std::uint32_t sign = (h.bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (h.bits >> 10U) & 31U;
  const std::uint32_t fraction = h.bits & 0x3FFU;
  if (exponent == 31)
    return std::bit_cast<float>(fraction != 0 ? canonical_nan : sign | 0x7F800000U);
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (fraction << 13U));
  // Subnormal: fraction * 2^-24, exact in f32.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

constexpr f16 narrow_f16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (u >> 16U) & 0x8000U;
  const std::uint32_t magnitude = u & 0x7FFFFFFFU;
  const auto bits = [sign](std::uint32_t rest) {
    return f16{static_cast<std::uint16_t>(sign | rest)};
  };
  if (magnitude > 0x7F800000U) return {0x7E00U};
  if (magnitude >= 0x47800000U) return bits(0x7C00U);  // 2^16 and above, infinity included
  if (magnitude >= 0x38800000U) {                      // 2^-14 and above: normal
    const std::uint32_t rebased = magnitude - (112U << 23U);
    return bits((rebased + 0xFFFU + ((rebased >> 13U) & 1U)) >> 13U);  // may carry into infinity
  }
  if (magnitude <= 0x33000000U) return bits(0);  // up to half the smallest subnormal: ties to 0
  const std::uint32_t significand = (magnitude & 0x7FFFFFU) | 0x800000U;
  const std::uint32_t shift = 126U - (magnitude >> 23U);  // 14 .. 24
  const std::uint32_t kept = significand >> shift;
  const std::uint32_t lost = significand & ((1U << shift) - 1U);
  const std::uint32_t half = 1U << (shift - 1U);
  return bits(kept + ((lost > half || (lost == half && (kept & 1U) != 0)) ? 1U : 0U));
}

}  // namespace octavo::numerics
