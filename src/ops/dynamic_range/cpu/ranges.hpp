// Ranges of slices that are not rows: found in parts, in the workspace, and put together.
#pragma once

#include <algorithm>

#include "numerics/dynamic_range.hpp"
#include "ops/runs/cpu/driver.hpp"

namespace octavo::detail {

/// Parts have ranges of their own, unless the slices are too many for that.
struct RangePass {
  std::int64_t slices = 1;
  int parts = 1;
  bool symmetric = true;
  DType element = DType::f32;

  RangePass(std::int64_t slice_count, int threads, bool is_symmetric, DType type);
  [[nodiscard]] std::size_t workspace_size() const;

  /// Finds the ranges of work's input with a range kernel. `workspace` then holds what merged()
  /// reads. The caller has set the floating-point environment.
  void run(const Stream& stream, const Work& work, KernelFunction range, void* workspace) const;

  template <class C>
  [[nodiscard]] numerics::Range<C> merged(const void* workspace, std::int64_t slice) const {
    const auto* high = static_cast<const C*>(workspace);
    const auto* low = high + parts * slices;
    numerics::Range<C> range;
    for (int part = 0; part < parts; ++part) {
      const std::int64_t at = part * slices + slice;
      range.high = std::max(range.high, high[at]);
      if (!symmetric) range.low = std::min(range.low, low[at]);
    }
    return range;
  }
};

}  // namespace octavo::detail
