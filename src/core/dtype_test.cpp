// The table of element types, and the conversions of f16 and bf16 against tables of all their
// values.
#include "octavo/dtype.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace octavo {
namespace {

TEST(DType, TableIsPinned) {
  const struct {
    DType type;
    int value;
    const char* name;
    int bits;
    bool floating, quantized, packed;
    IntRange range;
    DType compute;
  } rows[] = {
      {DType::f32, 0, "f32", 32, true, false, false, {0, 0}, DType::f32},
      {DType::f64, 1, "f64", 64, true, false, false, {0, 0}, DType::f64},
      {DType::f16, 2, "f16", 16, true, false, false, {0, 0}, DType::f32},
      {DType::bf16, 3, "bf16", 16, true, false, false, {0, 0}, DType::f32},
      {DType::s8, 4, "s8", 8, false, true, false, {-128, 127}, DType::f32},
      {DType::u8, 5, "u8", 8, false, true, false, {0, 255}, DType::f32},
      {DType::s4, 6, "s4", 4, false, true, true, {-8, 7}, DType::f32},
      {DType::u4, 7, "u4", 4, false, true, true, {0, 15}, DType::f32},
      {DType::s32, 8, "s32", 32, false, false, false, {INT32_MIN, INT32_MAX}, DType::f32},
      {DType::s16, 9, "s16", 16, false, true, false, {-32768, 32767}, DType::f32},
  };
  EXPECT_EQ(std::size(rows), std::size_t{dtype_count});
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(static_cast<int>(row.type), row.value);
    EXPECT_TRUE(is_valid(row.type));
    EXPECT_EQ(name(row.type), row.name);
    EXPECT_EQ(bits(row.type), row.bits);
    EXPECT_EQ(is_float(row.type), row.floating);
    EXPECT_EQ(is_quantized(row.type), row.quantized);
    EXPECT_EQ(is_packed(row.type), row.packed);
    EXPECT_EQ(storage_range(row.type).min, row.range.min);
    EXPECT_EQ(storage_range(row.type).max, row.range.max);
    EXPECT_EQ(compute_type(row.type), row.compute);
  }
}

TEST(DType, ValuesFromOutsideAreChecked) {
  for (int value = dtype_count; value < 256; ++value) {
    const auto t = static_cast<DType>(value);
    EXPECT_FALSE(is_valid(t)) << value;
    EXPECT_EQ(name(t), "unknown") << value;
    EXPECT_FALSE(is_float(t)) << value;
    EXPECT_FALSE(is_quantized(t)) << value;
    EXPECT_FALSE(is_packed(t)) << value;
  }
}

TEST(DType, BytesOfElements) {
  EXPECT_EQ(bytes_for(DType::f64, 3), 24);
  EXPECT_EQ(bytes_for(DType::f16, 3), 6);
  EXPECT_EQ(bytes_for(DType::u8, 3), 3);
  for (const DType t : {DType::s4, DType::u4}) {
    EXPECT_EQ(bytes_for(t, 0), 0);
    EXPECT_EQ(bytes_for(t, 1), 1);
    EXPECT_EQ(bytes_for(t, 2), 1);
    EXPECT_EQ(bytes_for(t, 3), 2);
  }
  EXPECT_EQ(bytes_for(DType::f32, std::int64_t{1} << 33), std::int64_t{1} << 35);
  // More than can be counted are as many as no memory has, and less than nothing is nothing.
  EXPECT_EQ(bytes_for(DType::f64, INT64_MAX), INT64_MAX);
  EXPECT_EQ(bytes_for(DType::f64, std::int64_t{1} << 60), INT64_MAX);
  EXPECT_EQ(bytes_for(DType::f64, (std::int64_t{1} << 60) - 1), INT64_MAX - 7);
  EXPECT_EQ(bytes_for(DType::s8, INT64_MAX), INT64_MAX);
  EXPECT_EQ(bytes_for(DType::s4, INT64_MAX), std::int64_t{1} << 62);
  for (const DType t : {DType::f64, DType::s8, DType::s4}) {
    EXPECT_EQ(bytes_for(t, -1), 0);
    EXPECT_EQ(bytes_for(t, INT64_MIN), 0);
  }
  static_assert(bytes_for(DType::f64, INT64_MAX) == INT64_MAX);
}

template <class T>
void expect_trait(DType expected) {
  EXPECT_EQ(dtype_of<T>, expected);
  EXPECT_EQ(static_cast<int>(sizeof(T)) * 8, is_packed(expected) ? 8 : bits(expected));
}

TEST(DType, TraitsOfElements) {
  expect_trait<float>(DType::f32);
  expect_trait<double>(DType::f64);
  expect_trait<f16>(DType::f16);
  expect_trait<bf16>(DType::bf16);
  expect_trait<std::int8_t>(DType::s8);
  expect_trait<std::uint8_t>(DType::u8);
  expect_trait<s4x2>(DType::s4);
  expect_trait<u4x2>(DType::u4);
  expect_trait<std::int16_t>(DType::s16);
  expect_trait<std::int32_t>(DType::s32);
  static_assert(!Element<long double> && !Element<bool> && !Element<std::int64_t>);
}

float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// A 16-bit format, by its definition: mantissa * 2^exponent in double.
template <class T>
struct Format;
template <>
struct Format<f16> {
  static constexpr int mantissa_bits = 10, bias = 15;
  static constexpr std::uint16_t inf = 0x7c00, nan = 0x7e00;
  static f16 round(float x) { return to_f16(x); }
};
template <>
struct Format<bf16> {
  static constexpr int mantissa_bits = 7, bias = 127;
  static constexpr std::uint16_t inf = 0x7f80, nan = 0x7fc0;
  static bf16 round(float x) { return to_bf16(x); }
};

// The value of a non-negative pattern. `inf` reads as the next power of two, the value at which
// rounding to nearest overflows.
template <class T>
double decode(std::uint16_t pattern) {
  using F = Format<T>;
  const int exponent = pattern >> F::mantissa_bits;
  const int mantissa = pattern & ((1 << F::mantissa_bits) - 1);
  const int implied = exponent == 0 ? 0 : 1 << F::mantissa_bits;
  return std::ldexp(implied + mantissa, std::max(exponent, 1) - F::bias - F::mantissa_bits);
}

template <class T>
class Conversion : public testing::Test {
 protected:
  using F = Format<T>;
  Conversion() {
    for (std::uint32_t p = 0; p <= F::inf; ++p)
      values_.push_back(decode<T>(static_cast<std::uint16_t>(p)));
  }

  // The nearest pattern by comparing distances, which are exact in double for floats near a
  // 16-bit value and at worst correctly ordered elsewhere; ties go to the even pattern.
  [[nodiscard]] std::uint16_t nearest(float x) const {
    if (std::isnan(x)) return F::nan;
    const double a = std::fabs(static_cast<double>(x));
    const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
    const auto above = std::upper_bound(values_.begin(), values_.end(), a);
    if (above == values_.end()) return static_cast<std::uint16_t>(F::inf | sign);
    const auto high = static_cast<std::uint32_t>(above - values_.begin());
    const std::uint32_t low = high - 1;
    const double down = a - values_[low];
    const double up = values_[high] - a;
    const bool take_high = up < down || (up == down && high % 2 == 0);
    return static_cast<std::uint16_t>((take_high ? high : low) | sign);
  }

  void expect_nearest(float x) const {
    ASSERT_EQ(F::round(x).bits, nearest(x))
        << x << " = 0x" << std::hex << std::bit_cast<std::uint32_t>(x);
    ASSERT_EQ(F::round(-x).bits, nearest(-x))
        << -x << " = 0x" << std::hex << std::bit_cast<std::uint32_t>(-x);
  }

  std::vector<double> values_;
};

using SixteenBit = testing::Types<f16, bf16>;
TYPED_TEST_SUITE(Conversion, SixteenBit);

TYPED_TEST(Conversion, WidensEveryPatternExactly) {
  using F = Format<TypeParam>;
  for (std::uint32_t p = 0; p < 0x10000; ++p) {
    const auto magnitude = static_cast<std::uint16_t>(p & 0x7fff);
    const float got = to_float(TypeParam{static_cast<std::uint16_t>(p)});
    if (magnitude > F::inf) {
      ASSERT_TRUE(std::isnan(got)) << std::hex << p;
      continue;
    }
    const double value = magnitude == F::inf ? std::numeric_limits<double>::infinity()
                                             : decode<TypeParam>(magnitude);
    ASSERT_EQ(static_cast<double>(got), p < 0x8000 ? value : -value) << std::hex << p;
    ASSERT_EQ(std::signbit(got), p >= 0x8000) << std::hex << p;
  }
}

TYPED_TEST(Conversion, RoundTripsEveryPattern) {
  using F = Format<TypeParam>;
  for (std::uint32_t p = 0; p < 0x10000; ++p) {
    const TypeParam value{static_cast<std::uint16_t>(p)};
    const bool nan = (p & 0x7fff) > F::inf;
    ASSERT_EQ(F::round(to_float(value)).bits, nan ? F::nan : p) << std::hex << p;
  }
}

// Values, midpoints and the floats next to both: subnormals, powers of two and overflow included.
TYPED_TEST(Conversion, RoundsToNearestEvenAroundEveryMidpoint) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  for (std::size_t p = 0; p + 1 < this->values_.size(); ++p) {
    const double low = this->values_[p];
    const double middle = low + (this->values_[p + 1] - low) / 2;
    for (const double centre : {low, middle}) {
      const auto x = static_cast<float>(centre);
      ASSERT_EQ(static_cast<double>(x), centre);
      for (const float near : {std::nextafter(x, -inf), x, std::nextafter(x, inf)})
        ASSERT_NO_FATAL_FAILURE(this->expect_nearest(near));
    }
  }
}

TYPED_TEST(Conversion, RoundsFloatsOfEveryExponent) {
  std::mt19937 random(1);
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent)
    for (int i = 0; i < 256; ++i)
      ASSERT_NO_FATAL_FAILURE(this->expect_nearest(
          float_of(exponent << 23 | static_cast<std::uint32_t>(random() & 0x7fffff))));
  this->expect_nearest(std::numeric_limits<float>::max());
  this->expect_nearest(std::numeric_limits<float>::infinity());
  this->expect_nearest(std::numeric_limits<float>::denorm_min());
}

TYPED_TEST(Conversion, EveryKindOfNanBecomesTheCanonicalOne) {
  using F = Format<TypeParam>;
  for (const std::uint32_t sign : {0u, 0x80000000u})
    for (const std::uint32_t payload :
         {1u, 0x1fffu, 0x2000u, 0xffffu, 0x10000u, 0x3fffffu, 0x400000u, 0x400001u, 0x7fffffu}) {
      const auto nan = float_of(sign | 0x7f800000u | payload);
      EXPECT_EQ(F::round(nan).bits, F::nan) << std::hex << (sign | payload);
    }
  for (const std::uint32_t sign : {0u, 0x8000u})
    for (std::uint32_t p = F::inf + 1u; p < 0x8000; ++p) {
      const float wide = to_float(TypeParam{static_cast<std::uint16_t>(sign | p)});
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide), 0x7fc00000u) << std::hex << (sign | p);
    }
}

TYPED_TEST(Conversion, IgnoresTheRoundingMode) {
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::vector<float> inputs;
    for (std::size_t p = 0; p + 1 < this->values_.size(); p += 7) {
      const double low = this->values_[p];
      inputs.push_back(static_cast<float>(low + (this->values_[p + 1] - low) * 0.5));
      inputs.push_back(static_cast<float>(low + (this->values_[p + 1] - low) * 0.75));
    }
    std::vector<TypeParam> got(inputs.size());
    ASSERT_EQ(std::fesetround(mode), 0);
    std::transform(inputs.begin(), inputs.end(), got.begin(), Format<TypeParam>::round);
    ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      ASSERT_EQ(got[i].bits, this->nearest(inputs[i])) << inputs[i] << " in mode " << mode;
  }
}

}  // namespace
}  // namespace octavo
