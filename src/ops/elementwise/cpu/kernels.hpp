// The kernels of the elementwise family, by target.
#pragma once

#include "ops/runs/cpu/call.hpp"

namespace octavo::detail {

/// The kernel for `key`, or null where there is none. Defined per target, in the files that are
/// compiled for it; find_kernel<scalar> is the reference, which has them all.
template <Target target>
KernelFunction find_kernel(const KernelKey& key);
template <Target target>
KernelFunction find_quantize(const KernelKey& key);
template <Target target>
KernelFunction find_dequantize(const KernelKey& key);
template <Target target>
KernelFunction find_fake_quantize(const KernelKey& key);

#define OCTAVO_DECLARE(target)                                  \
  template <>                                                   \
  KernelFunction find_quantize<target>(const KernelKey& key);   \
  template <>                                                   \
  KernelFunction find_dequantize<target>(const KernelKey& key); \
  template <>                                                   \
  KernelFunction find_fake_quantize<target>(const KernelKey& key)
OCTAVO_VECTOR_TARGETS(OCTAVO_DECLARE);
#undef OCTAVO_DECLARE

template <Target target>
KernelFunction find_kernel(const KernelKey& key) {
  switch (key.op) {
    case Op::quantize:
    case Op::quantize_backward:
      return find_quantize<target>(key);
    case Op::dequantize:
    case Op::dequantize_backward:
      return find_dequantize<target>(key);
    case Op::fake_quantize:
    case Op::fake_quantize_backward:
      return find_fake_quantize<target>(key);
    case Op::dynamic_range_quantize:
    case Op::dynamic_range_quantize_asymmetric:
    case Op::observe_min_max:
    case Op::observe_histogram:
    case Op::pack_weight:
    case Op::quantized_matmul:
    case Op::quantized_linear:
    case Op::quantized_linear_asymmetric:
    case Op::smoothquant_linear:
    case Op::float_linear:
    case Op::embedding:
      break;  // in rooms of their own
  }
  return nullptr;
}

}  // namespace octavo::detail
