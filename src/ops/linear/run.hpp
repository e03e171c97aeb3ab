// A checked call, carried out.
#pragma once

#include "octavo/linear.hpp"

namespace octavo::detail {

void run_linear(const Stream& stream, const LinearProblem& problem, const LinearOperands& operands,
                Target dot_target, Target vector_target, int threads, void* workspace);

}  // namespace octavo::detail
