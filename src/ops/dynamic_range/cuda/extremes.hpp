// Device code: the extremes of finite elements, and what follows from them.
#pragma once

#include "ops/dynamic_range/cuda/range_args.hpp"
#include "ops/runs/cuda/piece.hpp"
#include "ops/runs/cuda/start.hpp"

namespace octavo::cuda {

/// The largest element and the magnitude of the least, 0 at least, as patterns.
template <class T>
struct Magnitudes {
  BitsOf<T> high;  // (Without values to begin with, as shared memory has to be.)
  BitsOf<T> low;

  OCTAVO_DEVICE void add(const Magnitudes& other) {
    high = std::max(high, other.high);
    low = std::max(low, other.low);
  }
};

/// Those of the elements seen so far, found as integers: as signed ones patterns have the largest
/// number at the top, as unsigned ones the least, if there is a negative one.
template <class T>
struct Extremes {
  using Bits = BitsOf<T>;
  using Signed = std::make_signed_t<Bits>;
  Signed high = 0;
  Bits low = 0;

  /// Finite or not: what is not shows in the result. (Bits below those of the type do no harm.)
  OCTAVO_DEVICE void add(Bits x) {
    high = std::max(high, static_cast<Signed>(x));
    low = std::max(low, x);
  }
  template <bool vector>
  OCTAVO_DEVICE void add(const Piece<T, vector>& piece) {
#pragma unroll
    for (int i = 0; i < Piece<T, vector>::count; ++i) add(piece.raw(i));
  }
  OCTAVO_DEVICE void add_finite(Bits x) {
    constexpr Bits infinity = Pattern<T>::infinity;
    add((x & infinity) == infinity ? 0 : x);
  }
  template <bool vector>
  OCTAVO_DEVICE void add_finite(const Piece<T, vector>& piece) {
#pragma unroll
    for (int i = 0; i < Piece<T, vector>::count; ++i) add_finite(piece.pattern(i));
  }
  [[nodiscard]] OCTAVO_DEVICE bool is_finite() const {
    constexpr Bits infinity = Pattern<T>::infinity;
    constexpr Bits sign = Pattern<T>::sign;
    return static_cast<Bits>(high) < infinity && low < (sign | infinity);
  }
  [[nodiscard]] OCTAVO_DEVICE Magnitudes<T> magnitudes() const {
    constexpr Bits sign = Pattern<T>::sign;
    constexpr Bits used = Pattern<T>::used;
    return {static_cast<Bits>(high) & used, (low & sign) == 0 ? 0 : (low ^ sign) & used};
  }
};

/// Those of a run of elements that `lanes` threads share out: seen(piece, unit) is called for each
/// piece of this thread's, and four are read at once. Where there was something that is not finite,
/// which is seldom, again(unit) gives each piece once more.
template <class T, bool vector, class Seen, class Again>
OCTAVO_DEVICE Magnitudes<T> magnitudes_of(const void* from, std::int64_t at, std::int64_t step,
                                          std::uint32_t length, std::uint32_t lane,
                                          std::uint32_t lanes, Seen&& seen, Again&& again) {
  using P = Piece<T, vector>;
  constexpr int at_once = 4;
  const std::uint32_t units = length / P::count;
  Extremes<T> extremes;
  for (std::uint32_t base = lane; base < units; base += at_once * lanes) {
    P piece[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      const std::uint32_t unit = base + k * lanes;
      if (unit >= units) continue;
      piece[k].load(from, at + (vector ? std::int64_t{unit} * P::count : unit * step));
    }
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      const std::uint32_t unit = base + k * lanes;
      extremes.add(piece[k]);
      if (unit < units) seen(piece[k], unit);
    }
  }
  if constexpr (vector) {
    if (lane == (units & (lanes - 1)) && length % P::count != 0) {
      P rest;
      rest.load_some(from, at + units * P::count, static_cast<int>(length % P::count));
      extremes.add(rest);
      seen(rest, units);
    }
  }
  if (extremes.is_finite()) return extremes.magnitudes();
  Extremes<T> finite;
#pragma unroll 1
  for (std::uint32_t unit = lane; unit * P::count < length; unit += lanes)
    finite.add_finite(again(unit));
  return finite.magnitudes();
}

/// A piece of a run, or what there is of it.
template <class T, bool vector>
OCTAVO_DEVICE Piece<T, vector> piece_of(const void* from, std::int64_t at, std::int64_t step,
                                        std::uint32_t length, std::uint32_t unit) {
  Piece<T, vector> piece;
  if constexpr (vector) {
    constexpr std::uint32_t count = Piece<T, true>::count;
    if ((unit + 1) * count > length) {
      piece.load_some(from, at + unit * count, static_cast<int>(length - unit * count));
    } else {
      piece.load(from, at + unit * count);
    }
  } else {
    piece.load(from, at + unit * step);
  }
  return piece;
}

/// Of lanes that stand together in a warp, 1 << lanes of them, from lanes 1 << from apart on: all
/// have the result. All lanes of the warp take part.
template <class T>
OCTAVO_DEVICE Magnitudes<T> of_lanes(Magnitudes<T> m, int from, int lanes) {
  for (int i = from; i < lanes && i < 5; ++i) {
    const unsigned apart = 1U << i;
    m.add({shuffle_xor(m.high, apart), shuffle_xor(m.low, apart)});
  }
  return m;
}

template <class T>
OCTAVO_DEVICE Magnitudes<T> of_warp(const Magnitudes<T>& m) {
  if constexpr (sizeof(T) == 8) {
    return of_lanes(m, 0, 5);
  } else {
    return {most_of_warp(m.high), most_of_warp(m.low)};
  }
}

/// Of all threads of a block, or of lanes that stand together in it if those are no more than a
/// warp. `shared` is for each warp, and not used again before the next barrier.
template <class T>
OCTAVO_DEVICE Magnitudes<T> of_team(Magnitudes<T> m, int lanes, Magnitudes<T>* shared) {
  m = lanes < 5 ? of_lanes(m, 0, lanes) : of_warp(m);
  if (lanes <= 5) return m;
  const unsigned lane = thread_x() % warp_size;
  if (lane == 0) shared[thread_x() / warp_size] = m;
  barrier();
  m = lane < threads_x() / warp_size ? shared[lane] : Magnitudes<T>{};
  return of_warp(m);
}

/// Widens the range of a slice in the workspace.
template <class T>
OCTAVO_DEVICE void add_to_range(const RangeArgs& a, std::int64_t slice, const Magnitudes<T>& m) {
  auto* range = static_cast<BitsOf<T>*>(a.ranges) + 2 * slice;
  if constexpr (sizeof(T) == 8) {
    __nvvm_atom_max_gen_ull(reinterpret_cast<unsigned long long*>(range), m.high);
    __nvvm_atom_max_gen_ull(reinterpret_cast<unsigned long long*>(range + 1), m.low);
  } else {
    __nvvm_atom_max_gen_ui(range, m.high);
    __nvvm_atom_max_gen_ui(range + 1, m.low);
  }
}
template <class T>
OCTAVO_DEVICE Magnitudes<T> range_of(const RangeArgs& a, std::int64_t slice) {
  const auto* range = static_cast<const BitsOf<T>*>(a.ranges) + 2 * slice;
  return {range[0], range[1]};
}

template <class T>
OCTAVO_DEVICE numerics::ScaleAndZeroPoint<ComputeOf<T>> parameters_of(const Magnitudes<T>& m,
                                                                      const RangeMath& math) {
  using C = ComputeOf<T>;
  const C high = number<T>(m.high);
  const C low = C(0) - number<T>(m.low);
  const IntRange range{math.q_min, math.q_max};
  return math.symmetric ? numerics::symmetric_parameters(std::max(high, C(0) - low), range)
                        : numerics::asymmetric_parameters(low, high, range);
}

template <class C>
OCTAVO_DEVICE void store_parameters(const RangeArgs& a, std::int64_t slice,
                                    const numerics::ScaleAndZeroPoint<C>& found) {
  static_cast<C*>(a.scales)[slice] = found.scale;
  if (a.zero_points != nullptr) a.zero_points[slice] = found.zero_point;
}

/// The integers of numbers, in a range of up to 16 bits that has the zero point in it: what
/// numerics::quantize gives. Of f32 in fewer instructions, as the conversion does part of the work.
template <class C, Profile profile>
struct Quantizer {
  numerics::Affine<C> affine;
  OCTAVO_DEVICE Quantizer(const numerics::ScaleAndZeroPoint<C>& p, const RangeMath& math)
      : affine(p.scale, p.zero_point, IntRange{math.q_min, math.q_max}, profile) {}
  [[nodiscard]] OCTAVO_DEVICE std::int32_t of(C x) const { return numerics::quantize(x, affine); }
};
template <Profile profile>
struct Quantizer<float, profile> {
  float scale;
  float reciprocal;
  std::int32_t zero_point;
  std::int32_t low;
  std::int32_t high;
  OCTAVO_DEVICE Quantizer(const numerics::ScaleAndZeroPoint<float>& p, const RangeMath& math)
      : scale(p.scale),
        reciprocal(1.0F / p.scale),
        zero_point(p.zero_point),
        low(math.q_min - p.zero_point),
        high(math.q_max - p.zero_point) {}
  [[nodiscard]] OCTAVO_DEVICE std::int32_t of(float x) const {
    const std::int32_t q = round_to_int(profile == Profile::torch ? x * reciprocal : x / scale);
    return std::min(std::max(q, low), high) + zero_point;
  }
};

/// Those of a piece.
template <class T, bool vector, class Q>
OCTAVO_DEVICE Integers<Piece<T, vector>::count> quantized(const Piece<T, vector>& piece,
                                                          const Q& quantizer) {
  Integers<Piece<T, vector>::count> integers;
#pragma unroll
  for (int i = 0; i < Piece<T, vector>::count; ++i)
    integers.q[i] = quantizer.of(number<T>(piece.pattern(i)));
  return integers;
}

/// Writes the integers of a run that `lanes` threads share out in the same way; read(unit) gives a
/// piece. All lanes of the warp take part, those that have no run too; `most` is the length of
/// every run.
template <class T, bool vector, class Q, class F>
OCTAVO_DEVICE void quantize_run(const RangeArgs& a, const Q& quantizer, std::int64_t to,
                                bool is_run, std::uint32_t length, std::uint32_t most,
                                std::uint32_t lane, std::uint32_t lanes, F&& read) {
  using P = Piece<T, vector>;
  if constexpr (vector) {
    if (!is_run) return;
    const std::uint32_t units = length / P::count;
    for (std::uint32_t unit = lane; unit < units; unit += lanes)
      store_piece(a.output, to + unit * P::count, quantized(read(unit), quantizer), a.math.width);
    const auto rest = static_cast<int>(length % P::count);
    if (rest != 0 && lane == (units & (lanes - 1)))
      store_some(a.output, to + units * P::count, quantized(read(units), quantizer), a.math.width,
                 rest);
  } else {
    for (std::uint32_t base = 0; base < most; base += lanes) {
      const std::uint32_t unit = base + lane;
      const bool is_unit = is_run && unit < length;
      P piece;
      if (is_unit) piece = read(unit);
      store_one(a.output, to + unit * a.step.output, quantized(piece, quantizer).q[0], a.math.width,
                a.math.pairs, is_unit);
    }
  }
}

/// fn.operator()<profile>(): the profile is the same for all threads.
template <class F>
OCTAVO_DEVICE void with_profile(bool torch, F&& fn) {
  if (torch) {
    fn.template operator()<Profile::torch>();
  } else {
    fn.template operator()<Profile::onnx>();
  }
}

}  // namespace octavo::cuda
