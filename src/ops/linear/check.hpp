#pragma once

#include "octavo/linear.hpp"

namespace octavo::detail {

inline bool is_byte(DType type) { return type == DType::s8 || type == DType::u8; }

/// Whether a call's arguments are what its plan was made for, and apart from its output.
Status check_linear(const LinearProblem& problem, Target vector_target,
                    const LinearOperands& operands);

}  // namespace octavo::detail
