// What other rooms need of an elementwise plan that they build upon.
#pragma once

#include "octavo/elementwise.hpp"

namespace octavo::detail {

const ElementwiseProblem& problem_of(const ElementwisePlan& plan);
IntRange range_of(const ElementwisePlan& plan);
std::int64_t slices_of(const ElementwisePlan& plan);

/// The product of all sizes but the last; -1 if it is beyond int64.
std::int64_t leading_rows(const Shape& shape);

/// Everything about the arguments but the values of scales and zero points.
Status check_tensors(const ElementwisePlan& plan, const ElementwiseArgs& args);

}  // namespace octavo::detail
