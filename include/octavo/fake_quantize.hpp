// Fake-quantize: what quantize and dequantize would give, without leaving floats (for
// quantization-aware training).
//
//     y = scale * C(q - zero_point)      with q as quantize computes it, never stored
//
// q_min..q_max may be any int32 range, beyond 8 bits too. NaN in gives NaN out: training must see
// it. Scales are finite, > 0, with a finite reciprocal.
//
// Backward (straight-through), from the very same v as the forward pass:
//
//     dx = q_min <= rint(v) + zero_point <= q_max ? dy : +0
//
// Backward plans take the descriptor of their forward plan.
#pragma once

#include "octavo/elementwise.hpp"

namespace octavo {

/// One scale for the whole tensor, which may have any shape of `numel` elements.
struct FakeQuantizeDescriptor {
  std::int64_t numel = 0;
  DType element = DType::f32;  ///< of input and output: f32, f64, f16, bf16
  std::int32_t q_min = -128;   ///< the default is that of s8
  std::int32_t q_max = 127;
  Profile profile = Profile::torch;
};

/// One scale for each index of `axis` (negative: counted from the last).
struct FakeQuantizePerChannelDescriptor {
  Shape shape;
  int axis = 0;
  DType element = DType::f32;
  std::int32_t q_min = -128;
  std::int32_t q_max = 127;
  Profile profile = Profile::torch;
  std::optional<DType> scale_type = std::nullopt;  ///< default: the compute type
};

/// One scale for each row of `hidden` elements; the tensor is [..., hidden] with `tokens` rows.
struct FakeQuantizePerTokenDescriptor {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  DType element = DType::f32;
  std::int32_t q_min = -128;
  std::int32_t q_max = 127;
  Profile profile = Profile::torch;
  std::optional<DType> scale_type = std::nullopt;
};

/// One scale for each `group_size` consecutive elements of a row: [rows, cols / group_size] of
/// them, row by row. The tensor is [..., cols] with `rows` rows; group_size divides cols.
struct FakeQuantizePerGroupDescriptor {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t group_size = 0;
  DType element = DType::f32;
  std::int32_t q_min = -128;
  std::int32_t q_max = 127;
  Profile profile = Profile::torch;
  std::optional<DType> scale_type = std::nullopt;
};

using FakeQuantizePlan =
    ElementwisePlan<Op::fake_quantize, Layout::per_tensor, FakeQuantizeDescriptor, PerTensorArgs>;
using FakeQuantizePerChannelPlan = ElementwisePlan<Op::fake_quantize, Layout::per_channel,
                                                   FakeQuantizePerChannelDescriptor, PerSliceArgs>;
using FakeQuantizePerTokenPlan = ElementwisePlan<Op::fake_quantize, Layout::per_token,
                                                 FakeQuantizePerTokenDescriptor, PerSliceArgs>;
using FakeQuantizePerGroupPlan = ElementwisePlan<Op::fake_quantize, Layout::per_group,
                                                 FakeQuantizePerGroupDescriptor, PerSliceArgs>;

using FakeQuantizeBackwardPlan = ElementwisePlan<Op::fake_quantize_backward, Layout::per_tensor,
                                                 FakeQuantizeDescriptor, PerTensorBackwardArgs>;
using FakeQuantizePerChannelBackwardPlan =
    ElementwisePlan<Op::fake_quantize_backward, Layout::per_channel,
                    FakeQuantizePerChannelDescriptor, PerSliceBackwardArgs>;
using FakeQuantizePerTokenBackwardPlan =
    ElementwisePlan<Op::fake_quantize_backward, Layout::per_token, FakeQuantizePerTokenDescriptor,
                    PerSliceBackwardArgs>;
using FakeQuantizePerGroupBackwardPlan =
    ElementwisePlan<Op::fake_quantize_backward, Layout::per_group, FakeQuantizePerGroupDescriptor,
                    PerSliceBackwardArgs>;

}  // namespace octavo
