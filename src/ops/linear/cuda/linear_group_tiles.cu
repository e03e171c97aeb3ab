// Products of weights in groups of many rows, tile by tile: groups of a multiple of 32, whose sums
// fit 32 bits, in f32. A block of threads takes one segment of k, or two, for whose sums there are
// registers.
#include "cuda/device/device.hpp"
#include "ops/linear/cuda/finish.hpp"
#include "ops/linear/cuda/tiles.hpp"

namespace octavo::cuda {
namespace {

constexpr int row_tiles = group_tile_rows / 32;
using Sums = std::int32_t[row_tiles][4][4];
using Values = float[row_tiles][4][4];

template <class F>
OCTAVO_DEVICE void for_each_element(F&& fn) {
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) fn(i, j, e);
}

OCTAVO_DEVICE std::int32_t byte_sums(std::uint32_t x, std::uint32_t y, std::int32_t sum) {
  sum = dp4a(static_cast<std::int32_t>(x), 0x01010101, sum);
  return dp4a(static_cast<std::int32_t>(y), 0x01010101, sum);
}
/// Over the four lanes of a row or column.
OCTAVO_DEVICE std::int32_t over_four(std::int32_t sum) {
  sum += shuffle_xor(sum, 1);
  return sum + shuffle_xor(sum, 2);
}

// A group's sums, as they grow, and what it is multiplied by. Each lane has the parameters of a
// column.
struct Group {
  Sums acc;
  std::int32_t row_sum[row_tiles][2];
  std::int32_t column_sum[4];
  std::int32_t scale;  // a float
  std::int32_t zero;

  OCTAVO_DEVICE void begin(const ProductArgs& p, std::int64_t place) {
    for_each_element([&](int i, int j, int e) { acc[i][j][e] = 0; });
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) row_sum[i][0] = row_sum[i][1] = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) column_sum[j] = 0;
    scale = std::bit_cast<std::int32_t>(load_float<float>(p.scales.data, p.scales.type, place));
    zero = p.zeros == nullptr ? p.shift : std::int32_t{p.zeros[place]};
  }
};

template <bool nibbles>
OCTAVO_DEVICE void multiply(const ProductArgs& p) {
  using T = Tile<row_tiles, nibbles>;
  const FinishArgs& f = p.finish;
  if (is_refused(f.slot)) return;
  const TileWarp w;
  const unsigned g = w.lane / 4;
  const unsigned t = w.lane % 4;
  const bool halves = f.halves == 2;
  const bool has_column_zeros = p.zeros != nullptr || p.shift != 0;
  const bool has_row_zeros = f.row_zeros.data != nullptr || f.row_zeros.shift != 0;
  const auto group_blocks = static_cast<int>(p.group / block_k);
  const int per_part = p.segments / p.parts;
  const int first_segment = static_cast<int>(block_z()) * per_part;
  const std::int64_t first_group = numerics::segment_begin(p.groups, p.segments, first_segment);
  const std::int64_t last_group =
      numerics::segment_begin(p.groups, p.segments, first_segment + per_part);
  // Where the second segment begins, if there are two.
  const std::int64_t second =
      per_part == 2 ? numerics::segment_begin(p.groups, p.segments, first_segment + 1) : -1;
  const auto blocks = static_cast<int>((last_group - first_group) * group_blocks);
  const std::int64_t first_panel = static_cast<std::int64_t>(block_x()) * tile_panels;
  // (Of panels that are not there, whatever the first has.)
  const std::int64_t panel = first_panel + w.column < p.panels ? first_panel + w.column : 0;
  const std::int64_t tiles = blocks_of(p.product_rows, T::rows);
  for (std::int64_t tile = block_y(); tile < tiles; tile += blocks_y()) {
    const std::int64_t first_row = tile * T::rows;
    std::int32_t row_zero[row_tiles][2] = {};
    if (has_row_zeros)
#pragma unroll
      for (int i = 0; i < row_tiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::int64_t row = first_row + w.row * (T::rows / 2) + 16 * i + 8 * half + g;
          if (row < f.rows) row_zero[i][half] = load_zero(f.row_zeros, row);
        }
    Values y = {};
    Values before = {};  // of the first of two segments
    Group own;
    std::int64_t group = first_group;
    int in_group = 0;
    const auto end_group = [&] {
      if (has_column_zeros)
#pragma unroll
        for (int i = 0; i < row_tiles; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            own.row_sum[i][half] = over_four(own.row_sum[i][half]) -
                                   static_cast<std::int32_t>(p.group) * row_zero[i][half];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::int32_t column_sum = has_row_zeros ? over_four(own.column_sum[j]) : 0;
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const unsigned in_tile = 2 * t + static_cast<unsigned>(c);
          const unsigned column = 8 * static_cast<unsigned>(j) + in_tile;
          const auto scale = std::bit_cast<float>(from_lane(own.scale, column));
          const std::int32_t zero = from_lane(own.zero, column);
          const std::int32_t total = has_row_zeros ? from_lane(column_sum, 4 * in_tile) : 0;
#pragma unroll
          for (int i = 0; i < row_tiles; ++i) {
            std::int32_t d[2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
              d[half] = own.acc[i][j][2 * half + c] - zero * own.row_sum[i][half] -
                        row_zero[i][half] * total;
            if (halves) d[0] = 256 * d[0] + d[1];
#pragma unroll
            for (int half = 0; half < 2; ++half)
              y[i][j][2 * half + c] =
                  std::fma(static_cast<float>(d[half]), scale, y[i][j][2 * half + c]);
          }
        }
      }
    };
    const auto end_first = [&] {
      for_each_element([&](int i, int j, int e) {
        before[i][j][e] = y[i][j][e];
        y[i][j][e] = 0;
      });
    };
    const auto place = [&] { return (panel * p.groups + group) * panel_columns + w.lane; };
    for_each_step<row_tiles, nibbles>(
        p, first_row, first_panel, first_group * group_blocks, blocks,
        [&](unsigned stage, int step) {
#pragma unroll 1
          for (int block = 0; block < step_blocks; ++block) {
            if (step * step_blocks + block >= blocks) break;
            if (in_group == 0) {
              if (group == second) end_first();
              own.begin(p, place());
            }
            std::uint32_t b[4][2];
            load_weights<nibbles>(weights_at<row_tiles, nibbles>(stage, w, block), b);
            if (has_row_zeros)
#pragma unroll
              for (int j = 0; j < 4; ++j)
                own.column_sum[j] = byte_sums(b[j][0], b[j][1], own.column_sum[j]);
#pragma unroll
            for (int i = 0; i < row_tiles; ++i) {
              std::uint32_t a[4];
              load_rows(rows_at<row_tiles, nibbles>(stage, w, i, block), a);
              if (has_column_zeros) {
                own.row_sum[i][0] = byte_sums(a[0], a[2], own.row_sum[i][0]);
                own.row_sum[i][1] = byte_sums(a[1], a[3], own.row_sum[i][1]);
              }
#pragma unroll
              for (int j = 0; j < 4; ++j) mma(own.acc[i][j], a, b[j][0], b[j][1]);
            }
            if (++in_group < group_blocks) continue;
            in_group = 0;
            end_group();
            ++group;
          }
        });
    if (per_part == 2) {  // (either may be empty)
      if (second == last_group) end_first();
      for_each_element([&](int i, int j, int e) { y[i][j][e] = before[i][j][e] + y[i][j][e]; });
    }
    put_tile(y, w);
    const auto* values = reinterpret_cast<const float*>(shared_tiles);
    finish_tile<row_tiles>(
        p, halves, first_row, first_panel * panel_columns,
        [&](const Finish<float>& finish, const RowTerms<float>& r, const ColumnTerms<float>& c,
            std::int64_t row, std::int64_t column, int at) {
          if (p.fused) {
            finish.put(r, c, row, column, values[at]);
          } else {
            static_cast<float*>(p.to)[block_z() * f.piece_stride + row * f.stride + column] =
                values[at];
          }
        });
  }
}

}  // namespace

extern "C" {
__global__ void __launch_bounds__(tile_threads, 1)
    linear_tiles_byte_groups(const ProductArgs args) {
  multiply<false>(args);
}
__global__ void __launch_bounds__(tile_threads, 1)
    linear_tiles_nibble_groups(const ProductArgs args) {
  multiply<true>(args);
}
}

}  // namespace octavo::cuda
