// Tiles of products of integers, on the device: how operands come to shared memory and from there
// to the registers. Only .cu files include it, after cuda/device/device.hpp.
//
// A block of threads takes 128 columns of 32, 64 or 128 rows, and goes through k 64 at a time.
// Operands come to shared memory some steps ahead, by copies that need no registers, and lie there
// so that neither copies nor loads meet in a bank:
//
//     rows        [32 of k][rows][32 bytes]     a lane loads 8 bytes of a row, a quarter of its 32
//     weights     as they are packed            a lane loads its 16 bytes (layout.hpp)
//
// (ldmatrix would bring no more at a time: the k of a lane may be any, if rows and weights agree.)
// Warps stand two by four, each with half of the rows and a panel of 32 columns.
#pragma once

#include "ops/linear/cuda/finish.hpp"
#include "ops/linear/cuda/instructions.hpp"
#include "ops/linear/cuda/layout.hpp"

namespace octavo::cuda {

inline constexpr int step_blocks = 2;  // of k, a step
inline constexpr int tile_panels = tile_columns / static_cast<int>(panel_columns);

extern "C" {
// Declared as of no size: as much as the launch says.
alignas(16) extern __shared__ unsigned char shared_tiles[];
}

template <int row_tiles, bool nibbles>
struct Tile {
  static constexpr int rows = 32 * row_tiles;  // row_tiles of 16 for each of two warps
  static constexpr int block_bytes = nibbles ? 512 : 1024;
  static constexpr int row_bytes = step_blocks * rows * 32;
  static constexpr int weight_bytes = tile_panels * step_blocks * block_bytes;
  static constexpr int stage_bytes = row_bytes + weight_bytes;
  static_assert(stage_bytes * tile_stages <= tile_shared_bytes(row_tiles, nibbles));
  static_assert(rows * (tile_columns * 4 + static_cast<int>(sizeof(RowTerms<float>))) <=
                tile_shared_bytes(row_tiles, nibbles));
};

// What a thread copies of each step: the same 16 bytes of other k.
template <int row_tiles, bool nibbles>
class Copies {
  using T = Tile<row_tiles, nibbles>;
  static constexpr int threads = static_cast<int>(tile_threads);
  static constexpr int row_chunks = T::row_bytes / 16;
  static constexpr int weight_chunks = T::weight_bytes / 16;
  static constexpr int own_rows = (row_chunks + threads - 1) / threads;
  static constexpr int own_weights = (weight_chunks + threads - 1) / threads;

 public:
  OCTAVO_DEVICE Copies(const ProductArgs& p, std::int64_t first_row, std::int64_t first_panel,
                       std::int64_t first_block, int blocks) {
    const int thread = static_cast<int>(thread_x());
#pragma unroll
    for (int i = 0; i < own_rows; ++i) {
      const int chunk = i * threads + thread;
      const std::int64_t row = first_row + chunk / 2 % T::rows;
      const int block = chunk / 2 / T::rows;
      row_left_[i] = row < p.product_rows && chunk < row_chunks ? blocks - block : 0;
      rows_[i] = p.rows;
      if (row_left_[i] > 0)
        rows_[i] += row * p.row_stride + (first_block + block) * block_k + chunk % 2 * 16;
    }
#pragma unroll
    for (int i = 0; i < own_weights; ++i) {
      const int chunk = i * threads + thread;
      constexpr int in_panel = weight_chunks / tile_panels;
      const std::int64_t panel = first_panel + chunk / in_panel;
      const int at = chunk % in_panel * 16;
      weights_left_[i] = panel < p.panels ? blocks - at / T::block_bytes : 0;
      weights_[i] = static_cast<const unsigned char*>(p.codes);
      if (weights_left_[i] > 0)
        weights_[i] += (panel * p.blocks + first_block) * T::block_bytes + at;
    }
  }
  /// Of the next step, to a stage; what is not there becomes 0.
  OCTAVO_DEVICE void start(unsigned stage) {
    const unsigned to = stage + 16 * thread_x();
#pragma unroll
    for (int i = 0; i < own_rows; ++i) {
      if (row_chunks % threads != 0 && static_cast<int>(thread_x()) + i * threads >= row_chunks)
        break;
      copy16(to + static_cast<unsigned>(16 * threads * i), rows_[i], row_left_[i] > 0);
      row_left_[i] -= step_blocks;
      if (row_left_[i] > 0) rows_[i] += step_blocks * block_k;
    }
#pragma unroll
    for (int i = 0; i < own_weights; ++i) {
      copy16(to + static_cast<unsigned>(T::row_bytes + 16 * threads * i), weights_[i],
             weights_left_[i] > 0);
      weights_left_[i] -= step_blocks;
      if (weights_left_[i] > 0) weights_[i] += step_blocks * T::block_bytes;
    }
  }

 private:
  static_assert(weight_chunks % threads == 0);
  const std::int8_t* rows_[own_rows];
  const unsigned char* weights_[own_weights];
  int row_left_[own_rows];  // blocks of k
  int weights_left_[own_weights];
};

/// What a lane multiplies of a block of 32 k.
template <bool nibbles>
OCTAVO_DEVICE void load_weights(unsigned at, std::uint32_t (&b)[4][2]) {
  load_operands<nibbles>([at](unsigned bytes) { return load_shared16(at + bytes); }, b);
}
OCTAVO_DEVICE void load_rows(unsigned at, std::uint32_t (&a)[4]) {
  const Vector8 upper = load_shared8(at);
  const Vector8 lower = load_shared8(at + 8 * 32);
  a[0] = upper.words[0];
  a[1] = lower.words[0];
  a[2] = upper.words[1];
  a[3] = lower.words[1];
}

/// The warp's place in a tile.
struct TileWarp {
  unsigned lane = thread_x() % warp_size;
  unsigned column = thread_x() / warp_size % tile_panels;
  unsigned row = thread_x() / warp_size / tile_panels;
};

/// Where the lane's operands are in a stage: of row tile i and block b of the step.
template <int row_tiles, bool nibbles>
OCTAVO_DEVICE unsigned rows_at(unsigned stage, const TileWarp& w, int i, int b) {
  using T = Tile<row_tiles, nibbles>;  // (row g of 32 bytes, 8 * t)
  return stage + w.row * static_cast<unsigned>(T::rows / 2 * 32) + w.lane * 8 +
         static_cast<unsigned>((b * T::rows + 16 * i) * 32);
}
template <int row_tiles, bool nibbles>
OCTAVO_DEVICE unsigned weights_at(unsigned stage, const TileWarp& w, int b) {
  using T = Tile<row_tiles, nibbles>;
  return stage + static_cast<unsigned>(T::row_bytes) +
         (w.column * step_blocks + static_cast<unsigned>(b)) *
             static_cast<unsigned>(T::block_bytes) +
         w.lane * 16;
}

/// Goes through the blocks of k from `first_block` on: fn(stage, step) multiplies what is in a
/// stage.
template <int row_tiles, bool nibbles, class F>
OCTAVO_DEVICE void for_each_step(const ProductArgs& p, std::int64_t first_row,
                                 std::int64_t first_panel, std::int64_t first_block, int blocks,
                                 F&& fn) {
  using T = Tile<row_tiles, nibbles>;
  const unsigned shared = shared_address(shared_tiles);
  const int steps = (blocks + step_blocks - 1) / step_blocks;
  Copies<row_tiles, nibbles> copies(p, first_row, first_panel, first_block, blocks);
#pragma unroll 1
  for (int step = 0; step < tile_stages - 1; ++step) {
    if (step < steps) copies.start(shared + static_cast<unsigned>(step * T::stage_bytes));
    end_batch();
  }
  int stage = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wait_batches<tile_stages - 2>();
    barrier();  // (all threads' copies are there; and the stage before this one is free)
    if (step + tile_stages - 1 < steps)
      copies.start(shared + static_cast<unsigned>((stage == 0 ? tile_stages - 1 : stage - 1) *
                                                  T::stage_bytes));
    end_batch();
    fn(shared + static_cast<unsigned>(stage * T::stage_bytes), step);
    stage = stage + 1 == tile_stages ? 0 : stage + 1;
  }
  wait_batches<0>();
}

/// Puts what the lanes have in shared memory, a line of 128 for each row. Columns are turned by the
/// row, so that no two lanes meet in a bank.
template <int row_tiles, class T>
OCTAVO_DEVICE void put_tile(const T (&values)[row_tiles][4][4], const TileWarp& w) {
  static_assert(sizeof(T) == 4);
  barrier();  // (stages may still be read)
  const unsigned lines = shared_address(shared_tiles);
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned line =
            (w.row * row_tiles + static_cast<unsigned>(i)) * 16 + half * 8 + w.lane / 4;
        const unsigned column = w.column * 32 + 8 * static_cast<unsigned>(j) + w.lane % 4 * 2;
        store_shared8(lines + 4 * (line * tile_columns + (column ^ line % 8 * 8)),
                      {{std::bit_cast<std::uint32_t>(values[i][j][2 * half]),
                        std::bit_cast<std::uint32_t>(values[i][j][2 * half + 1])}});
      }
  barrier();
}

/// The terms of a tile's rows, behind its lines.
OCTAVO_DEVICE RowTerms<float>* tile_row_terms(int row_tiles) {
  return reinterpret_cast<RowTerms<float>*>(shared_tiles + 32 * row_tiles * tile_columns * 4);
}

/// Finishes what was put there: fn(finish, row's terms, column's terms, row, column, place in the
/// lines), of rows as they are multiplied; or, where two are `joined`, of the activations', whose
/// lower half is 8 lines on. A thread has one column, and what it takes from its rows lies in
/// shared memory.
template <int row_tiles, class F>
OCTAVO_DEVICE void finish_tile(const ProductArgs& p, bool joined, std::int64_t first_row,
                               std::int64_t first_column, F&& fn) {
  const FinishArgs& f = p.finish;
  const Finish<float> finish(f);
  const int lines = joined ? 16 * row_tiles : 32 * row_tiles;
  const std::int64_t first = joined ? first_row / 2 : first_row;
  RowTerms<float>* terms = tile_row_terms(row_tiles);
  const auto thread = static_cast<int>(thread_x());
  if (p.fused && thread < lines && first + thread < f.rows)
    store16(terms + thread, std::bit_cast<Vector16>(finish.row(first + thread)));
  barrier();
  const std::int64_t column = first_column + thread % tile_columns;
  if (column < f.n) {
    const ColumnTerms<float> c = p.fused ? finish.column(column) : ColumnTerms<float>{};
    const std::int64_t last = joined || p.fused ? f.rows : p.product_rows;
#pragma unroll 1
    for (int i = thread / tile_columns; i < lines;
         i += static_cast<int>(tile_threads) / tile_columns) {
      if (first + i >= last) break;
      const int line = joined ? i / 8 * 16 + i % 8 : i;
      fn(finish, terms[i], c, first + i, column,
         line * tile_columns + (thread % tile_columns ^ line % 8 * 8));
    }
  }
  barrier();
}

}  // namespace octavo::cuda
