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

template <Target target>
constexpr Kernels on{find_on<target>, scan<target>};

}  // namespace

Kernels kernels_of(Target target) {
  switch (target) {
    case Target::scalar:
      return {find_reference, scan_reference};
#if HWY_TARGETS & HWY_AVX2
    case Target::avx2:
      return on<Target::avx2>;
#endif
#if HWY_TARGETS & HWY_AVX3
    case Target::avx512:
      return on<Target::avx512>;
#endif
#if HWY_TARGETS & HWY_NEON
    case Target::neon:
      return on<Target::neon>;
#endif
#if HWY_TARGETS & HWY_SVE
    case Target::sve:
      return on<Target::sve>;
#endif
    default:
      return {};
  }
}

}  // namespace octavo::detail
