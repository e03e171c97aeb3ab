// From sums of products to the output: one call does a block of rows by up to group_columns.
#pragma once

#include <cstdint>

#include "octavo/dtype.hpp"
#include "octavo/stream.hpp"
#include "ops/linear/dot.hpp"

namespace octavo::detail {

/// acc[r,c] = sums[r,c] - column_term[c] - row_zero[r] * column_sum[c] - weight_zero[c] *
/// row_term[r] and then numerics/linear.hpp. C is the compute type; arrays over columns are
/// group_columns long.
template <class C>
struct EpilogueCall {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const std::int32_t* sums = nullptr;  // group_columns apart; modulo 2^32, as all integers here
  // Null where they are zero.
  const std::int32_t* column_term = nullptr;
  const std::int32_t* column_sum = nullptr;
  const std::int32_t* weight_zero = nullptr;
  // Of each row; row_zero goes with column_sum and row_term with weight_zero.
  const std::int32_t* row_zero = nullptr;
  const std::int32_t* row_term = nullptr;
  const C* row_scale = nullptr;
  const C* column_scale = nullptr;
  const C* bias = nullptr;         // or null
  const void* residual = nullptr;  // or null; of the output's type
  std::int64_t residual_stride = 0;
  bool relu = false;
  void* output = nullptr;
  std::int64_t output_stride = 0;  // in elements
};

template <class C>
using EpilogueFunction = void (*)(const EpilogueCall<C>&);

/// To an output of C itself, of f16 or bf16 (where C is float), or of the sums (s32).
template <Target target, class C>
EpilogueFunction<C> find_epilogue(DType output);

#define OCTAVO_DECLARE_KERNELS(target)                                \
  template <>                                                         \
  EpilogueFunction<float> find_epilogue<target, float>(DType output); \
  template <>                                                         \
  EpilogueFunction<double> find_epilogue<target, double>(DType output)
OCTAVO_DECLARE_KERNELS(Target::scalar);
OCTAVO_DECLARE_KERNELS(Target::avx2);
OCTAVO_DECLARE_KERNELS(Target::avx512);
OCTAVO_DECLARE_KERNELS(Target::neon);
OCTAVO_DECLARE_KERNELS(Target::sve);
#undef OCTAVO_DECLARE_KERNELS

/// Whether there is a kernel that writes `output` itself; otherwise it is made from C in a step of
/// its own.
template <class C>
bool writes(DType output) {
  if (output == DType::s32) return true;
  if (sizeof(C) == 8) return output == DType::f64;
  return output == DType::f32 || output == DType::f16 || output == DType::bf16;
}

}  // namespace octavo::detail
