// What a scale must be, in words: for all backends.
#pragma once

#include <cstdint>

#include "octavo/dtype.hpp"
#include "octavo/result.hpp"

namespace octavo::detail {

struct ScaleRule {
  DType compute = DType::f32;
  bool divides = true;  // quantize, fake-quantize: scales must be divisors, else only finite
};

/// Of a scale as it came, and as it was rounded to the compute type; `index` is -1 of the one that
/// is given by value.
Error bad_scale(const ScaleRule& rule, std::int64_t index, double given, double rounded);

}  // namespace octavo::detail
