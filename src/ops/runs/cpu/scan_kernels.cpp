// The extremes of an array of 32-bit integers, for every SIMD target.
#include "simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/runs/cpu/scan_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "ops/runs/cpu/call.hpp"
#include "simd/vector-inl.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

inline detail::Extremes Scan(const void* values, std::int64_t n, std::int32_t mask) {
  const hn::ScalableTag<std::int32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* from = static_cast<const std::int32_t*>(values);
  // What is left after the last whole vector, and before that what changes nothing: the first.
  HWY_ALIGN std::int32_t rest[hn::MaxLanes(d)];
  std::memcpy(rest, values, sizeof(std::int32_t));
  std::fill(rest + 1, rest + lanes, rest[0]);
  if (n % lanes != 0)
    std::memcpy(rest, from + (n - n % lanes),
                static_cast<size_t>(n % lanes) * sizeof(std::int32_t));
  const auto bits = hn::Set(d, mask);
  auto least = hn::And(hn::Load(d, rest), bits);
  auto most = least;
  for (std::int64_t i = 0; i + lanes <= n; i += lanes) {
    const auto v = hn::And(hn::LoadU(d, from + i), bits);
    least = hn::Min(least, v);
    most = hn::Max(most, v);
  }
  return {hn::GetLane(hn::MinOfLanes(d, least)), hn::GetLane(hn::MaxOfLanes(d, most))};
}

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace octavo::detail {
template <>
Extremes scan<HWY_NAMESPACE::this_target>(const void* values, std::int64_t n, std::int32_t mask) {
  return HWY_NAMESPACE::Scan(values, n, mask);
}
}  // namespace octavo::detail
#endif  // OCTAVO_SIMD_PASS

#if HWY_ONCE
namespace octavo::detail {

template <>
Extremes scan<Target::scalar>(const void* values, std::int64_t n, std::int32_t mask) {
  const auto at = [&](std::int64_t i) {
    std::int32_t value = 0;
    std::memcpy(&value, static_cast<const unsigned char*>(values) + i * 4, 4);
    return value & mask;
  };
  Extremes e{at(0), at(0)};
  for (std::int64_t i = 1; i < n; ++i) {
    e.least = std::min(e.least, at(i));
    e.most = std::max(e.most, at(i));
  }
  return e;
}

}  // namespace octavo::detail
#endif  // HWY_ONCE
