// What follows from a linear problem, wherever it is done.
#pragma once

#include "numerics/linear.hpp"
#include "numerics/types.hpp"
#include "octavo/dynamic_range_quantize.hpp"
#include "octavo/linear.hpp"

namespace octavo::detail {

/// The types that linear layers admit.
using LinearFloats = numerics::FloatTypes;  // activations that are quantized here; scales and bias
using LinearBytes = numerics::ByteTypes;    // activations that are quantized already
using LinearWeights = numerics::TypeList<DType::s8, DType::u8, DType::s4, DType::u4>;
using SymmetricCodes = numerics::TypeList<DType::s8, DType::s16>;  // of what is quantized here
// Of float layers: activations and weights.
using FloatLinearTypes = numerics::TypeList<DType::f32, DType::f16, DType::bf16>;
using FloatLinearOutputs =
    numerics::TypeList<DType::f32, DType::f16, DType::bf16, DType::s8, DType::u8>;
using PackedTypes = numerics::TypeList<DType::s8, DType::u8, DType::s4, DType::u4, DType::f32,
                                       DType::f16, DType::bf16>;
using LinearOutputs =
    numerics::TypeList<DType::f32, DType::f64, DType::f16, DType::bf16, DType::s8, DType::u8>;
using MatmulOutputs = numerics::TypeList<DType::f32, DType::f64, DType::f16, DType::bf16, DType::s8,
                                         DType::u8, DType::s32>;  // s32: the sums

/// C, as numerics/linear.hpp has it.
inline DType compute_type(const LinearProblem& p) {
  return p.activation == DType::f64 || p.output == DType::f64 ? DType::f64 : DType::f32;
}

/// Whether activations are quantized here, row by row.
inline bool is_dynamic(const LinearProblem& p) { return p.op == Op::quantized_linear; }
/// Whether those have no zero points.
inline bool is_symmetric(const LinearProblem& p) { return p.mode == RangeMode::symmetric; }

/// Whether weights are floats.
inline bool is_float_linear(const LinearProblem& p) { return p.op == Op::float_linear; }
/// The integers that activations are quantized to.
inline IntRange code_range(const LinearProblem& p) {
  return p.quantized == DType::s16 ? numerics::range_16 : storage_range(p.quantized);
}
/// Activations of 16 bits are multiplied in two halves of 8.
inline int parts_per_row(const LinearProblem& p) { return p.quantized == DType::s16 ? 2 : 1; }

/// The largest k whose sums (of each half, where there are two) fit 32 bits.
std::int64_t max_narrow_k(const LinearProblem& problem);
/// Whether sums need more.
inline bool is_wide(const LinearProblem& p) { return p.k > max_narrow_k(p); }
/// Whether the sum of a group, both halves put together, does.
bool has_wide_groups(const LinearProblem& problem);

/// Groups of a row of k weights; with one scale per channel there are none.
inline std::int64_t groups_of(std::int64_t k, std::int64_t group) {
  return group == 0 ? 0 : k / group;
}

/// A group size as it counts: all of a row and more are no groups.
inline std::int64_t group_of(std::int64_t k, std::int64_t group_size) {
  return group_size >= k && group_size > 0 ? 0 : group_size;
}
/// The longest group: sums of its bytes, which are added to those of products, fit 32 bits.
inline constexpr std::int64_t max_group = std::int64_t{1} << 23;
Status check_group(std::int64_t group, std::int64_t k);

/// Whether an argument that may be left out is there.
inline bool is_given(const TensorRef* t) {
  return t != nullptr && (t->data != nullptr || t->shape.rank() > 0);
}

/// Whether a tensor has one element.
inline bool is_single(const TensorRef& t) {
  for (int i = 0; i < t.shape.rank(); ++i)
    if (t.shape[i] != 1) return false;
  return true;
}

}  // namespace octavo::detail
