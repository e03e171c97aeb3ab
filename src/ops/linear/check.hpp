// Checks of linear problems and of their arguments that read no memory.
#pragma once

#include "core/check.hpp"
#include "octavo/linear.hpp"

namespace octavo::detail {

/// Types, sizes, and what else a descriptor holds.
Status check_linear_problem(const LinearProblem& problem);

/// Memory that is lent to a call.
struct Lent {
  Extent extent;
  bool overlaps = false;  // set where an argument lies in it
};

/// Whether a call's arguments are what its plan was made for, and apart from its output: everything
/// but the values of scales and zero points. Packed weights are of `format`.
Status check_linear(const LinearProblem& problem, const WeightFormat& format,
                    const LinearOperands& operands, Lent& lent);

/// That all of it is memory of the backend, and of the device where that is known (not -1).
Status check_linear_memory(const LinearProblem& problem, const LinearOperands& operands,
                           Backend backend, int device, const void* workspace);

/// [n, k] of `dtype`, with rows that may lie apart.
Status check_weight(const TensorRef& weight, DType dtype, std::int64_t n, std::int64_t k);

/// The refusals of values, wherever they are found: a scale that is not finite in the compute type,
/// a zero point outside the range of its type.
Error scale_refusal(const char* argument, double value, DType compute, std::int64_t index);
Error zero_point_refusal(const char* argument, std::int32_t value, DType type, std::int64_t index);

/// Sizes whose packed form can be counted in bytes.
Status check_weight_sizes(std::int64_t n, std::int64_t k);

}  // namespace octavo::detail
