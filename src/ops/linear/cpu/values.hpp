// Values of scales, zero points and biases, as they are given.
#pragma once

#include "ops/linear/problem.hpp"
#include "ops/runs/cpu/call.hpp"

namespace octavo::detail {

/// n floats of any type from `first` on, rounded to C; a single one is repeated.
template <class C>
void load_floats(const void* from, DType type, bool single, std::int64_t first, std::int64_t n,
                 C* to);
extern template void load_floats(const void*, DType, bool, std::int64_t, std::int64_t, float*);
extern template void load_floats(const void*, DType, bool, std::int64_t, std::int64_t, double*);

/// Whether so many scales of a type are finite. (Those of f64 are, too, where they are rounded.)
bool are_finite_scales(const void* scales, DType type, std::int64_t count);

/// The values of scales and zero points of groups that are packed.
Status check_group_values(DType weight, const TensorRef& scales, const TensorRef& zero_points);

/// Whether the scales of a call are finite, as C, and its zero points within the storage types.
Status check_linear_values(const LinearProblem& problem, ScanFunction scan,
                           const LinearOperands& operands);

}  // namespace octavo::detail
