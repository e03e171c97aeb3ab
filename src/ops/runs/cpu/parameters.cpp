#include "ops/runs/cpu/parameters.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.hpp"
#include "numerics/affine.hpp"
#include "numerics/quotient.hpp"
#include "numerics/types.hpp"
#include "ops/runs/cpu/call.hpp"
#include "ops/runs/scales.hpp"

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

// Checks (and converts, unless `converted` is null) all scales, without a branch, so that it runs
// at the speed of memory.
template <bool divides, class C, class S>
bool are_good(Parameters& p, const S* scales, C* converted) {
  bool good = true;
  for (std::int64_t i = 0; i < p.count; ++i) {
    const C scale = to_compute<C>(scales[i]);
    if (converted != nullptr) converted[i] = scale;
    good &= is_good<C, divides>(scale);
  }
  return good;
}
// What is_good says of two floats it says of all between: their bits are in order.
template <bool divides>
bool are_good(Parameters& p, const float* scales, float* /*converted*/) {
  if (p.count == 0) return true;
  const Extremes bits =
      p.scan(scales, p.count, divides ? -1 : std::numeric_limits<std::int32_t>::max());
  if (divides) p.scale_bits = bits;
  return is_good<float, divides>(std::bit_cast<float>(bits.least)) &&
         is_good<float, divides>(std::bit_cast<float>(bits.most));
}

Error bad_scale(const Parameters& p, std::int64_t index, double given, double rounded) {
  return detail::bad_scale({p.compute, p.divides}, p.scales == nullptr ? -1 : index, given,
                           rounded);
}

template <class C, class S, bool divides>
Status scan_scales(Parameters& p, const S* scales, C* converted) {
  if (are_good<divides>(p, scales, converted)) return {};
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
  Status found;
  numerics::with_type(numerics::FloatTypes(), p.scale_type, [&]<DType type>() {
    found =
        scan<C>(p, static_cast<const typename numerics::Type<type>::Storage*>(p.scales), workspace);
  });
  return found;
}

template <class C>
Status prepare_scalar(Parameters& p, C& scale) {
  scale = static_cast<C>(p.scalar_scale);
  p.prepared_scales = &scale;
  const bool good = p.divides ? numerics::is_divisor(scale) : numerics::is_finite(scale);
  return good ? Status() : bad_scale(p, 0, p.scalar_scale, static_cast<double>(scale));
}

Extremes scan_ints(const Parameters& p, const void* values) {
  if (p.count > 1) return p.scan(values, p.count, -1);
  std::int32_t value = 0;
  std::memcpy(&value, values, sizeof(value));
  return {value, value};
}

bool are_beyond_simd(const Parameters& p) {
  const auto beyond = [&](std::int64_t limit) {
    return p.zero_point_range.least < -limit || p.zero_point_range.most > limit;
  };
  switch (p.op) {
    case Op::quantize:
      return beyond(max_simd_quantize_zero_point(p.integer));
    case Op::dequantize:
      return beyond(max_simd_dequantize_zero_point);
    case Op::dequantize_backward:
      return false;
    case Op::quantize_backward:
    case Op::fake_quantize:
    case Op::fake_quantize_backward:
      return beyond(max_simd_bound) || p.range.min < -max_simd_bound ||
             p.range.max > max_simd_bound;
    case Op::dynamic_range_quantize:
    case Op::dynamic_range_quantize_asymmetric:
    case Op::observe_min_max:
    case Op::observe_histogram:
    case Op::pack_weight:
    case Op::quantized_matmul:
    case Op::quantized_linear:
    case Op::quantized_linear_asymmetric:
    case Op::smoothquant_linear:
    case Op::float_linear:
    case Op::embedding:
      break;  // not elementwise: the quantize in them is one
  }
  return true;
}

// Whether numerics/quotient.hpp divides by all of them.
bool has_exact_quotient(const Parameters& p) {
  if (p.compute != DType::f32 || p.count == 0) return false;
  const Extremes bits = p.scale_bits ? *p.scale_bits : scan_ints(p, p.prepared_scales);
  return numerics::is_exact_scale(std::bit_cast<float>(bits.least)) &&
         numerics::is_exact_scale(std::bit_cast<float>(bits.most)) &&
         numerics::are_exact_bounds(p.zero_point_range.least, p.zero_point_range.most, p.range);
}

}  // namespace

// Not inlined, so that no conversion is moved out of the environment that its caller sets.
__attribute__((noinline)) Status prepare(Parameters& p, void* workspace) {
  if (p.scales == nullptr) p.zero_points = &p.scalar_zero_point;
  if (p.zero_points != nullptr && p.count > 0) p.zero_point_range = scan_ints(p, p.zero_points);
  p.beyond_simd = are_beyond_simd(p);
  const bool wide = p.compute == DType::f64;
  if (p.scales == nullptr && p.count == 1)
    return wide ? prepare_scalar(p, p.scalar_f64) : prepare_scalar(p, p.scalar_f32);
  return wide ? scan_as<double>(p, workspace) : scan_as<float>(p, workspace);
}

void set_parameters(KernelCall& call, const Parameters& p) {
  call.scale = p.prepared_scales;
  call.zero_point = p.zero_points;
  call.same_zero_points = p.zero_point_range.least == p.zero_point_range.most;
  call.exact_quotient = call.profile == Profile::onnx && has_exact_quotient(p);
}

}  // namespace octavo::detail
