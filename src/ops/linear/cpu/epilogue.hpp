// From sums of products to the output: one call does a block of rows by up to group_columns.
#pragma once

#include <cstdint>
#include <type_traits>

#include "numerics/types.hpp"
#include "ops/linear/cpu/dot.hpp"
#include "simd/vector_targets.hpp"

namespace octavo::detail {

/// Rows at a time where sums take 64 bits, so that the stack holds them.
inline constexpr std::int64_t wide_rows = 16;

/// acc[r,c] = sums[r,c] - column_term[c] - row_zero[r] * column_sum[c] - weight_zero[c] *
/// row_term[r] and then numerics/linear.hpp. C is the compute type; arrays over columns are
/// group_columns long. Where rows have two halves, r counts halves, the upper one first, and acc is
/// 256 times that of the upper plus that of the lower.
template <class C>
struct EpilogueCall {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  int halves = 1;                      // or 2
  const C* values = nullptr;           // acc itself, group_columns apart; then there are no:
  const std::int32_t* sums = nullptr;  // group_columns apart; modulo 2^32, as all integers here
  // Null where they are zero.
  const std::int32_t* column_term = nullptr;
  const std::int32_t* column_sum = nullptr;
  const std::int32_t* weight_zero = nullptr;
  // Of each row; row_zero goes with column_sum and row_term with weight_zero.
  const std::int32_t* row_zero = nullptr;
  const std::int32_t* row_term = nullptr;
  const C* row_scale = nullptr;
  const C* column_scale = nullptr;  // null: 1
  const C* bias = nullptr;          // or null
  const void* residual = nullptr;   // or null; of the output's type
  std::int64_t residual_stride = 0;
  bool relu = false;
  void* output = nullptr;
  std::int64_t output_stride = 0;  // in elements
};

template <class C>
using EpilogueFunction = void (*)(const EpilogueCall<C>&);

/// What the epilogues of C write: C itself, what f32 is rounded to, and the sums (s32). Other
/// outputs are made from values of C, in a step of their own.
template <class C>
using EpilogueTypes =
    std::conditional_t<sizeof(C) == 8, numerics::TypeList<DType::f64>,
                       numerics::TypeList<DType::f32, DType::f16, DType::bf16, DType::s32>>;

/// Null for any other type.
template <Target target, class C>
EpilogueFunction<C> find_epilogue(DType output);

/// What a group of weights adds to its segment: y = fma(C(acc), column_scale, y), where `output`
/// has y, of C and group_columns apart. Sums, columns and y may be read and written up to
/// group_columns.
template <Target target, class C>
EpilogueFunction<C> find_terms();

#define OCTAVO_DECLARE(target)                                          \
  template <>                                                           \
  EpilogueFunction<float> find_epilogue<target, float>(DType output);   \
  template <>                                                           \
  EpilogueFunction<double> find_epilogue<target, double>(DType output); \
  template <>                                                           \
  EpilogueFunction<float> find_terms<target, float>();                  \
  template <>                                                           \
  EpilogueFunction<double> find_terms<target, double>()
OCTAVO_VECTOR_TARGETS(OCTAVO_DECLARE);
#undef OCTAVO_DECLARE

}  // namespace octavo::detail
