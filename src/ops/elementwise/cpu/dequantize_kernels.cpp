// Dequantize and its backward pass, for every SIMD target.
#include "simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/cpu/dequantize_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/elementwise/cpu/kernels.hpp"
#include "ops/runs/cpu/loops-inl.hpp"
#include "ops/runs/cpu/select_kernel.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

struct DequantizeMath {
  template <class D, class Q, class P>
  static HWY_INLINE hn::Vec<D> Apply(D d, const Q* q, const std::uint8_t* /*dy*/, const P& p,
                                     size_t i) {
    const Ints<D> di;
    return hn::Mul(p.Scale(d, i), ToFloat(d, hn::Sub(LoadInts(di, q + i), p.ZeroPoint(di, i))));
  }
};

struct DequantizeBackwardMath {
  template <class D, class T, class P>
  static HWY_INLINE hn::Vec<D> Apply(D d, const std::uint8_t* /*q*/, const T* dy, const P& p,
                                     size_t i) {
    return Canonical(d, hn::Mul(LoadAs(d, dy + i), p.Scale(d, i)));
  }
};

struct FindDequantize {
  template <class C, class T, class P>
  static detail::KernelFunction Find(const detail::KernelKey& key) {
    if (key.op == Op::dequantize_backward)
      return LinearKernel<DequantizeBackwardMath, C, NoElement, Plain<T>, Plain<T>, P>;
    return detail::with_integer<Plain, Nibbles>(
        key.integer, []<class Q>() -> detail::KernelFunction {
          return LinearKernel<DequantizeMath, C, Q, NoElement, Plain<T>, P>;
        });
  }
};

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace octavo::detail {
template <>
KernelFunction find_dequantize<HWY_NAMESPACE::this_target>(const KernelKey& key) {
  return find_typed<HWY_NAMESPACE::FindDequantize, HWY_NAMESPACE::Uniform, HWY_NAMESPACE::PerLane>(
      key);
}
}  // namespace octavo::detail
#endif  // OCTAVO_SIMD_PASS
