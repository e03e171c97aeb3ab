// The numbers of octavo.h are those of the C++ headers, and stay what they are; so do the structs.
#include "octavo/octavo.h"

#include <cstddef>

#include "octavo/octavo.hpp"

namespace octavo {
namespace {

template <class E>
constexpr bool same(std::int32_t c, E cpp, std::int32_t pinned) {
  return c == pinned && static_cast<std::int32_t>(cpp) == pinned;
}

static_assert(OCTAVO_OK == 0);
static_assert(same(OCTAVO_UNSUPPORTED, ErrorCode::unsupported, 1));
static_assert(same(OCTAVO_INVALID_PROBLEM, ErrorCode::invalid_problem, 2));
static_assert(same(OCTAVO_MISALIGNED_OPERAND, ErrorCode::misaligned_operand, 3));
static_assert(same(OCTAVO_WORKSPACE_TOO_SMALL, ErrorCode::workspace_too_small, 4));
static_assert(same(OCTAVO_BUFFER_TOO_SMALL, ErrorCode::buffer_too_small, 5));
static_assert(same(OCTAVO_BACKEND, ErrorCode::backend, 6));

static_assert(same(OCTAVO_F32, DType::f32, 0));
static_assert(same(OCTAVO_F64, DType::f64, 1));
static_assert(same(OCTAVO_F16, DType::f16, 2));
static_assert(same(OCTAVO_BF16, DType::bf16, 3));
static_assert(same(OCTAVO_S8, DType::s8, 4));
static_assert(same(OCTAVO_U8, DType::u8, 5));
static_assert(same(OCTAVO_S4, DType::s4, 6));
static_assert(same(OCTAVO_U4, DType::u4, 7));
static_assert(same(OCTAVO_S32, DType::s32, 8));
static_assert(same(OCTAVO_S16, DType::s16, 9));

static_assert(same(OCTAVO_SCALAR, Target::scalar, 0));
static_assert(same(OCTAVO_AVX2, Target::avx2, 1));
static_assert(same(OCTAVO_AVXVNNI, Target::avxvnni, 2));
static_assert(same(OCTAVO_AVX512, Target::avx512, 3));
static_assert(same(OCTAVO_AVX512VNNI, Target::avx512vnni, 4));
static_assert(same(OCTAVO_AMX, Target::amx, 5));
static_assert(same(OCTAVO_NEON, Target::neon, 6));
static_assert(same(OCTAVO_DOTPROD, Target::dotprod, 7));
static_assert(same(OCTAVO_I8MM, Target::i8mm, 8));
static_assert(same(OCTAVO_SVE, Target::sve, 9));
static_assert(same(OCTAVO_SM80, Target::sm80, 10));

static_assert(same(OCTAVO_CPU, Backend::cpu, 0));
static_assert(same(OCTAVO_CUDA, Backend::cuda, 1));

static_assert(same(OCTAVO_QUANTIZE, Op::quantize, 0));
static_assert(same(OCTAVO_QUANTIZE_BACKWARD, Op::quantize_backward, 1));
static_assert(same(OCTAVO_DEQUANTIZE, Op::dequantize, 2));
static_assert(same(OCTAVO_DEQUANTIZE_BACKWARD, Op::dequantize_backward, 3));
static_assert(same(OCTAVO_FAKE_QUANTIZE, Op::fake_quantize, 4));
static_assert(same(OCTAVO_FAKE_QUANTIZE_BACKWARD, Op::fake_quantize_backward, 5));
static_assert(same(OCTAVO_OBSERVE_MIN_MAX, Op::observe_min_max, 8));
static_assert(same(OCTAVO_OBSERVE_HISTOGRAM, Op::observe_histogram, 9));
static_assert(same(OCTAVO_QUANTIZED_MATMUL, Op::quantized_matmul, 11));
static_assert(same(OCTAVO_QUANTIZED_LINEAR, Op::quantized_linear, 12));
static_assert(same(OCTAVO_SMOOTHQUANT_LINEAR, Op::smoothquant_linear, 14));
static_assert(same(OCTAVO_FLOAT_LINEAR, Op::float_linear, 15));

static_assert(same(OCTAVO_PER_TENSOR, Layout::per_tensor, 0));
static_assert(same(OCTAVO_PER_CHANNEL, Layout::per_channel, 1));
static_assert(same(OCTAVO_PER_TOKEN, Layout::per_token, 2));
static_assert(same(OCTAVO_PER_GROUP, Layout::per_group, 3));
static_assert(same(OCTAVO_TORCH, Profile::torch, 0));
static_assert(same(OCTAVO_ONNX, Profile::onnx, 1));
static_assert(same(OCTAVO_SYMMETRIC, RangeMode::symmetric, 0));
static_assert(same(OCTAVO_ASYMMETRIC, RangeMode::asymmetric, 1));
static_assert(same(OCTAVO_BIAS, Epilogue::bias, 1));
static_assert(same(OCTAVO_RESIDUAL, Epilogue::residual, 2));
static_assert(same(OCTAVO_RELU, Epilogue::relu, 4));
static_assert(same(OCTAVO_MIN_MAX, Calibration::min_max, 0));
static_assert(same(OCTAVO_PERCENTILE, Calibration::percentile, 1));
static_assert(same(OCTAVO_MSE, Calibration::mse, 2));
static_assert(same(OCTAVO_ENTROPY, Calibration::entropy, 3));

// Fields are only ever added at the end, and never into what was padding: a program that was
// compiled before leaves anything there.
static_assert(sizeof(void*) == 8);
static_assert(sizeof(octavo_error) == 48);
static_assert(sizeof(octavo_tensor) == 48);
static_assert(sizeof(octavo_stream_options) == 24);
static_assert(sizeof(octavo_cuda_options) == 24);
static_assert(sizeof(octavo_preference) == 32);
static_assert(sizeof(octavo_guarantee) == 32);
static_assert(sizeof(octavo_elementwise_desc) == 80);
static_assert(sizeof(octavo_elementwise_args) == 72);
static_assert(sizeof(octavo_dynamic_range_desc) == 72);
static_assert(sizeof(octavo_dynamic_range_args) == 40);
static_assert(sizeof(octavo_embedding_desc) == 56);
static_assert(sizeof(octavo_embedding_args) == 48);
static_assert(sizeof(octavo_packed_weight_info) == 72);
static_assert(offsetof(octavo_packed_weight_info, group_size) == 48);
static_assert(sizeof(octavo_pack_desc) == 56);
static_assert(offsetof(octavo_pack_desc, group_size) == 32);
static_assert(sizeof(octavo_pack_args) == 40);
static_assert(offsetof(octavo_pack_args, scales) == 24);
static_assert(sizeof(octavo_linear_desc) == 112);
static_assert(offsetof(octavo_linear_desc, group_size) == 96);
static_assert(sizeof(octavo_linear_args) == 104);
static_assert(sizeof(octavo_observer_desc) == 48);
static_assert(sizeof(octavo_observer_args) == 24);
static_assert(sizeof(octavo_calibration_options) == 48);

}  // namespace
}  // namespace octavo
