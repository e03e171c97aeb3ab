// The loop that every SIMD kernel of the family is made of: blocks of four vectors, then a tail
// through a stack buffer, so that nothing outside a run is read or written. Compiled per target.

#if defined(OCTAVO_ELEMENTWISE_LOOPS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_ELEMENTWISE_LOOPS_INL_HPP
#undef OCTAVO_ELEMENTWISE_LOOPS_INL_HPP
#else
#define OCTAVO_ELEMENTWISE_LOOPS_INL_HPP
#endif

#include <cstring>

#include "numerics/affine.hpp"
#include "ops/elementwise/kernels.hpp"
#include "simd/vector-inl.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

using detail::KernelCall;

// ---- Elements. A block of a packed type is unpacked into (packed from) bytes of type `Lane`.

template <class T>
struct Plain {
  using Storage = T;
  using Lane = T;
  static constexpr bool packed = false;
  static constexpr size_t Bytes(size_t n) { return n * sizeof(T); }
  static constexpr std::int64_t Offset(std::int64_t i) { return i; }
};
template <class T>
struct Nibbles {
  using Storage = std::uint8_t;
  using Lane = T;
  static constexpr bool packed = true;
  static constexpr size_t Bytes(size_t n) { return (n + 1) / 2; }
  static constexpr std::int64_t Offset(std::int64_t i) { return i / 2; }
};
// Stands for an operand that an operation does not have: its pointer never moves.
struct NoElement {
  using Storage = std::uint8_t;
  using Lane = std::uint8_t;
  static constexpr bool packed = false;
  static constexpr size_t Bytes(size_t /*n*/) { return 0; }
  static constexpr std::int64_t Offset(std::int64_t /*i*/) { return 0; }
};

// ---- Parameters. SVE vectors cannot be members, so these hold scalars and pointers.

enum class Quotient : std::uint8_t {
  reciprocal,  // x * (1 / s): profile torch
  exact,       // x / s by way of the reciprocal, where rint of it is proven to be the same
  divide,      // x / s
};

// rint(x / s) by two corrections of x * (1 / s) is exact for these scales and |x / s| <= 1024
// (tests/exhaustive proves it for every significand); outside, kernels divide.
inline constexpr float min_exact_scale = 0x1p-90F;
inline constexpr float max_exact_scale = 0x1p90F;
inline constexpr std::int64_t max_exact_bound = 1000;

template <class C>
struct Uniform {
  static constexpr bool per_lane = false;
  C scale;
  C reciprocal;
  std::int32_t zero_point;
  IntRange range;

  Uniform(const KernelCall& call, std::int64_t run)
      : scale(static_cast<const C*>(call.scale)[run * call.param_step]),
        reciprocal(C(1) / scale),
        zero_point(call.zero_point == nullptr ? 0 : call.zero_point[run * call.param_step]),
        range(call.range) {}

  [[nodiscard]] bool ExactQuotient() const {
    if constexpr (std::is_same_v<C, float>) {
      const auto within = [](std::int64_t b) {
        return -max_exact_bound <= b && b <= max_exact_bound;
      };
      return scale >= min_exact_scale && scale <= max_exact_scale &&
             within(std::int64_t{range.min} - zero_point) &&
             within(std::int64_t{range.max} - zero_point);
    }
    return false;
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
  template <class DI>
  HWY_INLINE hn::Vec<DI> ZeroPoint(DI di, size_t /*i*/) const {
    return hn::Set(di, zero_point);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Bound(D d, std::int32_t q, size_t /*i*/) const {
    return hn::Set(d, static_cast<C>(q - zero_point));
  }
};

template <class C>
struct PerLane {
  static constexpr bool per_lane = true;
  const C* scale;
  const std::int32_t* zero_point;  // null: all 0
  IntRange range;

  PerLane(const KernelCall& call, std::int64_t run)
      : scale(static_cast<const C*>(call.scale) + run * call.param_step),
        zero_point(call.zero_point == nullptr ? nullptr : call.zero_point + run * call.param_step),
        range(call.range) {}

  [[nodiscard]] static bool ExactQuotient() { return false; }

  [[nodiscard]] PerLane At(std::int64_t i) const {
    PerLane p = *this;
    p.scale += i;
    if (p.zero_point != nullptr) p.zero_point += i;
    return p;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Scale(D d, size_t i) const {
    return hn::LoadU(d, scale + i);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Reciprocal(D d, size_t i) const {
    return hn::Div(hn::Set(d, C(1)), Scale(d, i));
  }
  template <class DI>
  HWY_INLINE hn::Vec<DI> ZeroPoint(DI di, size_t i) const {
    return zero_point == nullptr ? hn::Zero(di) : hn::LoadU(di, zero_point + i);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Bound(D d, std::int32_t q, size_t i) const {
    const Ints<D> di;
    return ToFloat(d, hn::Sub(hn::Set(di, q), ZeroPoint(di, i)));
  }
};

// ---- v: x * (1 / s) or x / s. The exact form is NaN where x * (1 / s) overflows.
template <Quotient quotient, class D, class P>
HWY_INLINE hn::Vec<D> Divide(D d, hn::Vec<D> x, const P& p, size_t i) {
  if constexpr (quotient == Quotient::divide) return hn::Div(x, p.Scale(d, i));
  const auto reciprocal = p.Reciprocal(d, i);
  const auto v = hn::Mul(x, reciprocal);
  if constexpr (quotient == Quotient::reciprocal) return v;
  const auto rest = hn::NegMulAdd(v, p.Scale(d, i), x);
  return hn::MulAdd(rest, reciprocal, v);
}

// v clamped to +-2^14 (or a little more): far outside any bound of 8 bits, and safe to convert.
template <Quotient quotient, class D, class P>
HWY_INLINE hn::Vec<D> DivideGuarded(D d, hn::Vec<D> x, const P& p, size_t i) {
  using C = hn::TFromD<D>;
  const auto clamp = [&](hn::Vec<D> v, hn::Vec<D> most)
                         HWY_ATTR { return hn::Min(hn::Max(v, hn::Neg(most)), most); };
  if constexpr (quotient == Quotient::exact) {
    const auto most = hn::Mul(p.Scale(d, i), hn::Set(d, C(16384)));
    return Divide<quotient>(d, clamp(x, most), p, i);
  } else {
    return clamp(Divide<quotient>(d, x, p, i), hn::Set(d, C(16384)));
  }
}

// Whether the gradient passes: q_min <= rint(v) + zp <= q_max. False for NaN.
template <Quotient quotient, class D, class P>
HWY_INLINE hn::Mask<D> Passes(D d, hn::Vec<D> x, const P& p, size_t i) {
  const auto v = hn::Round(Divide<quotient>(d, x, p, i));
  return hn::And(hn::Ge(v, p.Bound(d, p.range.min, i)), hn::Le(v, p.Bound(d, p.range.max, i)));
}

// CPUs differ in the sign and payload of the NaNs they make, and Highway's NaN is another one
// still.
template <class D>
HWY_INLINE hn::Vec<D> QuietNaN(D d) {
  return hn::Set(d, numerics::quiet_nan<hn::TFromD<D>>);
}
template <class D>
HWY_INLINE hn::Vec<D> Canonical(D d, hn::Vec<D> v) {
  return hn::IfThenElse(hn::IsNaN(v), QuietNaN(d), v);
}

// ---- The loop over one run. Math::Apply(d, x, dy, params, i) gives the vector of results for the
// elements from i on: floats, or int32 that the store clamps to the range.

template <class Math, class C, class In, class Grad, class Out, class P>
struct Loop {
  using D = hn::ScalableTag<C>;
  static constexpr size_t max_block = 4 * hn::MaxLanes(D());
  template <class E>
  static constexpr size_t buffer = E::Bytes(1) == 0 ? 1 : max_block;

  static HWY_INLINE void Block(const typename In::Storage* x, const typename Grad::Storage* dy,
                               typename Out::Storage* out, const P& p, bool stream) {
    const D d;
    HWY_ALIGN typename In::Lane x_lanes[In::packed ? max_block : 1];
    HWY_ALIGN typename Out::Lane out_lanes[Out::packed ? max_block : 1];
    const typename In::Lane* from;
    typename Out::Lane* to;
    if constexpr (In::packed) {
      UnpackNibbles(x, 4 * hn::Lanes(d), x_lanes);
      from = x_lanes;
    } else {
      from = x;
    }
    if constexpr (Out::packed) {
      to = out_lanes;
    } else {
      to = out;
    }
    const size_t n = hn::Lanes(d);
    const auto a = Math::Apply(d, from, dy, p, 0);
    const auto b = Math::Apply(d, from, dy, p, n);
    const auto c = Math::Apply(d, from, dy, p, 2 * n);
    const auto e = Math::Apply(d, from, dy, p, 3 * n);
    if constexpr (sizeof(typename Out::Lane) == 1) {
      StoreInts4(Ints<D>(), a, b, c, e, p.range.min, p.range.max, to, stream);
    } else {
      Store4(d, a, b, c, e, to, stream);
    }
    if constexpr (Out::packed) PackNibbles(out_lanes, 4 * hn::Lanes(d), out);
  }

  // Fewer elements than a block, through the stack. Lanes past the end see harmless values.
  static HWY_NOINLINE void Part(const typename In::Storage* x, const typename Grad::Storage* dy,
                                typename Out::Storage* out, const P& p, size_t n) {
    HWY_ALIGN typename In::Storage x_part[buffer<In>] = {};
    HWY_ALIGN typename Grad::Storage dy_part[buffer<Grad>] = {};
    HWY_ALIGN typename Out::Storage out_part[max_block];
    if constexpr (In::Bytes(1) != 0) std::memcpy(x_part, x, In::Bytes(n));
    if constexpr (Grad::Bytes(1) != 0) std::memcpy(dy_part, dy, Grad::Bytes(n));
    if constexpr (P::per_lane) {
      HWY_ALIGN C scale[max_block];
      HWY_ALIGN std::int32_t zero_point[max_block] = {};
      for (size_t i = 0; i < max_block; ++i) scale[i] = i < n ? p.scale[i] : C(1);
      if (p.zero_point != nullptr) std::memcpy(zero_point, p.zero_point, n * sizeof(std::int32_t));
      P part = p;
      part.scale = scale;
      part.zero_point = zero_point;
      Block(x_part, dy_part, out_part, part, false);
    } else {
      Block(x_part, dy_part, out_part, p, false);
    }
    // The unused half of an odd row's last byte is 0.
    if constexpr (Out::packed) {
      if (n % 2 != 0) out_part[n / 2] &= 0xF;
    }
    std::memcpy(out, out_part, Out::Bytes(n));
  }

  static HWY_INLINE void Run(const KernelCall& call, std::int64_t run, const P& params) {
    const auto* x = static_cast<const typename In::Storage*>(call.input) +
                    In::Offset(call.input_at + run * call.input_step);
    const auto* dy = static_cast<const typename Grad::Storage*>(call.grad) +
                     Grad::Offset(call.grad_at + run * call.grad_step);
    auto* out = static_cast<typename Out::Storage*>(call.output) +
                Out::Offset(call.output_at + run * call.output_step);
    const auto block = static_cast<std::int64_t>(4 * hn::Lanes(D()));
    std::int64_t i = 0;
    bool stream = false;
    if constexpr (!Out::packed) {
      // Streamed stores are aligned ones: the elements before the first boundary go first.
      const std::size_t past = reinterpret_cast<std::uintptr_t>(out) % 64;
      const auto head = static_cast<std::int64_t>((64 - past) % 64 / sizeof(typename Out::Storage));
      // (Blocks of packed input start on a byte.)
      stream = call.stream_stores && call.length >= 2 * block && !(In::packed && head % 2 != 0);
      while (stream && i < head) {
        const std::int64_t n = std::min(block, head - i);
        Part(x + In::Offset(i), dy + Grad::Offset(i), out + i, params.At(i),
             static_cast<size_t>(n));
        i += n;
      }
    }
    if (stream) {
      for (; i + block <= call.length; i += block)
        Block(x + In::Offset(i), dy + Grad::Offset(i), out + Out::Offset(i), params.At(i), true);
    } else {
      for (; i + block <= call.length; i += block)
        Block(x + In::Offset(i), dy + Grad::Offset(i), out + Out::Offset(i), params.At(i), false);
    }
    if (i < call.length)
      Part(x + In::Offset(i), dy + Grad::Offset(i), out + Out::Offset(i), params.At(i),
           static_cast<size_t>(call.length - i));
  }
};

// A kernel without a quotient.
template <class Math, class C, class In, class Grad, class Out, class P>
Target LinearKernel(const KernelCall& call) {
  for (std::int64_t run = 0; run < call.count; ++run)
    Loop<Math, C, In, Grad, Out, P>::Run(call, run, P(call, run));
  if (call.stream_stores) hwy::FlushStream();
  return this_target;
}

// A kernel with one: the form is chosen run by run.
template <template <Quotient> class Math, class C, class In, class Grad, class Out, class P>
Target QuotientKernel(const KernelCall& call) {
  for (std::int64_t run = 0; run < call.count; ++run) {
    const P params(call, run);
    if (call.profile == Profile::torch) {
      Loop<Math<Quotient::reciprocal>, C, In, Grad, Out, P>::Run(call, run, params);
    } else if (params.ExactQuotient()) {
      if constexpr (!P::per_lane && std::is_same_v<C, float>)
        Loop<Math<Quotient::exact>, C, In, Grad, Out, P>::Run(call, run, params);
    } else {
      Loop<Math<Quotient::divide>, C, In, Grad, Out, P>::Run(call, run, params);
    }
  }
  if (call.stream_stores) hwy::FlushStream();
  return this_target;
}

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // OCTAVO_SIMD_PASS

#endif  // per-target include guard
