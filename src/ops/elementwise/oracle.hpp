// The numerical contract, written a second time and as plainly as possible: what the tests compare
// every kernel (the scalar reference too) with. It shares no code with the library's arithmetic.
//
// One element at a time; floats are read from and written to their bits; integers are exact.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "octavo/elementwise.hpp"

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

/// The operations, in compute type C (float or double).
template <class C>
struct Oracle {
  C scale;
  std::int64_t zero_point;
  std::int64_t q_min;
  std::int64_t q_max;
  Profile profile;

  [[nodiscard]] C divide(C x) const {
    return profile == Profile::onnx ? x / scale : x * (C{1} / scale);
  }
  /// rint(v) + zero_point. Beyond 2^40 any integer stands for all: no int32 brings it back.
  [[nodiscard]] std::int64_t level(C x) const {
    const C limit = static_cast<C>(std::int64_t{1} << 40);
    const C v = std::nearbyint(divide(x));
    const C bounded = v > limit ? limit : v < -limit ? -limit : v;
    return static_cast<std::int64_t>(bounded) + zero_point;
  }
  [[nodiscard]] std::int64_t clamp(std::int64_t q) const {
    return q < q_min ? q_min : q > q_max ? q_max : q;
  }

  [[nodiscard]] bool mask(C x) const {
    return !std::isnan(x) && level(x) >= q_min && level(x) <= q_max;
  }
  [[nodiscard]] std::int64_t quantize(C x) const {
    return clamp(std::isnan(x) ? zero_point : level(x));
  }
  [[nodiscard]] C dequantize(std::int64_t q) const {
    return scale * static_cast<C>(q - zero_point);
  }
  [[nodiscard]] C fake_quantize(C x) const { return std::isnan(x) ? x : dequantize(quantize(x)); }
  [[nodiscard]] C quantize_backward(C x, C dy) const { return mask(x) ? divide(dy) : C{0}; }
  [[nodiscard]] C fake_quantize_backward(C x, C dy) const { return mask(x) ? dy : C{0}; }
  [[nodiscard]] C dequantize_backward(C dy) const { return dy * scale; }
};

}  // namespace octavo::testing
