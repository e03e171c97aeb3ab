// Weights in groups, of any size, in either compute type, whatever bits their sums need: a thread
// for each element of the output. What linear_products.cu does not cover comes here.
#include "cuda/device/device.hpp"
#include "ops/linear/cuda/finish.hpp"
#include "ops/linear/cuda/instructions.hpp"
#include "ops/linear/cuda/layout.hpp"

namespace octavo::cuda {
namespace {

// Four codes of a column from k on, as held.
template <bool nibbles>
OCTAVO_DEVICE std::int32_t codes_at(const std::uint8_t* panel, unsigned column, std::int64_t k) {
  const std::int64_t block = k / block_k;
  const auto in_block = static_cast<unsigned>(k % block_k);
  const unsigned lane = column % 8 * 4 + in_block / 8;
  const unsigned second = in_block / 4 % 2;
  if constexpr (nibbles) {
    const auto word =
        *reinterpret_cast<const std::uint32_t*>(panel + block * 512 + 16 * lane + column / 8 * 4);
    return static_cast<std::int32_t>(word >> 4 * second & 0x0F0F0F0FU);
  } else {
    return *reinterpret_cast<const std::int32_t*>(panel + block * 1024 + column / 16 * 512 +
                                                  16 * lane + column / 8 % 2 * 8 + 4 * second);
  }
}

// Exact sums of a group's products, of the activations and of the codes, as held.
struct GroupSums {
  std::int64_t products = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
};
template <bool nibbles>
OCTAVO_DEVICE GroupSums sums_of(const std::int8_t* row, std::uint32_t flip,
                                const std::uint8_t* panel, unsigned column, std::int64_t first,
                                std::int64_t count) {
  GroupSums sums;
  for (std::int64_t k = first; k < first + count; k += 4) {
    const auto a =
        static_cast<std::int32_t>(*reinterpret_cast<const std::uint32_t*>(row + k) ^ flip);
    const std::int32_t b = codes_at<nibbles>(panel, column, k);
    sums.products += dp4a(a, b, 0);
    sums.row += dp4a(a, 0x01010101, 0);
    sums.column += dp4a(b, 0x01010101, 0);
  }
  return sums;
}

template <class C, bool nibbles>
OCTAVO_DEVICE C value_of(const ProductArgs& p, std::int64_t row, std::int64_t column) {
  const std::int64_t panel = column / panel_columns;
  const auto in_panel = static_cast<unsigned>(column % panel_columns);
  const auto* codes =
      static_cast<const std::uint8_t*>(p.codes) + panel * p.blocks * (nibbles ? 512 : 1024);
  const bool halves = p.finish.halves == 2;
  const std::int8_t* upper = p.rows + product_row(row, p.finish.halves) * p.row_stride;
  const std::int64_t row_zero = load_zero(p.finish.row_zeros, row);
  C pending[3] = {};  // of numerics::SegmentTree, without an index that varies
  C y = 0;
  for (int j = 0; j < p.segments; ++j) {
    y = 0;
    const std::int64_t last = numerics::segment_begin(p.groups, p.segments, j + 1);
    for (std::int64_t group = numerics::segment_begin(p.groups, p.segments, j); group < last;
         ++group) {
      const std::int64_t first = group * p.group;
      GroupSums sums = sums_of<nibbles>(upper, p.row_flip, codes, in_panel, first, p.group);
      if (halves) {
        const GroupSums low =
            sums_of<nibbles>(upper + 8 * p.row_stride, 0, codes, in_panel, first, p.group);
        sums.products = sums.products * 256 + low.products;
        sums.row = sums.row * 256 + low.row;
      }
      const std::int64_t place = (panel * p.groups + group) * panel_columns + in_panel;
      const std::int64_t zero = p.zeros == nullptr ? p.shift : std::int32_t{p.zeros[place]};
      const std::int64_t d =
          sums.products - zero * (sums.row - p.group * row_zero) - row_zero * sums.column;
      y = std::fma(static_cast<C>(d), load_float<C>(p.scales.data, p.scales.type, place), y);
    }
    const auto index = static_cast<unsigned>(j);
    if ((index & 1U) == 0) {
      pending[0] = y;
      continue;
    }
    y = pending[0] + y;
    if ((index & 2U) == 0) {
      pending[1] = y;
      continue;
    }
    y = pending[1] + y;
    if ((index & 4U) == 0) {
      pending[2] = y;
      continue;
    }
    y = pending[2] + y;
  }
  return y;
}

template <class C, bool nibbles>
OCTAVO_DEVICE void multiply(const ProductArgs& p) {
  const FinishArgs& f = p.finish;
  if (is_refused(f.slot)) return;
  const Finish<C> finish(f);
  for (std::int64_t row = block_y(); row < f.rows; row += blocks_y())
    for (std::int64_t column = static_cast<std::int64_t>(block_x()) * group_threads + thread_x();
         column < f.n; column += static_cast<std::int64_t>(blocks_x()) * group_threads)
      finish.put(finish.row(row), finish.column(column), row, column,
                 value_of<C, nibbles>(p, row, column));
}

}  // namespace

extern "C" {
__global__ void linear_any_byte_groups_f32(const ProductArgs args) { multiply<float, false>(args); }
__global__ void linear_any_byte_groups_f64(const ProductArgs args) {
  multiply<double, false>(args);
}
__global__ void linear_any_nibble_groups_f32(const ProductArgs args) {
  multiply<float, true>(args);
}
__global__ void linear_any_nibble_groups_f64(const ProductArgs args) {
  multiply<double, true>(args);
}
}

}  // namespace octavo::cuda
