// Quantize and its backward pass, for every SIMD target.
#include "simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/cpu/quantize_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/elementwise/cpu/kernels.hpp"
#include "ops/runs/cpu/loops-inl.hpp"
#include "ops/runs/cpu/quantize-inl.hpp"
#include "ops/runs/cpu/select_kernel.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

template <Quotient quotient>
struct QuantizeBackwardMath {
  template <class D, class T, class P>
  static HWY_INLINE hn::Vec<D> Apply(D d, const T* x, const T* dy, const P& p, size_t i) {
    // The mask needs no more than rint(v); the gradient needs the quotient to the last bit.
    constexpr Quotient whole = quotient == Quotient::exact ? Quotient::divide : quotient;
    const auto gradient = Canonical(d, Divide<whole>(d, LoadAs(d, dy + i), p, i));
    return hn::IfThenElseZero(Passes<quotient>(d, LoadAs(d, x + i), p, i), gradient);
  }
};

struct FindQuantize {
  template <class C, class T, class P>
  static detail::KernelFunction Find(const detail::KernelKey& key) {
    if (key.op == Op::quantize_backward)
      return QuotientKernel<QuantizeBackwardMath, C, Plain<T>, Plain<T>, Plain<T>, P>;
    return detail::with_integer<Plain, Nibbles>(
        key.integer, []<class Q>() -> detail::KernelFunction {
          if constexpr (sizeof(typename Q::Lane) == 1) {
            return QuotientKernel<QuantizeMath8, C, Plain<T>, NoElement, Q, P>;
          } else {
            return QuotientKernel<QuantizeMath16, C, Plain<T>, NoElement, Q, P>;
          }
        });
  }
};

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace octavo::detail {
template <>
KernelFunction find_quantize<HWY_NAMESPACE::this_target>(const KernelKey& key) {
  return find_typed<HWY_NAMESPACE::FindQuantize, HWY_NAMESPACE::Uniform, HWY_NAMESPACE::PerLane>(
      key);
}
}  // namespace octavo::detail
#endif  // OCTAVO_SIMD_PASS
