// What follows from a linear problem, wherever it is done.
#pragma once

#include "numerics/types.hpp"
#include "octavo/dynamic_range_quantize.hpp"
#include "octavo/linear.hpp"

namespace octavo::detail {

/// The types that linear layers admit.
using LinearFloats = numerics::FloatTypes;  // activations that are quantized here; scales and bias
using LinearBytes = numerics::ByteTypes;    // activations that are quantized already, and weights
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

/// The largest k whose sums fit 32 bits.
std::int64_t max_narrow_k(const LinearProblem& problem);
/// Whether sums need more.
inline bool is_wide(const LinearProblem& p) { return p.k > max_narrow_k(p); }

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
