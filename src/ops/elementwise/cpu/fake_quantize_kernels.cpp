// Fake-quantize and its backward pass, for every SIMD target.
#include "simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/cpu/fake_quantize_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/elementwise/cpu/kernels.hpp"
#include "ops/runs/cpu/loops-inl.hpp"
#include "ops/runs/cpu/select_kernel.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

template <Quotient quotient>
struct FakeQuantizeMath {
  template <class D, class T, class P>
  static HWY_INLINE hn::Vec<D> Apply(D d, const T* from, const std::uint8_t* /*dy*/, const P& p,
                                     size_t i) {
    const auto x = LoadAs(d, from + i);
    const auto scale = p.Scale(d, i);
    const auto low = p.Bound(d, p.range.min, i);
    const auto high = p.Bound(d, p.range.max, i);
    const auto clamp = [](auto v, auto least, auto most)
                           HWY_ATTR { return hn::Min(hn::Max(v, least), most); };
    hn::Vec<D> v;
    if constexpr (quotient == Quotient::exact) {
      // The exact quotient may not overflow, so x is clamped instead of v. It comes to the same:
      // RN(low * s) / s rounds to low, and what lies beyond it rounds to low or beyond.
      v = Divide<quotient>(d, clamp(x, hn::Mul(low, scale), hn::Mul(high, scale)), p, i);
    } else {
      v = clamp(Divide<quotient>(d, x, p, i), low, high);
    }
    // An integer has no -0: adding +0 makes it +0.
    const auto centred = hn::Add(hn::Round(v), hn::Zero(d));
    return hn::IfThenElse(hn::IsNaN(x), QuietNaN(d), hn::Mul(scale, centred));
  }
};

template <Quotient quotient>
struct FakeQuantizeBackwardMath {
  template <class D, class T, class P>
  static HWY_INLINE hn::Vec<D> Apply(D d, const T* x, const T* dy, const P& p, size_t i) {
    return hn::IfThenElseZero(Passes<quotient>(d, LoadAs(d, x + i), p, i),
                              Canonical(d, LoadAs(d, dy + i)));
  }
};

struct FindFakeQuantize {
  template <class C, class T, class P>
  static detail::KernelFunction Find(const detail::KernelKey& key) {
    if (key.op == Op::fake_quantize_backward)
      return QuotientKernel<FakeQuantizeBackwardMath, C, Plain<T>, Plain<T>, Plain<T>, P>;
    return QuotientKernel<FakeQuantizeMath, C, Plain<T>, NoElement, Plain<T>, P>;
  }
};

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace octavo::detail {
template <>
KernelFunction find_fake_quantize<HWY_NAMESPACE::this_target>(const KernelKey& key) {
  return find_typed<HWY_NAMESPACE::FindFakeQuantize, HWY_NAMESPACE::Uniform,
                    HWY_NAMESPACE::PerLane>(key);
}
}  // namespace octavo::detail
#endif  // OCTAVO_SIMD_PASS
