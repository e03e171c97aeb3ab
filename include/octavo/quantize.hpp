// Quantize: floats to 8-bit (and packed 4-bit) integers.
//
//     v = x * (1 / scale)   profile torch        v = x / scale   profile onnx
//     q = clamp(rint(v) + zero_point, q_min, q_max)      as if in unbounded integers
//
// rint is to nearest, ties to even. NaN quantizes like 0, infinities saturate. All arithmetic is in
// the compute type (f64 for f64, else f32). Scales are finite, > 0, with a finite reciprocal.
//
// Backward (straight-through), from the very same v:
//
//     dx = q_min <= rint(v) + zero_point <= q_max ? dy * (1 / scale) : +0     (dy / scale: onnx)
//
// Backward plans take the descriptor of their forward plan; dy and dx are of its `input` type.
#pragma once

#include "octavo/elementwise.hpp"

namespace octavo {

/// One scale for the whole tensor, which may have any shape of `numel` elements.
struct QuantizePerTensorDescriptor {
  std::int64_t numel = 0;
  DType input = DType::f32;                          ///< f32, f64, f16, bf16
  DType output = DType::s8;                          ///< s8, u8, s4, u4, s16
  std::optional<std::int32_t> q_min = std::nullopt;  ///< default: the output type's own range
  std::optional<std::int32_t> q_max = std::nullopt;
  Profile profile = Profile::torch;
};

/// One scale for each index of `axis` (negative: counted from the last).
struct QuantizePerChannelDescriptor {
  Shape shape;
  int axis = 0;
  DType input = DType::f32;
  DType output = DType::s8;
  std::optional<std::int32_t> q_min = std::nullopt;
  std::optional<std::int32_t> q_max = std::nullopt;
  Profile profile = Profile::torch;
  std::optional<DType> scale_type = std::nullopt;  ///< default: the compute type
};

/// One scale for each row of `hidden` elements; the tensor is [..., hidden] with `tokens` rows.
struct QuantizePerTokenDescriptor {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  DType input = DType::f32;
  DType output = DType::s8;
  std::optional<std::int32_t> q_min = std::nullopt;
  std::optional<std::int32_t> q_max = std::nullopt;
  Profile profile = Profile::torch;
  std::optional<DType> scale_type = std::nullopt;
};

/// One scale for each `group_size` consecutive elements of a row: [rows, cols / group_size] of
/// them, row by row. The tensor is [..., cols] with `rows` rows; group_size divides cols.
struct QuantizePerGroupDescriptor {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t group_size = 0;
  DType input = DType::f32;
  DType output = DType::s8;
  std::optional<std::int32_t> q_min = std::nullopt;
  std::optional<std::int32_t> q_max = std::nullopt;
  Profile profile = Profile::torch;
  std::optional<DType> scale_type = std::nullopt;
};

using QuantizePerTensorPlan =
    ElementwisePlan<Op::quantize, Layout::per_tensor, QuantizePerTensorDescriptor, PerTensorArgs>;
using QuantizePerChannelPlan =
    ElementwisePlan<Op::quantize, Layout::per_channel, QuantizePerChannelDescriptor, PerSliceArgs>;
using QuantizePerTokenPlan =
    ElementwisePlan<Op::quantize, Layout::per_token, QuantizePerTokenDescriptor, PerSliceArgs>;
using QuantizePerGroupPlan =
    ElementwisePlan<Op::quantize, Layout::per_group, QuantizePerGroupDescriptor, PerSliceArgs>;

using QuantizePerTensorBackwardPlan =
    ElementwisePlan<Op::quantize_backward, Layout::per_tensor, QuantizePerTensorDescriptor,
                    PerTensorBackwardArgs>;
using QuantizePerChannelBackwardPlan =
    ElementwisePlan<Op::quantize_backward, Layout::per_channel, QuantizePerChannelDescriptor,
                    PerSliceBackwardArgs>;
using QuantizePerTokenBackwardPlan =
    ElementwisePlan<Op::quantize_backward, Layout::per_token, QuantizePerTokenDescriptor,
                    PerSliceBackwardArgs>;
using QuantizePerGroupBackwardPlan =
    ElementwisePlan<Op::quantize_backward, Layout::per_group, QuantizePerGroupDescriptor,
                    PerSliceBackwardArgs>;

}  // namespace octavo
