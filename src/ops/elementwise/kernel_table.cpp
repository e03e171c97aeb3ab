// Which kernels there are.
#include "ops/elementwise/kernels.hpp"
#include "simd/on_target.hpp"

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
    default:
      break;  // in rooms of their own
  }
  return nullptr;
}

}  // namespace

Kernels kernels_of(Target target) {
  return on_target(target, []<Target t>() -> Kernels {
    if constexpr (t == Target::scalar) {
      return {find_reference, scan_reference};
    } else {
      return {find_on<t>, scan<t>};
    }
  });
}

}  // namespace octavo::detail
