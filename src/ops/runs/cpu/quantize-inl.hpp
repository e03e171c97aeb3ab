// Quantize, one vector or block at a time. Compiled per target.

#if defined(OCTAVO_ELEMENTWISE_QUANTIZE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_ELEMENTWISE_QUANTIZE_INL_HPP
#undef OCTAVO_ELEMENTWISE_QUANTIZE_INL_HPP
#else
#define OCTAVO_ELEMENTWISE_QUANTIZE_INL_HPP
#endif

#include <limits>

#include "ops/runs/cpu/parameters-inl.hpp"
#include "simd/vector-inl.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

// To an integer type of so many bits.
template <Quotient quotient, int bits>
struct QuantizeMathOf {
  // q before the store clamps it to the range: within +-guard + zp.
  template <class D, class T, class P>
  static HWY_INLINE hn::Vec<Ints<D>> Apply(D d, const T* from, const std::uint8_t* /*dy*/,
                                           const P& p, size_t i) {
    const Ints<D> di;
    const auto x = LoadAs(d, from + i);
    const auto v = DivideGuarded<quotient, detail::quotient_guard(bits)>(d, x, p, i);
    const auto number = hn::IfThenElseZero(hn::Eq(x, x), v);  // NaN quantizes like 0
    return hn::Add(RoundToInts(di, number), p.ZeroPoint(di, i));
  }

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  // A whole block without a guard, or false (and nothing written) if one was needed: x86 converts
  // NaN and all that int32 cannot hold to its least value, which saturates to the least int16, and
  // so does any v that low. What saturates to the greatest int16 is beyond q_max whatever zp; but
  // not of 16 bits, which take this way without a zero point only.
  template <class T, class P, class Q>
  static HWY_INLINE bool Quick(hn::ScalableTag<float> d, const T* from, const P& p, Q* to,
                               bool stream) {
    if constexpr (bits > 8)
      if (p.HasZeroPoint()) return false;
    using D = hn::ScalableTag<float>;
    const size_t n = hn::Lanes(d);
    const Ints<D> di;
    const hn::ScalableTag<std::int16_t> d16;
    const auto ints = [&](size_t i) HWY_ATTR {
      return RoundToInts(di, Divide<quotient>(d, LoadAs(d, from + i), p, i));
    };
    auto ab = hn::ReorderDemote2To(d16, ints(0), ints(n));
    auto ce = hn::ReorderDemote2To(d16, ints(2 * n), ints(3 * n));
    const auto least = hn::Set(d16, std::numeric_limits<std::int16_t>::min());
    if (HWY_UNLIKELY(!hn::AllFalse(d16, hn::Eq(hn::Min(ab, ce), least)))) return false;
    if constexpr (bits > 8) {
      // (no zero point)
    } else if constexpr (P::per_lane) {
      ab = hn::SaturatedAdd(ab, hn::ReorderDemote2To(d16, p.ZeroPoint(di, 0), p.ZeroPoint(di, n)));
      ce = hn::SaturatedAdd(
          ce, hn::ReorderDemote2To(d16, p.ZeroPoint(di, 2 * n), p.ZeroPoint(di, 3 * n)));
    } else if (p.zero_point != 0) {
      const auto zero_point = hn::Set(d16, static_cast<std::int16_t>(p.zero_point));
      ab = hn::SaturatedAdd(ab, zero_point);
      ce = hn::SaturatedAdd(ce, zero_point);
    }
    StoreShorts(ab, ce, p.range.min, p.range.max, to, stream);
    return true;
  }
#endif
};

template <Quotient quotient>
using QuantizeMath8 = QuantizeMathOf<quotient, 8>;
template <Quotient quotient>
using QuantizeMath16 = QuantizeMathOf<quotient, 16>;
/// The math of an integer type.
template <Quotient quotient, class Lane>
using QuantizeMath = QuantizeMathOf<quotient, 8 * sizeof(Lane)>;

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // OCTAVO_SIMD_PASS

#endif  // per-target include guard
