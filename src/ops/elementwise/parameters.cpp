#include "ops/elementwise/parameters.hpp"

#include <cmath>
#include <limits>

#include "core/check.hpp"
#include "core/fp_environment.hpp"
#include "numerics/affine.hpp"
#include "numerics/half.hpp"
#include "ops/elementwise/kernels.hpp"

namespace octavo::detail {
namespace {

template <class C, class S>
C to_compute(S scale) {
  if constexpr (requires { numerics::widen(scale); }) {
    return static_cast<C>(numerics::widen(scale));
  } else {
    return static_cast<C>(scale);
  }
}

template <class C, bool divides>
bool is_good(C scale) {
  return divides ? numerics::is_divisor(scale) : numerics::is_finite(scale);
}

// `given` is named as it came, and as it was rounded to the compute type.
Error bad_scale(const Parameters& p, std::int64_t index, double given, double rounded) {
  const std::string scale = given == rounded || std::isnan(given)
                                ? fmt::format("{}", given)
                                : fmt::format("{} ({} in {})", given, rounded, name(p.compute));
  const char* expected =
      p.divides ? "a finite number above 0 with a finite reciprocal" : "a finite number";
  if (p.scales == nullptr)
    return invalid("scale",
                   fmt::format("expected {} in {}, got {}", expected, name(p.compute), scale));
  return invalid("scales", fmt::format("expected {} in {} at every index, got {} at index {}",
                                       expected, name(p.compute), scale, index));
}

// Checks (and converts, unless `converted` is null) all scales. The first pass has no branch, so
// that it runs at the speed of memory.
template <class C, class S, bool divides>
Status scan_scales(const Parameters& p, const S* scales, C* converted) {
  bool good = true;
  for (std::int64_t i = 0; i < p.count; ++i) {
    const C scale = to_compute<C>(scales[i]);
    if (converted != nullptr) converted[i] = scale;
    good &= is_good<C, divides>(scale);
  }
  if (good) return {};
  std::int64_t i = 0;
  while (is_good<C, divides>(to_compute<C>(scales[i]))) ++i;
  return bad_scale(p, i, to_compute<double>(scales[i]),
                   static_cast<double>(to_compute<C>(scales[i])));
}

template <class C, class S>
Status scan(Parameters& p, const S* scales, void* workspace) {
  C* converted = nullptr;
  if constexpr (std::is_same_v<C, S>) {
    p.prepared_scales = scales;
  } else {
    converted = static_cast<C*>(workspace);
    p.prepared_scales = converted;
  }
  return p.divides ? scan_scales<C, S, true>(p, scales, converted)
                   : scan_scales<C, S, false>(p, scales, converted);
}

template <class C>
Status scan_as(Parameters& p, void* workspace) {
  switch (p.scale_type) {
    case DType::f32:
      return scan<C>(p, static_cast<const float*>(p.scales), workspace);
    case DType::f64:
      return scan<C>(p, static_cast<const double*>(p.scales), workspace);
    case DType::f16:
      return scan<C>(p, static_cast<const f16*>(p.scales), workspace);
    default:
      return scan<C>(p, static_cast<const bf16*>(p.scales), workspace);
  }
}

template <class C>
Status prepare_scalar(Parameters& p, C& scale) {
  scale = static_cast<C>(p.scalar_scale);
  p.prepared_scales = &scale;
  const bool good = p.divides ? numerics::is_divisor(scale) : numerics::is_finite(scale);
  return good ? Status() : bad_scale(p, 0, p.scalar_scale, static_cast<double>(scale));
}

bool zero_points_beyond_simd(const Parameters& p) {
  std::int64_t low = 0;
  std::int64_t high = 0;
  if (p.zero_points != nullptr) {
    std::int32_t least = std::numeric_limits<std::int32_t>::max();
    std::int32_t most = std::numeric_limits<std::int32_t>::min();
    for (std::int64_t i = 0; i < p.count; ++i) {
      least = std::min(least, p.zero_points[i]);
      most = std::max(most, p.zero_points[i]);
    }
    low = least;
    high = most;
  }
  const auto beyond = [&](std::int64_t limit) { return low < -limit || high > limit; };
  switch (p.op) {
    case Op::quantize:
      return beyond(max_simd_quantize_zero_point);
    case Op::dequantize:
      return beyond(max_simd_dequantize_zero_point);
    case Op::dequantize_backward:
      return false;
    default:
      return beyond(max_simd_bound) || p.range.min < -max_simd_bound ||
             p.range.max > max_simd_bound;
  }
}

}  // namespace

// Not inlined, so that no conversion is moved out of the environment that its caller sets.
__attribute__((noinline)) Status prepare_here(Parameters& p, void* workspace) {
  if (p.scales == nullptr) p.zero_points = &p.scalar_zero_point;
  if (p.count > 0) p.beyond_simd = zero_points_beyond_simd(p);
  const bool wide = p.compute == DType::f64;
  if (p.scales == nullptr && p.count == 1)
    return wide ? prepare_scalar(p, p.scalar_f64) : prepare_scalar(p, p.scalar_f32);
  return wide ? scan_as<double>(p, workspace) : scan_as<float>(p, workspace);
}

Status prepare(Parameters& p, void* workspace) {
  const FpEnvironment environment;
  return prepare_here(p, workspace);
}

}  // namespace octavo::detail
