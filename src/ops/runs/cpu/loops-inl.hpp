// The loop that every SIMD kernel of the family is made of: blocks of four vectors, then a tail
// through a stack buffer, so that nothing outside a run is read or written. Compiled per target.

#if defined(OCTAVO_ELEMENTWISE_LOOPS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_ELEMENTWISE_LOOPS_INL_HPP
#undef OCTAVO_ELEMENTWISE_LOOPS_INL_HPP
#else
#define OCTAVO_ELEMENTWISE_LOOPS_INL_HPP
#endif

#include <cstring>
#include <type_traits>

#include "ops/runs/cpu/call.hpp"
#include "ops/runs/cpu/parameters-inl.hpp"
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
    if constexpr (std::is_integral_v<typename Out::Lane>) {
      StoreInts4(Ints<D>(), a, b, c, e, p.range.min, p.range.max, to, stream);
    } else {
      Store4(d, a, b, c, e, to, stream);
    }
    if constexpr (Out::packed) PackNibbles(d, out_lanes, out);
  }

  // What a block reads, `ahead` bytes before it does. A prefetch beyond the end reads nothing.
  template <class E, class F>
  static HWY_INLINE void Prefetch(const typename E::Storage* from, std::int64_t ahead, F&& fetch) {
    const auto at = reinterpret_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(ahead);
    for (std::uintptr_t line = 0; line < E::Bytes(max_block); line += 64)
      fetch(reinterpret_cast<const std::uint8_t*>(at + line));
  }

  // Fewer elements than a block, through the stack. Lanes past the end see harmless values.
  static HWY_NOINLINE void Part(const typename In::Storage* x, const typename Grad::Storage* dy,
                                typename Out::Storage* out, const P& p, size_t n) {
    HWY_ALIGN typename In::Storage x_part[buffer<In>];
    HWY_ALIGN typename Grad::Storage dy_part[buffer<Grad>];
    HWY_ALIGN typename Out::Storage out_part[max_block];
    if constexpr (In::Bytes(1) != 0) CopyPart<buffer<In>>(x, In::Bytes(n) / sizeof(*x), x_part);
    if constexpr (Grad::Bytes(1) != 0)
      CopyPart<buffer<Grad>>(dy, Grad::Bytes(n) / sizeof(*dy), dy_part);
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

  // How many runs go side by side. Those with the same parameters per lane do, to share the loads
  // of them. Out of cache one after another is better where the parameters stay in the first cache,
  // and needed where the runs are not aligned alike: streamed stores are aligned ones.
  static int Together(const KernelCall& call) {
    if (!P::per_lane || call.param_step != 0) return 1;
    constexpr std::int64_t stays = 8192 / sizeof(C);
    const bool alike =
        static_cast<size_t>(call.output_step) * sizeof(typename Out::Storage) % 64 == 0;
    return call.stream_stores && (call.length <= stays || !alike) ? 1 : max_together;
  }

  static HWY_INLINE void Run(const KernelCall& call, const Span& span, const P& params) {
    const auto* x = static_cast<const typename In::Storage*>(call.input) +
                    In::Offset(call.input_at + span.run * call.input_step + span.column);
    const auto* dy = static_cast<const typename Grad::Storage*>(call.grad) +
                     Grad::Offset(call.grad_at + span.run * call.grad_step + span.column);
    auto* out = static_cast<typename Out::Storage*>(call.output) +
                Out::Offset(call.output_at + span.run * call.output_step + span.column);
    const auto block = static_cast<std::int64_t>(4 * hn::Lanes(D()));
    const std::int64_t length = span.length;
    const int together = P::per_lane ? span.together : 1;

    // work(x, dy, out) from element i on, for each run of the span.
    const auto each = [&](std::int64_t i, auto&& work) HWY_ATTR {
      for (int t = 0; t < together; ++t)
        work(x + In::Offset(t * call.input_step + i), dy + Grad::Offset(t * call.grad_step + i),
             out + Out::Offset(t * call.output_step + i));
    };
    const auto parts = [&](std::int64_t i, std::int64_t end) HWY_ATTR {
      for (; i < end; i += block) {
        const P part = params.At(i);
        each(i, [&](const auto* a, const auto* b, auto* c) HWY_ATTR {
          Part(a, b, c, part, static_cast<size_t>(std::min(block, end - i)));
        });
      }
    };

    // Streamed stores are aligned ones: the elements before the first boundary go first.
    const std::size_t past = reinterpret_cast<std::uintptr_t>(out) % 64;
    const auto head = static_cast<std::int64_t>((64 - past) % 64 / sizeof(typename Out::Storage));
    // (Blocks of packed input start on a byte.)
    const bool stream = !Out::packed && call.stream_stores && length >= head + block &&
                        !(In::packed && head % 2 != 0);
    std::int64_t i = 0;
    if (stream) {
      parts(0, head);
      i = head;
      if (together > 1) {
        // Meanwhile the next runs come to the second cache, or the hardware would not keep up.
        const std::int64_t x_next = together * call.input_step;
        const std::int64_t dy_next = together * call.grad_step;
        for (; i + block <= length; i += block)
          each(i, [&](const auto* a, const auto* b, auto* c) HWY_ATTR {
            Prefetch<In>(a, x_next * static_cast<std::int64_t>(In::Bytes(2)) / 2, PrefetchToL2);
            Prefetch<Grad>(b, dy_next * static_cast<std::int64_t>(Grad::Bytes(2)) / 2,
                           PrefetchToL2);
            Block(a, b, c, params.At(i), true);
          });
      } else {
        // When as much is stored past the caches as is read, the hardware alone does not look far
        // enough.
        constexpr bool prefetch = Out::Bytes(max_block) >= In::Bytes(max_block);
        for (; i + block <= length; i += block)
          each(i, [&](const auto* a, const auto* b, auto* c) HWY_ATTR {
            if constexpr (prefetch) {
              Prefetch<In>(a, 2048, hwy::Prefetch<std::uint8_t>);
              Prefetch<Grad>(b, 2048, hwy::Prefetch<std::uint8_t>);
            }
            Block(a, b, c, params.At(i), true);
          });
      }
    } else {
      for (; i + block <= length; i += block)
        each(i, [&](const auto* a, const auto* b, auto* c)
                    HWY_ATTR { Block(a, b, c, params.At(i), false); });
    }
    if (i < length) parts(i, length);
  }
};

// fn(span) for all of a call. Parameters per lane come in tiles: all runs go through one before the
// next, so that what is computed for it is computed once.
template <class L, class P, class F>
HWY_INLINE void ForEachSpan(const KernelCall& call, F&& fn) {
  const int together = L::Together(call);
  for (std::int64_t column = 0; column < call.length; column += P::tile_lanes) {
    const std::int64_t length = std::min(P::tile_lanes, call.length - column);
    for (std::int64_t run = 0; run < call.count;) {
      const Span span{run, column, length, run + together <= call.count ? together : 1};
      fn(span);
      run += span.together;
    }
  }
  if (call.stream_stores) hwy::FlushStream();
}

// A kernel without a quotient.
template <class Math, class C, class In, class Grad, class Out, class P>
Target LinearKernel(const KernelCall& call) {
  using L = Loop<Math, C, In, Grad, Out, P>;
  ForEachSpan<L, P>(call, [&](const Span& span) HWY_ATTR { L::Run(call, span, P(call, span)); });
  return this_target;
}

// A kernel with one, in the form that the call allows.
template <template <Quotient> class Math, class C, class In, class Grad, class Out, class P>
Target QuotientKernel(const KernelCall& call) {
  typename P::Tile tile;
  using L = Loop<Math<Quotient::reciprocal>, C, In, Grad, Out, P>;
  ForEachSpan<L, P>(call, [&](const Span& span) HWY_ATTR {
    P params(call, span);
    params.Prepare(call, span, tile);
    if (call.profile == Profile::torch) {
      L::Run(call, span, params);
    } else if (call.exact_quotient) {
      // (There is no exact form in f64.)
      constexpr Quotient form = std::is_same_v<C, float> ? Quotient::exact : Quotient::divide;
      Loop<Math<form>, C, In, Grad, Out, P>::Run(call, span, params);
    } else {
      Loop<Math<Quotient::divide>, C, In, Grad, Out, P>::Run(call, span, params);
    }
  });
  return this_target;
}

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // OCTAVO_SIMD_PASS

#endif  // per-target include guard
