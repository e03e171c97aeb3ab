// The values of scales and zero points that only the device can see: what they must be, and the
// words of the CPU where they are not.
#pragma once

#include "cuda/stream.hpp"
#include "ops/linear/problem.hpp"

namespace octavo::cuda {

/// Checks the values of a run, in the CPU's order; inside an Enqueue. What its kernels read first;
/// null where there is nothing to check.
Result<const Refusal*> check_linear_values(CudaStream& stream, const detail::LinearProblem& problem,
                                           const detail::LinearOperands& operands);
/// The same of what is packed with weights in groups.
Result<const Refusal*> check_group_values(CudaStream& stream, DType weight, const TensorRef& scales,
                                          const TensorRef& zero_points);

}  // namespace octavo::cuda
