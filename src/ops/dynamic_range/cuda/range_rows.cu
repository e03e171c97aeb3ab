// Slices that are rows, each read once: kept in shared memory while their range is found.
#include "cuda/device/device.hpp"

#include "ops/dynamic_range/cuda/extremes.hpp"

namespace octavo::cuda {
namespace {

extern __shared__ NativeVector16 stage[];

/// 1 << lanes threads take a row: those of a block have several if these are no more than a warp.
/// What a thread has put into shared memory is read by no other.
template <class T, bool vector>
OCTAVO_DEVICE void quantize_rows(const RangeArgs& a) {
  using C = ComputeOf<T>;
  using P = Piece<T, vector>;
  // Two, in turns: one barrier for a row is enough.
  __shared__ Magnitudes<T> shared[2][max_row_threads / warp_size];
  const std::uint32_t lanes = 1U << a.lanes;
  const std::uint32_t lane = thread_x() & (lanes - 1);
  const std::uint32_t team = thread_x() >> a.lanes;
  const std::uint32_t teams = threads_x() >> a.lanes;
  const auto length = static_cast<std::uint32_t>(a.length);
  // Neighbouring threads have neighbouring places, so that no two are in each other's way.
  const auto staged_at = [&](std::uint32_t unit) {
    const std::uint32_t place = (unit >> a.lanes) * threads_x() + thread_x();
    return reinterpret_cast<std::uint8_t*>(stage) + place * staged_bytes<BitsOf<T>>(vector);
  };
  int turn = 0;
  for (std::int64_t first = std::int64_t{block_x()} * teams; first < a.rows.count;
       first += std::int64_t{blocks_x()} * teams) {
    const std::int64_t row = first + team;
    const bool is_row = row < a.rows.count;
    Start start;
    Magnitudes<T> magnitudes{};
    if (is_row) {
      start = start_of(a.rows, row);
      magnitudes = magnitudes_of<T, vector>(
          a.input, start.input, a.step.input, length, lane, lanes,
          [&](const P& piece, std::uint32_t unit) { piece.stage(staged_at(unit)); },
          [&](std::uint32_t unit) { return P::staged(staged_at(unit)); });
    }
    const auto found = parameters_of<T>(of_team(magnitudes, a.lanes, shared[turn]), a.math);
    turn ^= 1;
    if (is_row && lane == 0) store_parameters<C>(a, start.params, found);
    with_profile(a.math.torch, [&]<Profile profile>() {
      quantize_run<T, vector>(a, Quantizer<C, profile>(found, a.math), start.output, is_row, length,
                              length, lane, lanes,
                              [&](std::uint32_t unit) { return P::staged(staged_at(unit)); });
    });
  }
}

}  // namespace

#define OCTAVO_ROWS(name, T)                                    \
  extern "C" __global__ void __launch_bounds__(max_row_threads) \
      rows_##name##_16_bytes(const RangeArgs args) {            \
    quantize_rows<T, true>(args);                               \
  }                                                             \
  extern "C" __global__ void __launch_bounds__(max_row_threads) \
      rows_##name##_single(const RangeArgs args) {              \
    quantize_rows<T, false>(args);                              \
  }
OCTAVO_ROWS(f32, float)
OCTAVO_ROWS(f64, double)
OCTAVO_ROWS(f16, f16)
OCTAVO_ROWS(bf16, bf16)
#undef OCTAVO_ROWS

}  // namespace octavo::cuda
