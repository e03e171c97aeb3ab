// A batch as runs.
#pragma once

#include "ops/observer/implementation.hpp"
#include "ops/runs/iteration.hpp"

namespace octavo::detail {

inline Iteration iterate(const ObserverProblem& p, const TensorRef& input, std::int64_t numel) {
  ElementwiseProblem problem;
  problem.layout = p.scope;
  problem.axis = p.axis;
  problem.element = p.input;
  problem.shape = p.scope == Layout::per_channel ? input.shape : Shape{numel};
  // Nothing is written; runs are as if for a contiguous output.
  const TensorMut none(nullptr, DType::s8, input.shape);
  ElementwiseArgs args;
  args.input = &input;
  args.output = &none;
  return detail::iterate(problem, args);
}

}  // namespace octavo::detail
