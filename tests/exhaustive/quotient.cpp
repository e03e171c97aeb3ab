#include "quotient.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "numerics/quotient.hpp"

namespace octavo::exhaustive {
namespace {

// To nearest even, for |v| < 2^22. An addition vectorises everywhere; std::rint does not.
inline float round_small(float v) {
  constexpr float shift = 0x1.8p23F;
  return (v + shift) - shift;
}

// 1 / s as the sum of two floats.
struct Reciprocal {
  float hi;
  float lo;
  explicit Reciprocal(float s) : hi(1.0F / s), lo(numerics::reciprocal_lack(s, hi)) {}
};

inline float quotient(float x, const Reciprocal& r) { return __builtin_fmaf(x, r.hi, x * r.lo); }

inline float candidate(int k, int ulps, float s) {
  const float x = (static_cast<float>(k) + 0.5F) * s;
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(x) + ulps);
}

// How many candidates of one significand fail. Inlined into one function per instruction set, where
// the loop over k becomes vectors.
[[gnu::always_inline]] inline std::uint32_t failures(float s) {
  const Reciprocal reciprocal(s);
  std::int32_t count = 0;
  for (int ulps = -quotient_reach; ulps <= quotient_reach; ++ulps)
    for (int k = 0; k < quotient_boundaries; ++k) {
      const float x = candidate(k, ulps, s);
      count += round_small(quotient(x, reciprocal)) != round_small(x / s) ? 1 : 0;
    }
  return static_cast<std::uint32_t>(count);
}

#if defined(__x86_64__)
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]] std::uint32_t failures_avx512(float s) {
  return failures(s);
}
[[gnu::target("avx2,fma")]] std::uint32_t failures_avx2(float s) { return failures(s); }

using Failures = std::uint32_t (*)(float);
Failures best_failures() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return failures_avx512;
  return failures_avx2;
}
#else
std::uint32_t failures_here(float s) { return failures(s); }
auto best_failures() { return failures_here; }
#endif

void collect(float s, std::vector<QuotientMismatch>& examples) {
  constexpr std::size_t enough = 10;
  const Reciprocal reciprocal(s);
  for (int k = 0; k < quotient_boundaries; ++k)
    for (int ulps = -quotient_reach; ulps <= quotient_reach; ++ulps) {
      const float x = candidate(k, ulps, s);
      const float q = quotient(x, reciprocal);
      if (std::nearbyint(q) != std::nearbyint(x / s) && examples.size() < enough)
        examples.push_back({x, s, q, x / s});
    }
}

}  // namespace

bool quotient_supported() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

std::uint64_t try_quotients(std::uint32_t first, std::uint32_t last,
                            std::vector<QuotientMismatch>& examples) {
  const auto count = best_failures();
  std::uint64_t total = 0;
  for (std::uint32_t i = first; i < last; ++i) {
    const float s = std::bit_cast<float>(std::bit_cast<std::uint32_t>(1.0F) | i);
    const std::uint32_t failed = count(s);
    if (failed != 0) collect(s, examples);
    total += failed;
  }
  return total;
}

}  // namespace octavo::exhaustive
