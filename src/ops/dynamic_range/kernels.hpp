// The kernels of dynamic ranges. They take the calls of the elementwise family (KernelCall) and are
// run by its driver.
#pragma once

#include "ops/elementwise/kernels.hpp"

namespace octavo::detail {

/// A range kernel widens call.low and call.high to hold the finite input: those of each run, or of
/// each lane.
template <Target target>
KernelFunction find_range(const KernelKey& key);
/// A fused kernel does all for runs that are slices of their own: range, scale and zero point (to
/// call.scale_found and call.zero_point_found), and quantize.
template <Target target>
KernelFunction find_fused(const KernelKey& key);

#define OCTAVO_DECLARE_KERNELS(target)                     \
  template <>                                              \
  KernelFunction find_range<target>(const KernelKey& key); \
  template <>                                              \
  KernelFunction find_fused<target>(const KernelKey& key)
OCTAVO_DECLARE_KERNELS(Target::scalar);
OCTAVO_DECLARE_KERNELS(Target::avx2);
OCTAVO_DECLARE_KERNELS(Target::avx512);
OCTAVO_DECLARE_KERNELS(Target::neon);
OCTAVO_DECLARE_KERNELS(Target::sve);
#undef OCTAVO_DECLARE_KERNELS

struct DynamicRangeKernels {
  KernelFunction (*find_range)(const KernelKey& key) = nullptr;
  KernelFunction (*find_fused)(const KernelKey& key) = nullptr;
};
/// Nulls where the target has none of its own.
DynamicRangeKernels dynamic_range_kernels_of(Target target);

}  // namespace octavo::detail
