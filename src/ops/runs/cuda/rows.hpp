// Runs of elements, as a kernel is told of them: ops/runs/iteration.hpp for host and device.
#pragma once

#include <cstdint>

namespace octavo::cuda {

/// How far apart neighbours along a dimension are, in elements of each operand.
struct Strides {
  std::int64_t input = 0;
  std::int64_t output = 0;
  std::int64_t params = 0;
};

/// All dimensions but the innermost, outermost first.
struct Rows {
  static constexpr int most = 9;
  std::int64_t size[most] = {};
  Strides stride[most] = {};
  int rank = 0;
  std::int64_t count = 1;  // product of the sizes
};

}  // namespace octavo::cuda
