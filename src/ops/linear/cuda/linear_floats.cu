// Products of floats, in the order of numerics/segments.hpp: a block of threads takes a tile of the
// output, or some segments of it; each thread 4 by 4 elements.
#include "cuda/device/device.hpp"
#include "ops/linear/cuda/finish.hpp"
#include "ops/linear/cuda/layout.hpp"

namespace octavo::cuda {
namespace {

constexpr int step = 16;  // of k in shared memory
constexpr int per_thread = 4;
constexpr int width = float_tile + 4;  // of a line there

OCTAVO_DEVICE void merge(float (&sum)[per_thread][per_thread],
                         const float (&before)[per_thread][per_thread]) {
#pragma unroll
  for (int r = 0; r < per_thread; ++r)
#pragma unroll
    for (int c = 0; c < per_thread; ++c) sum[r][c] = before[r][c] + sum[r][c];
}
OCTAVO_DEVICE void copy(const float (&from)[per_thread][per_thread],
                        float (&to)[per_thread][per_thread]) {
#pragma unroll
  for (int r = 0; r < per_thread; ++r)
#pragma unroll
    for (int c = 0; c < per_thread; ++c) to[r][c] = from[r][c];
}

// Of every thread's row r, 16 lines. (A thread has one column of them.)
OCTAVO_DEVICE void finish_lines(const FloatProductArgs& p, const Finish<float>& finish,
                                const ColumnTerms<float>& terms, const float (&lines)[step][width],
                                std::int64_t first_row, std::int64_t column) {
  if (column >= p.finish.n) return;
#pragma unroll 1
  for (unsigned line = thread_x() / float_tile; line < step; line += float_threads / float_tile) {
    const std::int64_t row = first_row + line * per_thread;
    if (row >= p.finish.rows) return;
    const float value = lines[line][thread_x() % float_tile];
    if (p.fused) {
      finish.put(finish.row(row), terms, row, column, value);
    } else {
      p.to[block_z() * p.finish.piece_stride + row * p.finish.stride + column] = value;
    }
  }
}

OCTAVO_DEVICE void multiply(const FloatProductArgs& p) {
  __shared__ float rows[step][width];
  __shared__ float columns[step][width];
  const FinishArgs& f = p.finish;
  if (is_refused(f.slot)) return;
  const unsigned tx = thread_x() % 16;
  const unsigned ty = thread_x() / 16;
  const std::int64_t first_column = static_cast<std::int64_t>(block_x()) * float_tile;
  const std::int64_t row_tiles = blocks_of(f.rows, float_tile);
  const Finish<float> finish(f);
  const std::int64_t own_column = first_column + thread_x() % float_tile;
  const ColumnTerms<float> terms =
      own_column < f.n ? finish.column(own_column) : ColumnTerms<float>{};
  const int part = static_cast<int>(block_z());
  const int per_part = p.segments / p.parts;
  for (std::int64_t tile = block_y(); tile < row_tiles; tile += blocks_y()) {
    const std::int64_t first_row = tile * float_tile;
    float y[per_thread][per_thread] = {};
    float pending[3][per_thread][per_thread] = {};
    for (int j = 0; j < per_part; ++j) {
#pragma unroll
      for (auto& line : y)
#pragma unroll
        for (float& value : line) value = 0;
      const int segment = part * per_part + j;
      const std::int64_t last = numerics::segment_begin(f.k, p.segments, segment + 1);
      for (std::int64_t k = numerics::segment_begin(f.k, p.segments, segment); k < last;
           k += step) {
        const int count = static_cast<int>(std::min<std::int64_t>(step, last - k));
        barrier();
        for (unsigned i = thread_x(); i < step * float_tile; i += float_threads) {
          const int in_row = static_cast<int>(i % step);
          const std::int64_t row = first_row + i / step;
          if (in_row < count)
            rows[in_row][i / step] =
                row < f.rows
                    ? load_float<float>(p.input, p.input_type, row * p.input_stride + k + in_row)
                    : 0.0F;
          const int at = static_cast<int>(i / float_tile);
          const std::int64_t column = first_column + i % float_tile;
          if (at < count)
            columns[at][i % float_tile] =
                column < f.n
                    ? load_float<float>(p.weights, p.weight_type,
                                        (column / panel_columns * f.k + k + at) * panel_columns +
                                            column % panel_columns)
                    : 0.0F;
        }
        barrier();
#pragma unroll 1
        for (int at = 0; at < count; ++at) {
#pragma unroll
          for (unsigned r = 0; r < per_thread; ++r)
#pragma unroll
            for (unsigned c = 0; c < per_thread; ++c)
              y[r][c] = std::fma(rows[at][per_thread * ty + r], columns[at][tx + 16 * c], y[r][c]);
        }
      }
      // (numerics::SegmentTree, without an index that varies.)
      const auto index = static_cast<unsigned>(j);
      if ((index & 1U) == 0) {
        copy(y, pending[0]);
        continue;
      }
      merge(y, pending[0]);
      if ((index & 2U) == 0) {
        copy(y, pending[1]);
        continue;
      }
      merge(y, pending[1]);
      if ((index & 4U) == 0) {
        copy(y, pending[2]);
        continue;
      }
      merge(y, pending[2]);
    }
    // Through shared memory, so that what finishes an element stands here once.
#pragma unroll 1
    for (unsigned r = 0; r < per_thread; ++r) {
      barrier();
#pragma unroll
      for (unsigned i = 0; i < per_thread; ++i)
        if (i == r)
#pragma unroll
          for (unsigned c = 0; c < per_thread; ++c) rows[ty][tx + 16 * c] = y[i][c];
      barrier();
      finish_lines(p, finish, terms, rows, first_row + r, own_column);
    }
  }
}

}  // namespace

extern "C" {
__global__ void __launch_bounds__(float_threads) linear_floats(const FloatProductArgs args) {
  multiply(args);
}
}

}  // namespace octavo::cuda
