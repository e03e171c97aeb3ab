// Products of floats, on weights in panels (panels.hpp, layout 3): what a kernel is.
#pragma once

#include <cstdint>

#include "octavo/dtype.hpp"
#include "ops/linear/cpu/dot.hpp"
#include "simd/vector_targets.hpp"

namespace octavo::detail {

/// values[r,c] = fma(x[r,k], w[c,k], values[r,c]) for k from 0 up to `count`, from +0 on.
struct FloatCall {
  const float* activations = nullptr;  // [count][rows]
  int rows = 0;
  const void* weights[2] = {};  // of two panels, [count][32]; or of one, twice
  std::int64_t count = 0;
  float* values = nullptr;  // group_columns apart; those of both are written
};

inline constexpr int float_rows = 6;  // of a call, at most

using FloatFunction = void (*)(const FloatCall&);

/// Null for a type of weights that a target has no kernel for.
template <Target target>
FloatFunction find_float(DType weight);

#define OCTAVO_DECLARE(target) \
  template <>                  \
  FloatFunction find_float<target>(DType weight)
OCTAVO_VECTOR_TARGETS(OCTAVO_DECLARE);
#undef OCTAVO_DECLARE

}  // namespace octavo::detail
