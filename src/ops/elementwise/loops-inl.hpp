// The loop that every SIMD kernel of the family is made of: blocks of four vectors, then a tail
// through a stack buffer, so that nothing outside a run is read or written. Compiled per target.

#if defined(OCTAVO_ELEMENTWISE_LOOPS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_ELEMENTWISE_LOOPS_INL_HPP
#undef OCTAVO_ELEMENTWISE_LOOPS_INL_HPP
#else
#define OCTAVO_ELEMENTWISE_LOOPS_INL_HPP
#endif

#include <cstring>

#include "ops/elementwise/kernels.hpp"
#include "ops/elementwise/parameters-inl.hpp"
#include "simd/vector-inl.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

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
      UnpackNibbles(d, x, x_lanes);
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
    if constexpr (requires { Math::Quick(d, from, p, to, stream); }) {
      if (HWY_LIKELY(Math::Quick(d, from, p, to, stream))) {
        if constexpr (Out::packed) PackNibbles(D(), out_lanes, out);
        return;
      }
    }
    const auto a = Math::Apply(d, from, dy, p, 0);
    const auto b = Math::Apply(d, from, dy, p, n);
    const auto c = Math::Apply(d, from, dy, p, 2 * n);
    const auto e = Math::Apply(d, from, dy, p, 3 * n);
    if constexpr (sizeof(typename Out::Lane) == 1) {
      StoreInts4(Ints<D>(), a, b, c, e, p.range.min, p.range.max, to, stream);
    } else {
      Store4(d, a, b, c, e, to, stream);
    }
    if constexpr (Out::packed) PackNibbles(d, out_lanes, out);
  }

  // What a block reads, some blocks ahead: when as much is stored past the caches as is read, the
  // hardware alone does not look far enough. A prefetch beyond the end reads nothing.
  template <class E>
  static HWY_INLINE void Prefetch(const typename E::Storage* from) {
    constexpr std::uintptr_t ahead = 2048;
    const auto at = reinterpret_cast<std::uintptr_t>(from) + ahead;
    for (std::uintptr_t line = 0; line < E::Bytes(max_block); line += 64)
      hwy::Prefetch(reinterpret_cast<const std::uint8_t*>(at + line));
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
      HWY_ALIGN C scale[max_block] = {};
      HWY_ALIGN C reciprocal[max_block] = {};
      HWY_ALIGN C correction[max_block] = {};
      HWY_ALIGN std::int32_t zero_point[max_block] = {};
      std::memcpy(scale, p.scale, n * sizeof(C));
      if (p.reciprocal != nullptr) std::memcpy(reciprocal, p.reciprocal, n * sizeof(C));
      if (p.correction != nullptr) std::memcpy(correction, p.correction, n * sizeof(C));
      if (p.zero_point != nullptr) std::memcpy(zero_point, p.zero_point, n * sizeof(std::int32_t));
      P part = p;
      part.scale = scale;
      part.reciprocal = reciprocal;
      part.correction = correction;
      if (p.zero_point != nullptr) part.zero_point = zero_point;
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

  static HWY_INLINE void Run(const KernelCall& call, const Span& span, const P& params) {
    const auto* x = static_cast<const typename In::Storage*>(call.input) +
                    In::Offset(call.input_at + span.run * call.input_step + span.column);
    const auto* dy = static_cast<const typename Grad::Storage*>(call.grad) +
                     Grad::Offset(call.grad_at + span.run * call.grad_step + span.column);
    auto* out = static_cast<typename Out::Storage*>(call.output) +
                Out::Offset(call.output_at + span.run * call.output_step + span.column);
    const std::int64_t length = span.length;
    const auto block = static_cast<std::int64_t>(4 * hn::Lanes(D()));
    std::int64_t i = 0;
    bool stream = false;
    if constexpr (!Out::packed) {
      // Streamed stores are aligned ones: the elements before the first boundary go first.
      const std::size_t past = reinterpret_cast<std::uintptr_t>(out) % 64;
      const auto head = static_cast<std::int64_t>((64 - past) % 64 / sizeof(typename Out::Storage));
      // (Blocks of packed input start on a byte.)
      stream = call.stream_stores && length >= 2 * block && !(In::packed && head % 2 != 0);
      while (stream && i < head) {
        const std::int64_t n = std::min(block, head - i);
        Part(x + In::Offset(i), dy + Grad::Offset(i), out + i, params.At(i),
             static_cast<size_t>(n));
        i += n;
      }
    }
    if (stream) {
      for (; i + block <= length; i += block) {
        if constexpr (Out::Bytes(max_block) >= In::Bytes(max_block)) {
          Prefetch<In>(x + In::Offset(i));
          Prefetch<Grad>(dy + Grad::Offset(i));
        }
        Block(x + In::Offset(i), dy + Grad::Offset(i), out + Out::Offset(i), params.At(i), true);
      }
    } else {
      for (; i + block <= length; i += block)
        Block(x + In::Offset(i), dy + Grad::Offset(i), out + Out::Offset(i), params.At(i), false);
    }
    if (i < length)
      Part(x + In::Offset(i), dy + Grad::Offset(i), out + Out::Offset(i), params.At(i),
           static_cast<size_t>(length - i));
  }
};

// A kernel without a quotient.
template <class Math, class C, class In, class Grad, class Out, class P>
Target LinearKernel(const KernelCall& call) {
  for (std::int64_t run = 0; run < call.count; ++run) {
    const Span span{run, 0, call.length};
    Loop<Math, C, In, Grad, Out, P>::Run(call, span, P(call, span));
  }
  if (call.stream_stores) hwy::FlushStream();
  return this_target;
}

// A kernel with one: its form is chosen for each uniform run, and for each tile of lanes. All runs
// go through a tile before the next, so that its reciprocals are computed once.
template <template <Quotient> class Math, class C, class In, class Grad, class Out, class P>
Target QuotientKernel(const KernelCall& call) {
  typename P::Tile tile;
  for (std::int64_t column = 0; column < call.length; column += P::tile_lanes) {
    const std::int64_t length = std::min(P::tile_lanes, call.length - column);
    for (std::int64_t run = 0; run < call.count; ++run) {
      const Span span{run, column, length};
      P params(call, span);
      params.Prepare(call, span, tile);
      if (call.profile == Profile::torch) {
        Loop<Math<Quotient::reciprocal>, C, In, Grad, Out, P>::Run(call, span, params);
      } else if (tile.exact) {
        // (There is no exact form in f64.)
        constexpr Quotient form = std::is_same_v<C, float> ? Quotient::exact : Quotient::divide;
        Loop<Math<form>, C, In, Grad, Out, P>::Run(call, span, params);
      } else {
        Loop<Math<Quotient::divide>, C, In, Grad, Out, P>::Run(call, span, params);
      }
    }
  }
  if (call.stream_stores) hwy::FlushStream();
  return this_target;
}

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // OCTAVO_SIMD_PASS

#endif  // per-target include guard
