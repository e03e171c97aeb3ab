// Random numbers, the same everywhere, and floats of all sorts.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "testing/floats.hpp"

namespace octavo::testing {

/// splitmix64: a good sequence from any seed, in five lines.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

/// The bits of significand * 2^exponent, cut off (not rounded) to the format, infinity included.
[[nodiscard]] inline std::uint64_t pack(DType t, unsigned __int128 significand, int exponent) {
  const FloatFormat f = format_of(t);
  if (significand == 0) return 0;
  const auto high = static_cast<std::uint64_t>(significand >> 64);
  const auto bits_in = [](std::uint64_t n) { return 64 - std::countl_zero(n); };
  const int width =
      high != 0 ? 64 + bits_in(high) : bits_in(static_cast<std::uint64_t>(significand));
  const int last_place =
      std::max(width - 1 - f.significand, 1 - f.bias() - f.significand - exponent);
  if (last_place >= width) return 0;
  significand = last_place >= 0 ? significand >> last_place : significand << -last_place;
  exponent += last_place;
  if (exponent + f.significand > f.bias()) return f.infinity();
  const auto below = static_cast<std::uint64_t>(exponent + f.significand + f.bias() - 1);
  return (below << f.significand) + static_cast<std::uint64_t>(significand);
}

/// NaNs of both signs and kinds, infinities, zeros, the ends of the subnormals and normals.
[[nodiscard]] inline std::uint64_t special_bits(DType t, Random& random) {
  const FloatFormat f = format_of(t);
  const std::uint64_t payload = random.next() & ((std::uint64_t{1} << f.significand) - 1);
  const std::uint64_t one = std::uint64_t{1} << f.significand;
  const std::array<std::uint64_t, 12> table{
      f.infinity() | payload | 1,  // quiet or signalling
      f.nan(),
      f.infinity() | 1,
      f.infinity(),
      f.infinity() - 1,  // the largest finite number
      0,
      1,
      one - 1,  // the largest subnormal
      one,      // the smallest normal
      payload,
      f.infinity() - 1 - (payload & 0xff),
      static_cast<std::uint64_t>(f.bias()) << f.significand,
  };
  const std::uint64_t sign = random.below(2) != 0 ? f.sign() : 0;
  return sign | table[random.below(table.size())];
}

}  // namespace octavo::testing
