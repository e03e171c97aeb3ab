// Ranges, alone and fused with quantize, for every SIMD target.
#include "simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/dynamic_range/cpu/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <bit>

#include "numerics/dynamic_range.hpp"
#include "numerics/half.hpp"
#include "ops/dynamic_range/cpu/kernels.hpp"
#include "ops/runs/cpu/loops-inl.hpp"
#include "ops/runs/cpu/quantize-inl.hpp"
#include "ops/runs/cpu/select_kernel.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

using numerics::Range;

// Calls four(x) for four vectors of T at a time, then one(x) for one, and once more for what is
// left, in a buffer of zeros. (The pointer moves so that compilers read the four in their order:
// out of cache another order costs a fifth of the speed.)
template <class D, class T, class F4, class F1>
HWY_INLINE void ForEachVector(D d, const T* x, std::int64_t n, F4&& four, F1&& one) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (; n >= 4 * lanes; n -= 4 * lanes, x += 4 * lanes) four(x);
  for (; n >= lanes; n -= lanes, x += lanes) one(x);
  if (n > 0) {
    HWY_ALIGN T rest[hn::MaxLanes(d)];
    CopyPart<hn::MaxLanes(d)>(x, static_cast<size_t>(n), rest);
    one(rest);
  }
}

// ---- Magnitudes, as integers: the bits of floats without their sign are in order, and what is not
// finite lies above all that is.

template <class T>
using Bits = std::conditional_t<sizeof(T) == 2, std::int16_t,
                                std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>>;
template <class T>
inline constexpr Bits<T> infinity = std::is_same_v<T, f16>    ? Bits<T>(0x7C00)
                                    : std::is_same_v<T, bf16> ? Bits<T>(0x7F80)
                                    : sizeof(T) == 4          ? Bits<T>(0x7F800000)
                                                     : static_cast<Bits<T>>(0x7FF0000000000000);

template <class D>
HWY_INLINE hn::TFromD<D> MostOfLanes(D d, hn::Vec<D> v) {
  if constexpr (sizeof(hn::TFromD<D>) == 2) {
    // (Not negative.) The odd lanes are the upper halves of 32 bits.
    const hn::Repartition<std::int32_t, D> wide;
    const auto pairs = hn::BitCast(wide, v);
    const auto most = hn::Max(hn::And(pairs, hn::Set(wide, 0xFFFF)), hn::ShiftRight<16>(pairs));
    return static_cast<hn::TFromD<D>>(hn::GetLane(hn::MaxOfLanes(wide, most)));
  } else {
    return hn::GetLane(hn::MaxOfLanes(d, v));
  }
}

// The greatest magnitude, or with `finite` that of the finite ones.
template <bool finite, class T>
HWY_INLINE Bits<T> MostBits(const T* x, std::int64_t n) {
  const hn::ScalableTag<Bits<T>> d;
  const size_t lanes = hn::Lanes(d);
  const auto magnitude = [&](const T* p) HWY_ATTR {
    const auto v = hn::And(hn::LoadU(d, reinterpret_cast<const Bits<T>*>(p)),
                           hn::Set(d, std::numeric_limits<Bits<T>>::max()));
    return finite ? hn::IfThenElseZero(hn::Lt(v, hn::Set(d, infinity<T>)), v) : v;
  };
  auto a = hn::Zero(d);
  auto b = a;
  auto c = a;
  auto e = a;
  ForEachVector(
      d, x, n,
      [&](const T* p) HWY_ATTR {
        a = hn::Max(a, magnitude(p));
        b = hn::Max(b, magnitude(p + lanes));
        c = hn::Max(c, magnitude(p + 2 * lanes));
        e = hn::Max(e, magnitude(p + 3 * lanes));
      },
      [&](const T* p) HWY_ATTR { a = hn::Max(a, magnitude(p)); });
  return MostOfLanes(d, hn::Max(hn::Max(a, b), hn::Max(c, e)));
}

template <class C, class T>
HWY_INLINE C Magnitude(const T* x, std::int64_t n) {
  Bits<T> bits = MostBits<false>(x, n);
  if (HWY_UNLIKELY(bits >= infinity<T>)) bits = MostBits<true>(x, n);
  const auto value = std::bit_cast<T>(bits);
  if constexpr (sizeof(T) == 2) {
    return numerics::widen(value);
  } else {
    return value;
  }
}

// ---- Extremes. Whether all is finite is found out on the way: x * 0 is 0 then, and NaN otherwise.

template <bool finite, class C, class T>
HWY_INLINE bool AddExtremes(const T* x, std::int64_t n, Range<C>& extent) {
  const hn::ScalableTag<C> d;
  const size_t lanes = hn::Lanes(d);
  const auto zero = hn::Zero(d);
  auto low = hn::Set(d, extent.low);
  auto low2 = low;
  auto high = hn::Set(d, extent.high);
  auto high2 = high;
  auto seen = zero;
  auto seen2 = zero;
  const auto load = [&](const T* p) HWY_ATTR {
    const auto v = LoadAs(d, p);
    return finite ? hn::IfThenElseZero(hn::IsFinite(v), v) : v;
  };
  const auto add = [&](const T* p) HWY_ATTR {
    const auto v = load(p);
    low = hn::Min(low, v);
    high = hn::Max(high, v);
    if constexpr (!finite) seen = hn::MulAdd(v, zero, seen);
  };
  const auto add2 = [&](const T* p) HWY_ATTR {
    const auto v = load(p);
    low2 = hn::Min(low2, v);
    high2 = hn::Max(high2, v);
    if constexpr (!finite) seen2 = hn::MulAdd(v, zero, seen2);
  };
  ForEachVector(
      d, x, n,
      [&](const T* p) HWY_ATTR {
        add(p);
        add2(p + lanes);
        add(p + 2 * lanes);
        add2(p + 3 * lanes);
      },
      add);
  if (!finite && !hn::AllTrue(d, hn::Eq(hn::Add(seen, seen2), zero))) return false;
  extent.low = hn::GetLane(hn::MinOfLanes(d, hn::Min(low, low2)));
  extent.high = hn::GetLane(hn::MaxOfLanes(d, hn::Max(high, high2)));
  return true;
}

template <class C, class T>
HWY_INLINE void AddRun(const T* x, std::int64_t n, bool symmetric, Range<C>& extent) {
  if (symmetric) {
    extent.high = std::max(extent.high, Magnitude<C>(x, n));
  } else if (HWY_UNLIKELY(!AddExtremes<false>(x, n, extent))) {
    AddExtremes<true>(x, n, extent);
  }
}

// ---- Range kernels

template <class C, class T>
Target RangeOfRuns(const KernelCall& call) {
  auto* low = static_cast<C*>(call.low);
  auto* high = static_cast<C*>(call.high);
  for (std::int64_t run = 0; run < call.count; ++run) {
    const std::int64_t at = run * call.param_step;
    Range<C> extent{call.symmetric ? C(0) : low[at], high[at]};
    AddRun(static_cast<const T*>(call.input) + call.input_at + run * call.input_step, call.length,
           call.symmetric, extent);
    high[at] = extent.high;
    if (!call.symmetric) low[at] = extent.low;
  }
  return this_target;
}

template <class C, class T>
HWY_INLINE void AddLanes(const T* x, C* low, C* high, bool symmetric) {
  const hn::ScalableTag<C> d;
  const auto v = LoadAs(d, x);
  const auto number = hn::IfThenElseZero(hn::IsFinite(v), v);
  const auto upper = symmetric ? hn::Abs(number) : number;
  hn::StoreU(hn::Max(hn::LoadU(d, high), upper), d, high);
  if (!symmetric) hn::StoreU(hn::Min(hn::LoadU(d, low), number), d, low);
}

template <class C, class T>
Target RangeOfLanes(const KernelCall& call) {
  const hn::ScalableTag<C> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t run = 0; run < call.count; ++run) {
    const auto* x = static_cast<const T*>(call.input) + call.input_at + run * call.input_step;
    auto* high = static_cast<C*>(call.high) + run * call.param_step;
    auto* low = call.symmetric ? high : static_cast<C*>(call.low) + run * call.param_step;
    std::int64_t i = 0;
    for (; i + lanes <= call.length; i += lanes) AddLanes(x + i, low + i, high + i, call.symmetric);
    if (i == call.length) continue;
    const auto rest = static_cast<size_t>(call.length - i);
    HWY_ALIGN T x_rest[hn::MaxLanes(d)] = {};
    HWY_ALIGN C low_rest[hn::MaxLanes(d)] = {};
    HWY_ALIGN C high_rest[hn::MaxLanes(d)] = {};
    std::memcpy(x_rest, x + i, rest * sizeof(T));
    std::memcpy(low_rest, low + i, rest * sizeof(C));
    std::memcpy(high_rest, high + i, rest * sizeof(C));
    AddLanes(x_rest, low_rest, high_rest, call.symmetric);
    std::memcpy(high + i, high_rest, rest * sizeof(C));
    if (!call.symmetric) std::memcpy(low + i, low_rest, rest * sizeof(C));
  }
  return this_target;
}

struct FindRange {
  template <class C, class T, class P>
  static detail::KernelFunction Find(const detail::KernelKey& /*key*/) {
    return P::per_lane ? RangeOfLanes<C, T> : RangeOfRuns<C, T>;
  }
};

// ---- Fused

template <class C, class T, class Out>
Target FusedKernel(const KernelCall& call) {
  using P = Uniform<C>;
  constexpr bool is_byte = sizeof(typename Out::Lane) == 1;
  auto* scales = static_cast<C*>(call.scale_found);
  for (std::int64_t run = 0; run < call.count; ++run) {
    Range<C> extent;
    AddRun(static_cast<const T*>(call.input) + call.input_at + run * call.input_step, call.length,
           call.symmetric, extent);
    const auto [scale, zero_point] =
        call.symmetric ? numerics::symmetric_parameters(extent.high, call.range)
                       : numerics::asymmetric_parameters(extent.low, extent.high, call.range);
    scales[run * call.param_step] = scale;
    if (call.zero_point_found != nullptr) call.zero_point_found[run * call.param_step] = zero_point;

    P params(scale, zero_point, call.range);
    const Span span{run, 0, call.length, 1};
    if (call.profile == Profile::torch) {
      Loop<QuantizeMath<Quotient::reciprocal, typename Out::Lane>, C, Plain<T>, NoElement, Out,
           P>::Run(call, span, params);
      continue;
    }
    if constexpr (std::is_same_v<C, float>) {
      // (Bounds of 8 bits always are.)
      if (numerics::is_exact_scale(scale) &&
          (is_byte || numerics::are_exact_bounds(zero_point, zero_point, call.range))) {
        params.correction = numerics::reciprocal_lack(scale, params.reciprocal);
        Loop<QuantizeMath<Quotient::exact, typename Out::Lane>, C, Plain<T>, NoElement, Out,
             P>::Run(call, span, params);
        continue;
      }
    }
    Loop<QuantizeMath<Quotient::divide, typename Out::Lane>, C, Plain<T>, NoElement, Out, P>::Run(
        call, span, params);
  }
  if (call.stream_stores) hwy::FlushStream();
  return this_target;
}

struct FindFused {
  template <class C, class T, class P>
  static detail::KernelFunction Find(const detail::KernelKey& key) {
    return detail::with_integer<Plain, Nibbles>(
        key.integer, []<class Q>() -> detail::KernelFunction { return FusedKernel<C, T, Q>; });
  }
};

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace octavo::detail {
template <>
KernelFunction find_range<HWY_NAMESPACE::this_target>(const KernelKey& key) {
  return find_typed<HWY_NAMESPACE::FindRange, HWY_NAMESPACE::Uniform, HWY_NAMESPACE::PerLane>(key);
}
template <>
KernelFunction find_fused<HWY_NAMESPACE::this_target>(const KernelKey& key) {
  return find_typed<HWY_NAMESPACE::FindFused, HWY_NAMESPACE::Uniform, HWY_NAMESPACE::Uniform>(key);
}
}  // namespace octavo::detail
#endif  // OCTAVO_SIMD_PASS
