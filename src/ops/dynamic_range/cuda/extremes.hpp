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

  OCTAVO_DEVICE void add(Bits x) {
    constexpr Bits infinity = Pattern<T>::infinity;
    const Bits finite = (x & infinity) == infinity ? 0 : x;
    high = std::max(high, static_cast<Signed>(finite));
    low = std::max(low, finite);
  }
  template <bool vector>
  OCTAVO_DEVICE void add(const Piece<T, vector>& piece) {
#pragma unroll
    for (int i = 0; i < Piece<T, vector>::count; ++i) add(piece.pattern(i));
  }
  [[nodiscard]] OCTAVO_DEVICE Magnitudes<T> magnitudes() const {
    constexpr Bits sign = Pattern<T>::sign;
    return {static_cast<Bits>(high), (low & sign) == 0 ? 0 : low ^ sign};
  }
};

/// Those of a run of elements that `lanes` threads share out: seen(piece, unit) is called for each
/// piece of this thread's, and four are read at once.
template <class T, bool vector, class F>
OCTAVO_DEVICE Extremes<T> extremes_of(const void* from, std::int64_t at, std::int64_t step,
                                      std::uint32_t length, std::uint32_t lane, std::uint32_t lanes,
                                      F&& seen) {
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
      P piece;
      piece.load_some(from, at + units * P::count, static_cast<int>(length % P::count));
      extremes.add(piece);
      seen(piece, units);
    }
  }
  return extremes;
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
      store_piece(a.output, to + unit * P::count, quantizer.of(read(unit)), a.math.width);
    const auto rest = static_cast<int>(length % P::count);
    if (rest != 0 && lane == (units & (lanes - 1)))
      store_some(a.output, to + units * P::count, quantizer.of(read(units)), a.math.width, rest);
  } else {
    for (std::uint32_t base = 0; base < most; base += lanes) {
      const std::uint32_t unit = base + lane;
      const bool is_unit = is_run && unit < length;
      P piece;
      if (is_unit) piece = read(unit);
      store_one(a.output, to + unit * a.step.output, quantizer.of(piece).q[0], a.math.width,
                a.math.pairs, is_unit);
    }
  }
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

/// Of all threads of a block, or of lanes that stand together in it if those are no more than a
/// warp. `shared` is for each warp, and not used again before the next barrier.
template <class T>
OCTAVO_DEVICE Magnitudes<T> of_team(Magnitudes<T> m, int lanes, Magnitudes<T>* shared) {
  m = of_lanes(m, 0, lanes);
  if (lanes <= 5) return m;
  const unsigned lane = thread_x() % warp_size;
  if (lane == 0) shared[thread_x() / warp_size] = m;
  barrier();
  m = lane < threads_x() / warp_size ? shared[lane] : Magnitudes<T>{};
  return of_lanes(m, 0, 5);
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

/// The integers of numbers, in a range of up to 16 bits that has the zero point in it.
template <class C, Profile profile>
struct Quantizer {
  typename numerics::AffineOf<C>::type affine;

  OCTAVO_DEVICE Quantizer(const numerics::ScaleAndZeroPoint<C>& p, const RangeMath& math)
      : affine(p.scale, p.zero_point, IntRange{math.q_min, math.q_max}, profile) {
    if constexpr (std::is_same_v<C, float>) affine.narrow = true;
  }
  [[nodiscard]] OCTAVO_DEVICE std::int32_t of(C x) const { return numerics::quantize(x, affine); }
  template <class T, bool vector>
  [[nodiscard]] OCTAVO_DEVICE Integers<Piece<T, vector>::count> of(
      const Piece<T, vector>& piece) const {
    Integers<Piece<T, vector>::count> integers;
#pragma unroll
    for (int i = 0; i < Piece<T, vector>::count; ++i)
      integers.q[i] = of(number<T>(piece.pattern(i)));
    return integers;
  }
};

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
