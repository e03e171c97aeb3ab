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

/// [n, k] of `dtype`, with rows that may lie apart.
Status check_weight(const TensorRef& weight, DType dtype, std::int64_t n, std::int64_t k);

/// Sizes whose packed form can be counted in bytes.
Status check_weight_sizes(std::int64_t n, std::int64_t k);

}  // namespace octavo::detail
