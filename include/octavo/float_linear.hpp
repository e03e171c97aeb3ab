// Linear layers of floats, with sums in an order that is part of the result.
//
//     y_j = fma(x[m,k], w[n,k], y_j) over the k of segment j, in ascending order, from +0
//     y   = the segments added as a tree; + bias[n]; and then as in linear.hpp
//
// All in f32, to which f16 and bf16 widen exactly. numerics.md has the segments. The same bits on
// every CPU, for any number of threads and any batch; for the heads of quantized models, and as the
// model that they are compared with.
#pragma once

#include <cstdint>

#include "octavo/linear.hpp"

namespace octavo {

struct FloatLinearDescriptor {
  std::int64_t m = 0;             ///< the most rows a run may have
  std::int64_t n = 0;             ///< output channels
  std::int64_t k = 0;             ///< input channels
  DType activation = DType::f32;  ///< f32, f16, bf16
  DType weight = DType::f32;      ///< f32, f16, bf16
  DType output = DType::f32;      ///< f32, f16, bf16, s8, u8
  bool packed_weight = false;     ///< whether runs are given a PackedWeight
  Epilogue epilogue = Epilogue::none;
  Profile profile = Profile::torch;  ///< of an s8 or u8 output
};

/// As LinearArgs, without scales of weights.
struct FloatLinearArgs {
  TensorRef input;          ///< [rows, k]
  WeightRef weight;         ///< [n, k], or a PackedWeight
  TensorRef bias = {};      ///< n of any float type
  TensorRef residual = {};  ///< [rows, n] of the output's type (f32 for s8 and u8)
  double output_scale = 1.0;
  std::int32_t output_zero_point = 0;
  TensorMut output;  ///< [rows, n]
};

using FloatLinearPlan = LinearPlan<FloatLinearDescriptor, FloatLinearArgs>;

}  // namespace octavo
