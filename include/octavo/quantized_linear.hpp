// Quantized linear, W8A8: float activations, quantized per row on the fly, times int8 weights.
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
  DType weight = DType::s8;       ///< s8 or u8
  DType output = DType::f32;      ///< f32, f64, f16, bf16, s8, u8
  RangeMode mode = RangeMode::symmetric;
  std::optional<DType> quantized = std::nullopt;  ///< default: s8 symmetric, u8 asymmetric
  bool weight_zero_points = false;
  bool packed_weight = false;  ///< whether runs are given a PackedWeight
  Epilogue epilogue = Epilogue::none;
  Profile profile = Profile::torch;
};

using QuantizedLinearPlan = LinearPlan<QuantizedLinearDescriptor, LinearArgs>;

}  // namespace octavo
