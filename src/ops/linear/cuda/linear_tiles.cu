// Products of integers of many rows, tile by tile.
#include "cuda/device/device.hpp"
#include "ops/linear/cuda/finish.hpp"
#include "ops/linear/cuda/tiles.hpp"

namespace octavo::cuda {
namespace {

template <int row_tiles, bool nibbles>
OCTAVO_DEVICE void multiply(const ProductArgs& p) {
  using T = Tile<row_tiles, nibbles>;
  const FinishArgs& f = p.finish;
  if (is_refused(f.slot)) return;
  const TileWarp w;
  const std::int64_t first_panel = static_cast<std::int64_t>(block_x()) * tile_panels;
  const std::int64_t first_block = static_cast<std::int64_t>(block_z()) * p.piece_blocks;
  const auto blocks = static_cast<int>(std::min(p.piece_blocks, p.blocks - first_block));
  const bool joined = p.fused && f.halves == 2;
  const std::int64_t tiles = blocks_of(p.product_rows, T::rows);
  for (std::int64_t tile = block_y(); tile < tiles; tile += blocks_y()) {
    const std::int64_t first_row = tile * T::rows;
    std::int32_t acc[row_tiles][4][4] = {};
    for_each_step<row_tiles, nibbles>(
        p, first_row, first_panel, first_block, blocks, [&](unsigned stage, int) {
#pragma unroll
          for (int block = 0; block < step_blocks; ++block) {
            std::uint32_t b[4][2];
            load_weights<nibbles>(weights_at<row_tiles, nibbles>(stage, w, block), b);
#pragma unroll
            for (int i = 0; i < row_tiles; ++i) {
              std::uint32_t a[4];
              load_rows(rows_at<row_tiles, nibbles>(stage, w, i, block), a);
#pragma unroll
              for (int j = 0; j < 4; ++j) mma(acc[i][j], a, b[j][0], b[j][1]);
            }
          }
        });
    put_tile(acc, w);
    const auto* sums = reinterpret_cast<const std::int32_t*>(shared_tiles);
    finish_tile<row_tiles>(
        p, joined, first_row, first_panel * panel_columns,
        [&](const Finish<float>& finish, const RowTerms<float>& r, const ColumnTerms<float>& c,
            std::int64_t row, std::int64_t column, int at) {
          if (p.fused) {
            finish.put_sum(r, c, row, column, sums[at], joined ? sums[at + 8 * tile_columns] : 0);
          } else {
            static_cast<std::int32_t*>(p.to)[block_z() * f.piece_stride + row * f.stride + column] =
                sums[at];
          }
        });
  }
}

}  // namespace

#define OCTAVO_ENTRY(name, row_tiles, nibbles)                                       \
  extern "C" __global__ void __launch_bounds__(tile_threads, row_tiles == 4 ? 1 : 2) \
      name(const ProductArgs args) {                                                 \
    multiply<row_tiles, nibbles>(args);                                              \
  }
OCTAVO_ENTRY(linear_tiles_32_bytes, 1, false)
OCTAVO_ENTRY(linear_tiles_64_bytes, 2, false)
OCTAVO_ENTRY(linear_tiles_128_bytes, 4, false)
OCTAVO_ENTRY(linear_tiles_64_nibbles, 2, true)
OCTAVO_ENTRY(linear_tiles_128_nibbles, 4, true)

}  // namespace octavo::cuda
