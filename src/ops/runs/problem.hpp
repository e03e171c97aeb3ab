// A problem over slices of a tensor, checked, and the checks of its arguments that read no memory.
// Neutral: nothing here knows where the tensors are.
#pragma once

#include <cstdint>

#include "core/check.hpp"
#include "octavo/elementwise.hpp"

namespace octavo::detail {

/// A problem that was found right, and what follows from it.
struct SlicedProblem : ElementwiseProblem {
  IntRange range;             // of integers, where they take part
  DType scales = DType::f32;  // the type of scales that are given
  std::int64_t numel = 0;     // elements
  std::int64_t slices = 1;    // scales

  [[nodiscard]] DType compute() const { return compute_type(element); }
  [[nodiscard]] DType input_type() const { return op == Op::dequantize ? integer : element; }
  [[nodiscard]] DType output_type() const { return op == Op::quantize ? integer : element; }
};

Result<SlicedProblem> check_problem(const ElementwiseProblem& problem);

/// The integers of a type that a caller asks for: its own where he does not say.
Result<IntRange> check_range(DType integer, std::optional<std::int32_t> q_min,
                             std::optional<std::int32_t> q_max);

/// The product of all sizes but the last; -1 if it is beyond int64.
std::int64_t leading_rows(const Shape& shape);

/// Whether zero points are given.
bool has_zero_points(const ElementwiseArgs& args);

/// Everything about the arguments but the values of scales and zero points.
Status check_tensors(const SlicedProblem& problem, const ElementwiseArgs& args);

/// Whether they pass that check and, as most do, have no gaps: every tensor is contiguous and apart
/// from the output, or is it. Much quicker, and false without a reason.
bool are_plain(const SlicedProblem& problem, const ElementwiseArgs& args);

/// That they are memory of the backend (core/memory_place.hpp), and of the device where it is
/// known.
Status check_memory(const SlicedProblem& problem, const ElementwiseArgs& args, Backend backend,
                    int device, const void* workspace);

}  // namespace octavo::detail
