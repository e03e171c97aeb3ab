// SmoothQuant linear: activations that are int8 already, with one static scale (and zero point)
// that belongs to the layer and so to the descriptor. The formula is that of linear.hpp.
//
//     auto plan = SmoothQuantLinearPlan::select(stream, {m, n, k, act_scale});    // s8 x s8 -> f32
#pragma once

#include <cstdint>

#include "octavo/linear.hpp"

namespace octavo {

struct SmoothQuantLinearDescriptor {
  std::int64_t m = 0;            ///< the most rows a run may have
  std::int64_t n = 0;            ///< output channels
  std::int64_t k = 0;            ///< input channels
  double act_scale = 1.0;        ///< finite; zero and negative ones are valid
  DType activation = DType::s8;  ///< s8 or u8
  DType weight = DType::s8;      ///< s8, u8, s4, u4
  DType output = DType::f32;     ///< f32, f64, f16, bf16, s8, u8
  std::int32_t act_zero_point = 0;
  bool weight_zero_points = false;
  bool packed_weight = false;  ///< whether runs are given a PackedWeight
  Epilogue epilogue = Epilogue::none;
  Profile profile = Profile::torch;  ///< of an s8 or u8 output
  /// So many input channels share a scale (and a zero point): a multiple of 4 that divides k. 0, or
  /// k and more: all of them, one scale per output channel.
  std::int64_t group_size = 0;
  DType weight_scale = DType::f32;  ///< of scales that a packed weight in groups holds
};

using SmoothQuantLinearPlan = LinearPlan<SmoothQuantLinearDescriptor, LinearArgs>;

}  // namespace octavo
