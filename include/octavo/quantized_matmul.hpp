// Quantized matmul: the core of the linear plans, on activations and weights that are int8 already.
// The formula is that of linear.hpp; an s32 output is acc itself.
#pragma once

#include <cstdint>

#include "octavo/linear.hpp"

namespace octavo {

struct QuantizedMatmulDescriptor {
  std::int64_t m = 0;            ///< the most rows a run may have
  std::int64_t n = 0;            ///< columns of the output, rows of the weights
  std::int64_t k = 0;            ///< what is summed over
  DType activation = DType::s8;  ///< s8 or u8
  DType weight = DType::s8;      ///< s8, u8, s4, u4
  DType output = DType::f32;     ///< f32, f64, f16, bf16, s8, u8; s32: the sums, with no epilogue
  bool activation_zero_points = false;
  bool weight_zero_points = false;
  bool packed_weight = false;  ///< whether runs are given a PackedWeight
  Epilogue epilogue = Epilogue::none;
  Profile profile = Profile::torch;  ///< of an s8 or u8 output
  /// So many input channels share a scale (and a zero point): a multiple of 4 that divides k. 0, or
  /// k and more: all of them, one scale per output channel.
  std::int64_t group_size = 0;
  DType weight_scale = DType::f32;  ///< of scales that a packed weight in groups holds
};

/// As LinearArgs, with the activations' own parameters. An s32 output takes no scales.
struct QuantizedMatmulArgs {
  TensorRef input;                        ///< [rows, k]
  TensorRef activation_scales = {};       ///< one per row, or one; any float type
  TensorRef activation_zero_points = {};  ///< s32, likewise; only if the descriptor has them
  WeightRef weight;                       ///< [n, k], or a PackedWeight
  TensorRef weight_scales = {};           ///< as in LinearArgs
  TensorRef weight_zero_points = {};      ///< s32, likewise; only if the descriptor has them
  TensorRef bias = {};
  TensorRef residual = {};
  double output_scale = 1.0;
  std::int32_t output_zero_point = 0;
  TensorMut output;  ///< [rows, n]
};

using QuantizedMatmulPlan = LinearPlan<QuantizedMatmulDescriptor, QuantizedMatmulArgs>;

}  // namespace octavo
