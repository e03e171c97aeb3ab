// Scales and zero points, as given and as kernels want them.
#pragma once

#include <cstdint>
#include <optional>

#include "octavo/elementwise.hpp"
#include "ops/runs/cpu/call.hpp"

namespace octavo::detail {

struct Parameters {
  // As given.
  Op op = Op::quantize;
  DType integer = DType::s8;  // of quantize
  DType compute = DType::f32;
  DType scale_type = DType::f32;
  IntRange range;
  bool divides = true;  // quantize, fake-quantize: scales must be divisors, else only finite
  std::int64_t count = 1;
  ScanFunction scan = detail::scan<Target::scalar>;
  const void* scales = nullptr;  // null: the scalars
  double scalar_scale = 1;
  std::int32_t scalar_zero_point = 0;
  const std::int32_t* zero_points = nullptr;  // null: all 0 (set to the scalar by prepare)

  // As kernels want them.
  const void* prepared_scales = nullptr;  // in the compute type
  Extremes zero_point_range;
  std::optional<Extremes> scale_bits;  // of f32 scales, where they were scanned as divisors
  bool beyond_simd = false;            // some zero point or bound needs the reference

  float scalar_f32 = 1;
  double scalar_f64 = 1;
};

/// Rounds scales to the compute type (into `workspace`, where they are of another), refuses bad
/// ones by index, and looks whether the SIMD kernels are exact for the zero points. A null
/// workspace only checks. The caller has set the floating-point environment.
Status prepare(Parameters& parameters, void* workspace);

/// Puts prepared parameters into a call whose profile and range are set.
void set_parameters(KernelCall& call, const Parameters& parameters);

}  // namespace octavo::detail
