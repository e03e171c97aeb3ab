// Products of integers of a few rows: weights go from memory to the registers, once, and the warps
// of a block share k. (Of many rows the weights come from the second cache.)
#include "cuda/device/device.hpp"
#include "ops/linear/cuda/finish.hpp"
#include "ops/linear/cuda/instructions.hpp"
#include "ops/linear/cuda/layout.hpp"

namespace octavo::cuda {
namespace {

constexpr int tiles = panel_columns / 8;  // of 8 columns
constexpr int tile_elements = product_rows * static_cast<int>(panel_columns);

// What a lane holds of a block of weights: of columns 8 * j + g eight k.
template <bool nibbles>
OCTAVO_DEVICE void load_codes(const void* codes, std::int64_t block, unsigned lane,
                              std::uint32_t (&b)[tiles][2]) {
  const auto* at =
      static_cast<const std::uint8_t*>(codes) + block * (nibbles ? 512 : 1024) + 16 * lane;
  load_operands<nibbles>([at](unsigned bytes) { return load_global16(at + bytes); }, b);
}

// Two rows of activations, g and g + 8 of a tile; those that are not there are 0.
struct RowPair {
  const std::int8_t* at[2];
  bool is_there[2];
  std::uint32_t flip;

  OCTAVO_DEVICE RowPair(const ProductArgs& p, std::int64_t tile, unsigned lane) : flip(p.row_flip) {
    const unsigned g = lane / 4;
    const bool halves = p.finish.halves == 2;
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const std::int64_t row = tile * product_rows + g + 8 * i;
      is_there[i] = (halves ? tile * 8 + g : row) < p.finish.rows;
      at[i] = p.rows + row * p.row_stride + 8 * (lane % 4);
    }
  }
  OCTAVO_DEVICE void load(std::int64_t block, std::uint32_t (&a)[4]) const {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      Vector8 v{};
      if (is_there[i]) v = load_global8(at[i] + block * block_k);
      a[i] = v.words[0] ^ flip;
      a[2 + i] = v.words[1] ^ flip;
    }
  }
};

OCTAVO_DEVICE std::int32_t byte_sums(std::uint32_t x, std::uint32_t y, std::int32_t sum) {
  sum = dp4a(static_cast<std::int32_t>(x), 0x01010101, sum);
  return dp4a(static_cast<std::int32_t>(y), 0x01010101, sum);
}
/// Over the four lanes of a row or column.
OCTAVO_DEVICE std::int32_t over_four(std::int32_t sum) {
  sum += shuffle_xor(sum, 1);
  return sum + shuffle_xor(sum, 2);
}

struct Lane {
  unsigned lane, g, t;
  OCTAVO_DEVICE Lane() : lane(thread_x() % warp_size), g(lane / 4), t(lane % 4) {}
};

// Where a column stands in a line of 32 there: turned by the row, so that no two lanes meet in a
// bank.
OCTAVO_DEVICE unsigned turned(unsigned line, unsigned column) { return column ^ line % 4 * 8; }
// Puts what a lane has of 16 rows in shared memory.
template <class T>
OCTAVO_DEVICE void put(const Lane& l, const T (&values)[tiles][4], const void* shared) {
  static_assert(sizeof(T) == 4);
  const unsigned to = shared_address(shared);
#pragma unroll
  for (unsigned j = 0; j < tiles; ++j)
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned line = l.g + 8 * half;
      const unsigned at =
          line * static_cast<unsigned>(panel_columns) + turned(line, 8 * j + 2 * l.t);
      store_shared8(to + 4 * at, {{std::bit_cast<std::uint32_t>(values[j][2 * half]),
                                   std::bit_cast<std::uint32_t>(values[j][2 * half + 1])}});
    }
}

// The blocks of k that a warp adds up: `fn` takes so many at a time, whose loads are all on their
// way before the first is used, and then what is left one by one.
template <int ahead, class F>
OCTAVO_DEVICE void for_each_block(const ProductArgs& p, int part, F&& fn) {
  const std::int64_t first = static_cast<std::int64_t>(block_z()) * p.piece_blocks;
  const std::int64_t count = std::min(p.piece_blocks, p.blocks - first);
  const std::int64_t last = first + count * (part + 1) / p.parts;
  std::int64_t block = first + count * part / p.parts;
#pragma unroll 1
  for (; block + ahead <= last; block += ahead) fn(block, std::integral_constant<int, ahead>());
#pragma unroll 1
  for (; block < last; ++block) fn(block, std::integral_constant<int, 1>());
}

// Sums over a piece of k, as held.
template <bool nibbles>
OCTAVO_DEVICE void add_up(const ProductArgs& p, std::int64_t tile, std::int64_t panel, int part,
                          std::int32_t* shared) {
  const Lane l;
  std::int32_t acc[tiles][4] = {};
  const RowPair rows(p, tile, l.lane);
  for_each_block<2>(p, part, [&](std::int64_t block, auto count) {
    std::uint32_t b[count()][tiles][2];
    std::uint32_t a[count()][4];
#pragma unroll
    for (int i = 0; i < count(); ++i) {
      load_codes<nibbles>(p.codes, panel * p.blocks + block + i, l.lane, b[i]);
      rows.load(block + i, a[i]);
    }
#pragma unroll
    for (int i = 0; i < count(); ++i)
#pragma unroll
      for (int j = 0; j < tiles; ++j) mma(acc[j], a[i], b[i][j][0], b[i][j][1]);
  });
  put(l, acc, shared);
}

// The same of one row, for which products of four are enough.
template <bool nibbles>
OCTAVO_DEVICE void add_up_row(const ProductArgs& p, std::int64_t panel, int part,
                              std::int32_t* shared) {
  const Lane l;
  std::int32_t acc[tiles] = {};
  const std::int8_t* row = p.rows + 8 * l.t;
  for_each_block<4>(p, part, [&](std::int64_t block, auto count) {
    std::uint32_t b[count()][tiles][2];
    Vector8 a[count()];
#pragma unroll
    for (int i = 0; i < count(); ++i) {
      load_codes<nibbles>(p.codes, panel * p.blocks + block + i, l.lane, b[i]);
      a[i] = load_global8(row + (block + i) * block_k);
    }
#pragma unroll
    for (int i = 0; i < count(); ++i)
#pragma unroll
      for (int j = 0; j < tiles; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          acc[j] = dp4a(static_cast<std::int32_t>(a[i].words[h] ^ p.row_flip),
                        static_cast<std::int32_t>(b[i][j][h]), acc[j]);
  });
#pragma unroll
  for (int j = 0; j < tiles; ++j) {
    const std::int32_t sum = over_four(acc[j]);
    if (l.t == 0) shared[8 * j + static_cast<int>(l.g)] = sum;
  }
}

// Values of a segment of groups; of 16 bits those of eight rows.
template <bool nibbles>
OCTAVO_DEVICE void add_up_groups(const ProductArgs& p, std::int64_t tile, std::int64_t panel,
                                 int part, float* shared) {
  const Lane l;
  float y[tiles][4] = {};
  const RowPair rows(p, tile, l.lane);
  const bool halves = p.finish.halves == 2;
  const auto group_blocks = static_cast<int>(p.group / block_k);
  const bool has_column_zeros = p.zeros != nullptr || p.shift != 0;
  const bool has_row_zeros = p.finish.row_zeros.data != nullptr || p.finish.row_zeros.shift != 0;
  std::int32_t row_zero[2] = {};
  if (has_row_zeros)
#pragma unroll
    for (unsigned i = 0; i < 2; ++i)
      if (rows.is_there[i])
        row_zero[i] = load_zero(p.finish.row_zeros, tile * product_rows + l.g + 8 * i);
  const std::int64_t last = numerics::segment_begin(p.groups, p.segments, part + 1);
  for (std::int64_t group = numerics::segment_begin(p.groups, p.segments, part); group < last;
       ++group) {
    std::int32_t acc[tiles][4] = {};
    std::int32_t row_sum[2] = {};
    std::int32_t column_sum[tiles] = {};
    // Each lane has the parameters of a column.
    const std::int64_t place = (panel * p.groups + group) * panel_columns + l.lane;
    const auto own_scale =
        std::bit_cast<std::int32_t>(load_float<float>(p.scales.data, p.scales.type, place));
    const std::int32_t own_zero = p.zeros == nullptr ? p.shift : std::int32_t{p.zeros[place]};
    for (int i = 0; i < group_blocks; ++i) {
      const std::int64_t block = group * group_blocks + i;
      std::uint32_t b[tiles][2];
      std::uint32_t a[4];
      load_codes<nibbles>(p.codes, panel * p.blocks + block, l.lane, b);
      rows.load(block, a);
#pragma unroll
      for (int j = 0; j < tiles; ++j) mma(acc[j], a, b[j][0], b[j][1]);
      if (has_column_zeros) {
        row_sum[0] = byte_sums(a[0], a[2], row_sum[0]);
        row_sum[1] = byte_sums(a[1], a[3], row_sum[1]);
      }
      if (has_row_zeros)
#pragma unroll
        for (int j = 0; j < tiles; ++j) column_sum[j] = byte_sums(b[j][0], b[j][1], column_sum[j]);
    }
    if (has_column_zeros)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        row_sum[i] = over_four(row_sum[i]) - static_cast<std::int32_t>(p.group) * row_zero[i];
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
      const std::int32_t sum = has_row_zeros ? over_four(column_sum[j]) : 0;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const unsigned column = 2 * l.t + static_cast<unsigned>(c);
        std::int32_t d[2] = {acc[j][c], acc[j][2 + c]};
        if (has_column_zeros) {
          const std::int32_t zero = from_lane(own_zero, 8 * static_cast<unsigned>(j) + column);
          d[0] -= zero * row_sum[0];
          d[1] -= zero * row_sum[1];
        }
        if (has_row_zeros) {
          const std::int32_t column_total = from_lane(sum, 4 * column);
          d[0] -= row_zero[0] * column_total;
          d[1] -= row_zero[1] * column_total;
        }
        const auto scale =
            std::bit_cast<float>(from_lane(own_scale, 8 * static_cast<unsigned>(j) + column));
        if (halves) d[0] = 256 * d[0] + d[1];
        y[j][c] = std::fma(static_cast<float>(d[0]), scale, y[j][c]);
        if (!halves) y[j][2 + c] = std::fma(static_cast<float>(d[1]), scale, y[j][2 + c]);
      }
    }
  }
  put(l, y, shared);
}

// A block of threads has panels of columns, whose warps share k; and one tile of rows after
// another.
enum class Way { rows, one_row, groups };
// Blocks of threads that registers are left for.
constexpr unsigned way_blocks(Way way) { return way == Way::groups ? 2 : 3; }
template <bool nibbles, Way way>
OCTAVO_DEVICE void multiply(const ProductArgs& p) {
  constexpr bool groups = way == Way::groups;
  __shared__ std::int32_t shared[product_warps * tile_elements];
  if (is_refused(p.finish.slot)) return;
  const FinishArgs& f = p.finish;
  const int parts = p.parts;
  const auto warp = static_cast<int>(thread_x() / warp_size);
  const int panels = static_cast<int>(product_warps) / parts;
  const std::int64_t first_panel = static_cast<std::int64_t>(block_x()) * panels;
  const std::int64_t panel = first_panel + warp / parts;
  const bool halves = f.halves == 2;
  const std::int64_t tiles_of_rows = blocks_of(f.rows, halves ? 8 : product_rows);
  const int rows = groups && halves ? 8 : product_rows;  // of values or sums
  for (std::int64_t tile = block_y(); tile < tiles_of_rows; tile += blocks_y()) {
    if (panel < p.panels) {
      std::int32_t* own = shared + warp * tile_elements;
      if constexpr (groups) {
        add_up_groups<nibbles>(p, tile, panel, warp % parts, reinterpret_cast<float*>(own));
      } else if constexpr (way == Way::one_row) {
        add_up_row<nibbles>(p, panel, warp % parts, own);
      } else {
        add_up<nibbles>(p, tile, panel, warp % parts, own);
      }
    }
    barrier();
    const Finish<float> finish(f);
    const int finished_rows = way == Way::one_row ? 1 : !groups && halves && p.fused ? 8 : rows;
    const int elements = finished_rows * static_cast<int>(panel_columns);
    for (int i = static_cast<int>(thread_x()); i < panels * elements;
         i += static_cast<int>(product_threads)) {
      const int in_panel = i % elements;
      const int line = in_panel / static_cast<int>(panel_columns);
      const int in_line = in_panel % static_cast<int>(panel_columns);
      const std::int32_t* from =
          shared + i / elements * parts * tile_elements + line * panel_columns +
          turned(static_cast<unsigned>(line), static_cast<unsigned>(in_line));
      const std::int64_t column = (first_panel + i / elements) * panel_columns + in_line;
      const std::int64_t row = tile * finished_rows + line;
      if (column >= f.n) continue;
      if constexpr (groups) {
        const float value = tree_of(reinterpret_cast<const float*>(from), tile_elements, parts);
        if (row < f.rows) finish.put(finish.row(row), finish.column(column), row, column, value);
      } else {
        std::int32_t sum = 0;
        std::int32_t low = 0;
        for (int part = 0; part < parts; ++part) {
          sum += from[part * tile_elements];
          if (halves && p.fused) low += from[part * tile_elements + 8 * panel_columns];
        }
        if (p.fused) {
          if (row < f.rows)
            finish.put_sum(finish.row(row), finish.column(column), row, column, sum, low);
        } else {  // (rows that are not there have a place)
          static_cast<std::int32_t*>(p.to)[block_z() * f.piece_stride + row * f.stride + column] =
              sum;
        }
      }
    }
    barrier();
  }
}

}  // namespace

#define OCTAVO_ENTRY(name, nibbles, way)                                              \
  extern "C" __global__ void __launch_bounds__(product_threads, way_blocks(Way::way)) \
      name(const ProductArgs args) {                                                  \
    multiply<nibbles, Way::way>(args);                                                \
  }
OCTAVO_ENTRY(linear_bytes, false, rows)
OCTAVO_ENTRY(linear_nibbles, true, rows)
OCTAVO_ENTRY(linear_bytes_by_one_row, false, one_row)
OCTAVO_ENTRY(linear_nibbles_by_one_row, true, one_row)
OCTAVO_ENTRY(linear_byte_groups, false, groups)
OCTAVO_ENTRY(linear_nibble_groups, true, groups)

}  // namespace octavo::cuda
