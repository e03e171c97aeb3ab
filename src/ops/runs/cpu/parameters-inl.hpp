// The parameters of a kernel, and what is computed from them: quotients and masks. Compiled per
// target.

#if defined(OCTAVO_ELEMENTWISE_PARAMETERS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_ELEMENTWISE_PARAMETERS_INL_HPP
#undef OCTAVO_ELEMENTWISE_PARAMETERS_INL_HPP
#else
#define OCTAVO_ELEMENTWISE_PARAMETERS_INL_HPP
#endif

#include <algorithm>

#include "numerics/affine.hpp"
#include "numerics/quotient.hpp"
#include "ops/runs/cpu/call.hpp"
#include "simd/vector-inl.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

using detail::KernelCall;

// ---- Parameters. SVE vectors cannot be members, so these hold scalars and pointers.

enum class Quotient : std::uint8_t {
  reciprocal,  // x * (1 / s): profile torch
  exact,       // as good as x / s: its rint is the same (numerics/quotient.hpp)
  divide,      // x / s
};

// A part of one run, or of `together` runs from that one on that have the same parameters.
struct Span {
  std::int64_t run;
  std::int64_t column;
  std::int64_t length;
  int together;
};
inline constexpr int max_together = 4;

template <class C>
struct Uniform {
  static constexpr bool per_lane = false;
  static constexpr std::int64_t tile_lanes = INT64_MAX;
  struct Tile {};
  C scale;
  C reciprocal;
  C correction = 0;  // after Prepare, of the exact quotient
  std::int32_t zero_point;
  IntRange range;

  Uniform(const KernelCall& call, const Span& span)
      : scale(static_cast<const C*>(call.scale)[span.run * call.param_step]),
        reciprocal(C(1) / scale),
        zero_point(call.zero_point == nullptr ? 0 : call.zero_point[span.run * call.param_step]),
        range(call.range) {}

  Uniform(C s, std::int32_t zp, IntRange r)
      : scale(s),
        reciprocal(C(1) / s),
        zero_point(zp),
        range(r) {}

  void Prepare(const KernelCall& call, const Span& /*span*/, Tile& /*tile*/) {
    if constexpr (std::is_same_v<C, float>)
      if (call.exact_quotient) correction = numerics::reciprocal_lack(scale, reciprocal);
  }

  [[nodiscard]] Uniform At(std::int64_t /*i*/) const { return *this; }
  template <class D>
  HWY_INLINE hn::Vec<D> Scale(D d, size_t /*i*/) const {
    return hn::Set(d, scale);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Reciprocal(D d, size_t /*i*/) const {
    return hn::Set(d, reciprocal);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Correction(D d, size_t /*i*/) const {
    return hn::Set(d, correction);
  }
  template <class DI>
  HWY_INLINE hn::Vec<DI> ZeroPoint(DI di, size_t /*i*/) const {
    return hn::Set(di, zero_point);
  }
  [[nodiscard]] bool HasZeroPoint() const { return zero_point != 0; }
  template <class D>
  HWY_INLINE hn::Vec<D> Bound(D d, std::int32_t q, size_t /*i*/) const {
    return hn::Set(d, static_cast<C>(q - zero_point));
  }
};

template <class C>
struct PerLane {
  static constexpr bool per_lane = true;
  // Rows are read in pieces of this length: shorter ones lose bandwidth, longer ones cost stack.
  static constexpr std::int64_t tile_lanes = 32768 / sizeof(C);
  struct Tile {
    HWY_ALIGN C reciprocal[tile_lanes];
    HWY_ALIGN C correction[std::is_same_v<C, float> ? tile_lanes : 1];
  };
  const C* scale;
  const C* reciprocal = nullptr;       // after Prepare
  const C* correction = nullptr;       // after Prepare, of the exact quotient
  const std::int32_t* zero_point;      // null: all the same
  std::int32_t shared_zero_point = 0;  // that one
  IntRange range;

  PerLane(const KernelCall& call, const Span& span)
      : scale(static_cast<const C*>(call.scale) + span.run * call.param_step + span.column),
        zero_point(call.same_zero_points
                       ? nullptr
                       : call.zero_point + span.run * call.param_step + span.column),
        shared_zero_point(call.zero_point == nullptr ? 0 : call.zero_point[0]),
        range(call.range) {}

  // Fills the tile, unless it still holds what the run before needed.
  void Prepare(const KernelCall& call, const Span& span, Tile& tile) {
    if (span.run == 0 || call.param_step != 0) Fill(call, span, tile);
    reciprocal = tile.reciprocal;
    if (call.exact_quotient) correction = tile.correction;
  }

  void Fill(const KernelCall& call, const Span& span, Tile& tile) const {
    for (std::int64_t i = 0; i < span.length; ++i) tile.reciprocal[i] = C(1) / scale[i];
    if constexpr (std::is_same_v<C, float>)
      if (call.exact_quotient)
        for (std::int64_t i = 0; i < span.length; ++i)
          tile.correction[i] = numerics::reciprocal_lack(scale[i], tile.reciprocal[i]);
  }

  [[nodiscard]] PerLane At(std::int64_t i) const {
    PerLane p = *this;
    p.scale += i;
    if (p.reciprocal != nullptr) p.reciprocal += i;
    if (p.correction != nullptr) p.correction += i;
    if (p.zero_point != nullptr) p.zero_point += i;
    return p;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Scale(D d, size_t i) const {
    return hn::LoadU(d, scale + i);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Reciprocal(D d, size_t i) const {
    return hn::LoadU(d, reciprocal + i);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Correction(D d, size_t i) const {
    return hn::LoadU(d, correction + i);
  }
  template <class DI>
  HWY_INLINE hn::Vec<DI> ZeroPoint(DI di, size_t i) const {
    return zero_point == nullptr ? hn::Set(di, shared_zero_point) : hn::LoadU(di, zero_point + i);
  }
  [[nodiscard]] bool HasZeroPoint() const {
    return zero_point != nullptr || shared_zero_point != 0;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Bound(D d, std::int32_t q, size_t i) const {
    const Ints<D> di;
    return ToFloat(d, hn::Sub(hn::Set(di, q), ZeroPoint(di, i)));
  }
};

// ---- v: x * (1 / s) or x / s. The exact form is infinite, of any sign, or NaN where x * (1 / s)
// overflows.
template <Quotient quotient, class D, class P>
HWY_INLINE hn::Vec<D> Divide(D d, hn::Vec<D> x, const P& p, size_t i) {
  if constexpr (quotient == Quotient::divide) return hn::Div(x, p.Scale(d, i));
  if constexpr (quotient == Quotient::reciprocal) return hn::Mul(x, p.Reciprocal(d, i));
  return hn::MulAdd(x, p.Reciprocal(d, i), hn::Mul(x, p.Correction(d, i)));
}

// v clamped to +-guard (or a little more): far outside any bound, and safe to convert.
template <Quotient quotient, std::int32_t guard, class D, class P>
HWY_INLINE hn::Vec<D> DivideGuarded(D d, hn::Vec<D> x, const P& p, size_t i) {
  using C = hn::TFromD<D>;
  const auto clamp = [&](hn::Vec<D> v, hn::Vec<D> most)
                         HWY_ATTR { return hn::Min(hn::Max(v, hn::Neg(most)), most); };
  if constexpr (quotient == Quotient::exact) {
    const auto most = hn::Mul(p.Scale(d, i), hn::Set(d, C(guard)));
    return Divide<quotient>(d, clamp(x, most), p, i);
  } else {
    return clamp(Divide<quotient>(d, x, p, i), hn::Set(d, C(guard)));
  }
}

// Whether the gradient passes: q_min <= rint(v) + zp <= q_max. False for NaN.
template <Quotient quotient, class D, class P>
HWY_INLINE hn::Mask<D> Passes(D d, hn::Vec<D> x, const P& p, size_t i) {
  const auto v = hn::Round(Divide<quotient>(d, x, p, i));
  return hn::And(hn::Ge(v, p.Bound(d, p.range.min, i)), hn::Le(v, p.Bound(d, p.range.max, i)));
}

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // OCTAVO_SIMD_PASS

#endif  // per-target include guard
