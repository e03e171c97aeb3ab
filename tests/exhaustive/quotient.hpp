// Proof that the SIMD kernels' quotient rounds to the same integer as a division
// (src/numerics/quotient.hpp: hi, lo and q).
//
// Powers of two scale through all of it without rounding: s * hi has 48 bits, so lo, where it is
// not 0, is at least 2^-48 * hi, and neither it nor x * lo is subnormal in that range (for |x / s|
// < 1/4 both sides are 0 anyway). All of it is odd in x: s in [1, 2) and x > 0 stand for the rest.
// q is within an ulp of x / s, so the two sides can only differ where x / s is about that close to
// a boundary k + 1/2. Hence for each of the 2^23 significands s and each k the floats nearest (k +
// 1/2) * s are tried, on both sides and beyond that distance: x moves the quotient by half an ulp
// to two.
#pragma once

#include <cstdint>
#include <vector>

namespace octavo::exhaustive {

struct QuotientMismatch {
  float x;
  float s;
  float quotient;  // as the kernels compute it
  float division;
};

inline constexpr std::uint32_t quotient_significands = 1U << 23;
inline constexpr int quotient_boundaries = 1024;
inline constexpr int quotient_reach = 4;  // ulps of x on each side

/// Whether this CPU has a fused multiply-add; without one the proof would take days.
[[nodiscard]] bool quotient_supported();

/// Tries the significands first..last-1 (s = 1 + i / 2^23); returns the number of mismatches and
/// appends a few of them to `examples`.
std::uint64_t try_quotients(std::uint32_t first, std::uint32_t last,
                            std::vector<QuotientMismatch>& examples);

}  // namespace octavo::exhaustive
