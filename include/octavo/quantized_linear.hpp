// Quantized linear: float activations, quantized per row on the fly, times weights of 8 or 4 bits.
//
//     s_a[m], zp_a[m], a[m,:] = dynamic range of input[m,:]      (dynamic_range_quantize.hpp)
//
// and then the formula of linear.hpp. A row gives the same bits in any batch.
#pragma once

#include <cstdint>
#include <optional>

#include "octavo/dynamic_range_quantize.hpp"
#include "octavo/linear.hpp"

namespace octavo {

struct QuantizedLinearDescriptor {
  std::int64_t m = 0;             ///< the most rows a run may have
  std::int64_t n = 0;             ///< output channels
  std::int64_t k = 0;             ///< input channels
  DType activation = DType::f32;  ///< f32, f64, f16, bf16
  DType weight = DType::s8;       ///< s8, u8, s4, u4
  DType output = DType::f32;      ///< f32, f64, f16, bf16, s8, u8
  RangeMode mode = RangeMode::symmetric;
  /// What activations are quantized to: s8 or u8, or s16 (symmetric), which loses next to nothing.
  /// Default: s8 symmetric, u8 asymmetric.
  std::optional<DType> quantized = std::nullopt;
  bool weight_zero_points = false;
  bool packed_weight = false;  ///< whether runs are given a PackedWeight
  Epilogue epilogue = Epilogue::none;
  Profile profile = Profile::torch;
  /// So many input channels share a scale (and a zero point): a multiple of 4 that divides k. 0, or
  /// k and more: all of them, one scale per output channel.
  std::int64_t group_size = 0;
  DType weight_scale = DType::f32;  ///< of scales that a packed weight in groups holds
};

using QuantizedLinearPlan = LinearPlan<QuantizedLinearDescriptor, LinearArgs>;

}  // namespace octavo
