// The ranges of slices that are not rows, or too long for one block: tile by tile, put together in
// the workspace.
#include "cuda/device/device.hpp"

#include "ops/dynamic_range/cuda/extremes.hpp"

namespace octavo::cuda {
namespace {

/// Slices are runs along the innermost dimension: 1 << lanes threads, at most a warp or all of the
/// block, take a tile of one.
template <class T, bool vector>
OCTAVO_DEVICE void find_runs(const RangeArgs& a) {
  __shared__ Magnitudes<T> shared[2][range_threads / warp_size];
  const std::uint32_t lanes = 1U << a.lanes;
  const std::uint32_t lane = thread_x() & (lanes - 1);
  const std::uint32_t team = thread_x() >> a.lanes;
  const std::uint32_t teams = threads_x() >> a.lanes;
  const std::int64_t items = a.rows.count * a.tiles;
  int turn = 0;
  for (std::int64_t first = std::int64_t{block_x()} * teams; first < items;
       first += std::int64_t{blocks_x()} * teams) {
    const std::int64_t item = first + team;
    Start start;
    Magnitudes<T> magnitudes{};
    if (item < items) {
      const Division d = divide(item, a.tiles);
      const std::int64_t begin = d.rest * a.tile;
      const auto length = static_cast<std::uint32_t>(std::min(a.tile, a.length - begin));
      start = start_of(a.rows, d.quotient);
      const std::int64_t from = start.input + begin * a.step.input;
      magnitudes = magnitudes_of<T, vector>(
          a.input, from, a.step.input, length, lane, lanes, [](const auto&, std::uint32_t) {},
          [&](std::uint32_t unit) {
            return piece_of<T, vector>(a.input, from, a.step.input, length, unit);
          });
    }
    const Magnitudes<T> m = of_team(magnitudes, a.lanes, shared[turn]);
    turn ^= 1;
    if (item < items && lane == 0) add_to_range<T>(a, start.params, m);
  }
}

/// Slices lie along the innermost dimension, one to a column: 1 << lanes threads, at most a warp,
/// take neighbouring columns, and the block `tile` rows of them.
template <class T, bool vector>
OCTAVO_DEVICE void find_columns(const RangeArgs& a) {
  using P = Piece<T, vector>;
  constexpr int at_once = sizeof(T) == 2 ? 2 : 4;  // rows; more would not fit the registers
  constexpr unsigned warps = range_threads / warp_size;
  __shared__ Magnitudes<T> shared[warps][warp_size];
  const std::uint32_t lanes = 1U << a.lanes;
  const std::uint32_t lane = thread_x() & (lanes - 1);
  const std::uint32_t team = thread_x() >> a.lanes;
  const std::uint32_t teams = threads_x() >> a.lanes;
  const std::int64_t units = a.length / P::count;
  const std::int64_t across = (units + lanes - 1) >> a.lanes;
  for (std::int64_t item = block_x(); item < across * a.tiles; item += blocks_x()) {
    const Division d = divide(item, across);
    const std::int64_t unit = (d.rest << a.lanes) + lane;
    const bool is_column = unit < units;
    const std::int64_t end = std::min(a.rows.count, (d.quotient + 1) * a.tile);
    const std::int64_t column = unit * P::count;
    Extremes<T> extremes[P::count];
    std::int64_t params = 0;
    const auto add_column = [&](int i, const Magnitudes<T>& m) {
      add_to_range<T>(a, params + (column + i) * a.step.params, m);
    };
    for (std::int64_t base = d.quotient * a.tile + team; is_column && base < end;
         base += at_once * teams) {
      P piece[at_once];
      std::int64_t its_params[at_once];
#pragma unroll
      for (int k = 0; k < at_once; ++k) {
        const std::int64_t row = base + k * teams;
        if (row >= end) continue;
        const Start start = start_of(a.rows, row);
        its_params[k] = start.params;
        piece[k].load(a.input, start.input + column * a.step.input);
      }
#pragma unroll
      for (int k = 0; k < at_once; ++k) {
        if (base + k * teams >= end) continue;
        if (!a.same_params && its_params[k] != params) {
#pragma unroll
          for (int i = 0; i < P::count; ++i) {
            add_column(i, extremes[i].magnitudes());
            extremes[i] = {};
          }
          params = its_params[k];
        }
#pragma unroll
        for (int i = 0; i < P::count; ++i) extremes[i].add_finite(piece[k].pattern(i));
      }
    }
    if (!a.same_params) {
      if (!is_column) continue;
#pragma unroll
      for (int i = 0; i < P::count; ++i) add_column(i, extremes[i].magnitudes());
      continue;
    }
    // Those of all rows of the tile, so that one thread for each column adds them.
#pragma unroll
    for (int i = 0; i < P::count; ++i) {
      barrier();
      shared[thread_x() / warp_size][thread_x() % warp_size] =
          of_lanes(extremes[i].magnitudes(), a.lanes, 5);
      barrier();
      if (thread_x() >= lanes || !is_column) continue;
      Magnitudes<T> m = shared[0][lane];
      for (unsigned w = 1; w < warps; ++w) m.add(shared[w][lane]);
      add_column(i, m);
    }
  }
}

/// What follows from the ranges; without any, of slices without elements.
template <class T>
OCTAVO_DEVICE void find_parameters(const RangeArgs& a) {
  using C = ComputeOf<T>;
  const std::int64_t step = std::int64_t{blocks_x()} * range_threads;
  for (std::int64_t i = std::int64_t{block_x()} * range_threads + thread_x(); i < a.slices;
       i += step)
    store_parameters<C>(
        a, i, parameters_of<T>(a.ranges == nullptr ? Magnitudes<T>{} : range_of<T>(a, i), a.math));
}

}  // namespace

#define OCTAVO_RANGES(name, T)                                \
  extern "C" __global__ void __launch_bounds__(range_threads) \
      range_runs_##name##_16_bytes(const RangeArgs args) {    \
    find_runs<T, true>(args);                                 \
  }                                                           \
  extern "C" __global__ void __launch_bounds__(range_threads) \
      range_runs_##name##_single(const RangeArgs args) {      \
    find_runs<T, false>(args);                                \
  }                                                           \
  extern "C" __global__ void __launch_bounds__(range_threads) \
      range_columns_##name##_16_bytes(const RangeArgs args) { \
    find_columns<T, true>(args);                              \
  }                                                           \
  extern "C" __global__ void __launch_bounds__(range_threads) \
      range_columns_##name##_single(const RangeArgs args) {   \
    find_columns<T, false>(args);                             \
  }                                                           \
  extern "C" __global__ void __launch_bounds__(range_threads) \
      range_parameters_##name(const RangeArgs args) {         \
    find_parameters<T>(args);                                 \
  }
OCTAVO_RANGES(f32, float)
OCTAVO_RANGES(f64, double)
OCTAVO_RANGES(f16, f16)
OCTAVO_RANGES(bf16, bf16)
#undef OCTAVO_RANGES

}  // namespace octavo::cuda
