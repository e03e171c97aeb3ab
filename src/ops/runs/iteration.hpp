// From tensors to runs. Every operand, the parameters included, is an array of strides over one set
// of dimensions: a granularity is nothing but the strides of the parameters.
//
//     tensor   0 everywhere          channel  1 on the axis, else 0
//     token    rows, in order        group    the last dimension split in [cols / g, g]: 1 and 0
#pragma once

#include <array>
#include <cstdint>

#include "ops/runs/problem.hpp"

namespace octavo::detail {

enum Operand : int { op_input = 0, op_grad = 1, op_output = 2, op_params = 3, operand_count = 4 };

struct Iteration {
  struct Dim {
    std::int64_t size = 1;
    std::array<std::int64_t, operand_count> stride{};
  };
  std::array<Dim, max_rank + 2> dims{};  // outermost first; at least one
  int rank = 0;
  bool per_lane = false;     // the innermost dimension walks along the parameters
  bool odd_nibbles = false;  // runs of a packed tensor start within a byte: reference kernels only
  std::int64_t rows = 1;     // product of all but the innermost
  std::int64_t rows_per_cut = 1;  // threads may be told apart only at multiples of this

  [[nodiscard]] const Dim& inner() const { return dims[static_cast<std::size_t>(rank - 1)]; }
  [[nodiscard]] std::int64_t length() const { return inner().size; }
  /// Where a row starts, in elements of each operand.
  [[nodiscard]] std::array<std::int64_t, operand_count> start_of(std::int64_t row) const {
    std::array<std::int64_t, operand_count> at{};
    for (int i = rank - 2; i >= 0; --i) {
      const Dim& dim = dims[static_cast<std::size_t>(i)];
      for (std::size_t o = 0; o < operand_count; ++o) at[o] += row % dim.size * dim.stride[o];
      row /= dim.size;
    }
    return at;
  }
};

/// Checked arguments of a problem, as runs. The tensors have at least one element.
Iteration iterate(const ElementwiseProblem& problem, const ElementwiseArgs& args);
/// The same of any arguments that are plain (problem.hpp).
Iteration plain_iteration(const SlicedProblem& problem);

}  // namespace octavo::detail
