// The kernels of dynamic ranges, by target.
#pragma once

#include "ops/runs/cpu/call.hpp"

namespace octavo::detail {

/// A range kernel widens call.low and call.high to hold the finite input: those of each run, or of
/// each lane.
template <Target target>
KernelFunction find_range(const KernelKey& key);
/// A fused kernel does all for runs that are slices of their own: range, scale and zero point (to
/// call.scale_found and call.zero_point_found), and quantize.
template <Target target>
KernelFunction find_fused(const KernelKey& key);

#define OCTAVO_DECLARE(target)                             \
  template <>                                              \
  KernelFunction find_range<target>(const KernelKey& key); \
  template <>                                              \
  KernelFunction find_fused<target>(const KernelKey& key)
OCTAVO_VECTOR_TARGETS(OCTAVO_DECLARE);
#undef OCTAVO_DECLARE

}  // namespace octavo::detail
