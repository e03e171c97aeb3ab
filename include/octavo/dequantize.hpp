// Dequantize: 8-bit (and packed 4-bit) integers back to floats.
//
//     x = scale * C(q - zero_point)      integer subtraction first, without overflow
//
// C is the compute type (f64 for f64 output, else f32); the result is rounded once to the output
// type. Scales need only be finite: zero and negative ones are valid.
//
// Backward: dq = dy * scale, from floats to floats of the descriptor's `output` type. Backward
// plans take the descriptor of their forward plan.
#pragma once

#include "octavo/elementwise.hpp"

namespace octavo {

/// One scale for the whole tensor, which may have any shape of `numel` elements.
struct DequantizePerTensorDescriptor {
  std::int64_t numel = 0;
  DType input = DType::s8;    ///< s8, u8, s4, u4, s16
  DType output = DType::f32;  ///< f32, f64, f16, bf16
};

/// One scale for each index of `axis` (negative: counted from the last).
struct DequantizePerChannelDescriptor {
  Shape shape;
  int axis = 0;
  DType input = DType::s8;
  DType output = DType::f32;
  std::optional<DType> scale_type = std::nullopt;  ///< default: the compute type
};

/// One scale for each row of `hidden` elements; the tensor is [..., hidden] with `tokens` rows.
struct DequantizePerTokenDescriptor {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  DType input = DType::s8;
  DType output = DType::f32;
  std::optional<DType> scale_type = std::nullopt;
};

/// One scale for each `group_size` consecutive elements of a row: [rows, cols / group_size] of
/// them, row by row. The tensor is [..., cols] with `rows` rows; group_size divides cols.
struct DequantizePerGroupDescriptor {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t group_size = 0;
  DType input = DType::s8;
  DType output = DType::f32;
  std::optional<DType> scale_type = std::nullopt;
};

using DequantizePerTensorPlan = ElementwisePlan<Op::dequantize, Layout::per_tensor,
                                                DequantizePerTensorDescriptor, PerTensorArgs>;
using DequantizePerChannelPlan = ElementwisePlan<Op::dequantize, Layout::per_channel,
                                                 DequantizePerChannelDescriptor, PerSliceArgs>;
using DequantizePerTokenPlan =
    ElementwisePlan<Op::dequantize, Layout::per_token, DequantizePerTokenDescriptor, PerSliceArgs>;
using DequantizePerGroupPlan =
    ElementwisePlan<Op::dequantize, Layout::per_group, DequantizePerGroupDescriptor, PerSliceArgs>;

using DequantizePerTensorBackwardPlan =
    ElementwisePlan<Op::dequantize_backward, Layout::per_tensor, DequantizePerTensorDescriptor,
                    PerTensorLinearBackwardArgs>;
using DequantizePerChannelBackwardPlan =
    ElementwisePlan<Op::dequantize_backward, Layout::per_channel, DequantizePerChannelDescriptor,
                    PerSliceLinearBackwardArgs>;
using DequantizePerTokenBackwardPlan =
    ElementwisePlan<Op::dequantize_backward, Layout::per_token, DequantizePerTokenDescriptor,
                    PerSliceLinearBackwardArgs>;
using DequantizePerGroupBackwardPlan =
    ElementwisePlan<Op::dequantize_backward, Layout::per_group, DequantizePerGroupDescriptor,
                    PerSliceLinearBackwardArgs>;

}  // namespace octavo
