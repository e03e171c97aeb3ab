// Floats of any format as bits, without a line of the library's arithmetic.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "octavo/dtype.hpp"

namespace octavo::testing {

/// A binary floating-point format of at most 64 bits.
struct FloatFormat {
  int bytes;
  int significand;  // stored bits
  int exponent;     // stored bits

  [[nodiscard]] constexpr int bias() const { return (1 << (exponent - 1)) - 1; }
  [[nodiscard]] constexpr std::uint64_t infinity() const {
    return ((std::uint64_t{1} << exponent) - 1) << significand;
  }
  [[nodiscard]] constexpr std::uint64_t sign() const {
    return std::uint64_t{1} << (exponent + significand);
  }
  [[nodiscard]] constexpr std::uint64_t nan() const {  // the canonical quiet NaN
    return infinity() | std::uint64_t{1} << (significand - 1);
  }
};

[[nodiscard]] constexpr FloatFormat format_of(DType t) {
  switch (t) {
    case DType::f64:
      return {8, 52, 11};
    case DType::f16:
      return {2, 10, 5};
    case DType::bf16:
      return {2, 7, 8};
    default:
      return {4, 23, 8};
  }
}

[[nodiscard]] inline std::uint64_t load_bits(const void* data, int bytes, std::int64_t i) {
  std::uint64_t bits = 0;  // all our machines are little-endian
  std::memcpy(&bits, static_cast<const std::byte*>(data) + i * bytes,
              static_cast<std::size_t>(bytes));
  return bits;
}
inline void store_bits(void* data, int bytes, std::int64_t i, std::uint64_t bits) {
  std::memcpy(static_cast<std::byte*>(data) + i * bytes, &bits, static_cast<std::size_t>(bytes));
}

/// The number that `bits` stand for. Exact: every format fits in a double.
[[nodiscard]] inline double decode(DType t, std::uint64_t bits) {
  if (t == DType::f64) return std::bit_cast<double>(bits);
  if (t == DType::f32) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  const FloatFormat f = format_of(t);
  const std::uint64_t magnitude = bits & (f.sign() - 1);
  const double sign = (bits & f.sign()) != 0 ? -1.0 : 1.0;
  if (magnitude > f.infinity()) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude == f.infinity()) return sign * std::numeric_limits<double>::infinity();
  const auto exponent = static_cast<int>(magnitude >> f.significand);
  auto significand =
      static_cast<std::int64_t>(magnitude & ((std::uint64_t{1} << f.significand) - 1));
  if (exponent > 0) significand += std::int64_t{1} << f.significand;
  return sign * std::ldexp(static_cast<double>(significand),
                           (exponent > 0 ? exponent : 1) - f.bias() - f.significand);
}

/// `value` rounded once to the format, to nearest even, subnormals kept; NaN is canonical.
[[nodiscard]] inline std::uint64_t encode(DType t, double value) {
  const FloatFormat f = format_of(t);
  if (std::isnan(value)) return f.nan();
  if (t == DType::f64) return std::bit_cast<std::uint64_t>(value);
  if (t == DType::f32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  const std::uint64_t sign = std::signbit(value) ? f.sign() : 0;
  if (value == 0) return sign;
  if (std::isinf(value)) return sign | f.infinity();
  int exponent = std::ilogb(value);
  if (exponent > f.bias()) return sign | f.infinity();
  if (exponent < 1 - f.bias()) exponent = 1 - f.bias();
  // In units of the last place; 2^significand carries into the exponent as it should.
  const double units = std::nearbyint(std::ldexp(std::fabs(value), f.significand - exponent));
  const auto below = static_cast<std::uint64_t>(exponent + f.bias() - 1);
  return sign | ((below << f.significand) + static_cast<std::uint64_t>(units));
}

}  // namespace octavo::testing
