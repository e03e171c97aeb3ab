// Which kernels there are. Highway decides which targets this compiler can build for.
#include "simd/targets.hpp"

#include <hwy/detect_targets.h>

#include "ops/elementwise/kernels.hpp"

namespace octavo::detail {
namespace {

template <Target target>
KernelFunction find_on(const KernelKey& key) {
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
  }
  return nullptr;
}

}  // namespace

KernelFunction find_kernel(Target target, const KernelKey& key) {
  switch (target) {
    case Target::scalar:
      return find_reference(key);
#if HWY_TARGETS & HWY_AVX2
    case Target::avx2:
      return find_on<Target::avx2>(key);
#endif
#if HWY_TARGETS & HWY_AVX3
    case Target::avx512:
      return find_on<Target::avx512>(key);
#endif
#if HWY_TARGETS & HWY_NEON
    case Target::neon:
      return find_on<Target::neon>(key);
#endif
#if HWY_TARGETS & HWY_SVE
    case Target::sve:
      return find_on<Target::sve>(key);
#endif
    default:
      return nullptr;
  }
}

}  // namespace octavo::detail
