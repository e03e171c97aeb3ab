// Packed weights in a GPU's memory, for host and device.
//
// 16. Integers. Panels of 32 columns (output channels), cut in blocks of 32 of k; k is padded with
// zeros, and so are columns. A block is what a warp loads at a time, 16 bytes for each lane, which
// are then the operands of mma.m16n8k32 as they are: lane 4 * g + t has of the columns 8 * j + g, j
// = 0 to 3, the k of 8 * t to 8 * t + 7. (Sums of integers have no order: the same k of the
// activations go to the same lanes.) Of bytes a block is two such loads, of j = 0, 1 and j = 2, 3:
// 8 bytes of each column. Of nibbles it is one: 4 bytes of each column, the lower halves the first
// four k, the upper ones the others. Bytes are held as s8, u8 less 128; nibbles as unsigned, s4
// more by 8. After the codes come, where there is one scale per channel, the sums of the columns as
// held, as 64-bit integers; of groups their scales, [panels][groups][32], and then their zero
// points, likewise, s8, as codes are held.
//
// 17. Floats. Panels of 32 columns, each [k][32].
#pragma once

#include <cstdint>

#include "octavo/packed_weight.hpp"

namespace octavo::cuda {

inline constexpr std::uint32_t integer_layout = 16;
inline constexpr std::uint32_t float_layout = 17;

inline constexpr std::int64_t panel_columns = 32;
inline constexpr std::int64_t block_k = 32;
inline constexpr std::int64_t weight_alignment = 256;  // of each part

constexpr std::int64_t blocks_of(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}
constexpr std::int64_t aligned(std::int64_t bytes) {
  return blocks_of(bytes, weight_alignment) * weight_alignment;
}

/// The format in which a GPU holds weights of this type.
constexpr WeightFormat device_format(DType code, std::int64_t group, bool zero_points,
                                     DType scales) {
  if (is_float(code)) return {code, 0, float_layout};
  if (group == 0) return {code, 0, integer_layout};
  return {code, group, integer_layout, zero_points, scales};
}

/// What is added to a code where it is held.
constexpr std::int32_t shift_of(DType code) {
  switch (code) {
    case DType::u8:
      return -128;
    case DType::s4:
      return 8;
    default:
      return 0;
  }
}

/// Where things lie, in bytes from the start.
struct WeightLayout {
  std::int64_t panels = 0;
  std::int64_t blocks = 0;       // of a panel
  std::int64_t block_bytes = 0;  // of layout 17: of one of k
  std::int64_t groups = 0;
  std::int64_t sums = 0;
  std::int64_t scales = 0;
  std::int64_t zeros = 0;
  std::int64_t bytes = 0;

  constexpr WeightLayout(std::int64_t n, std::int64_t k, const WeightFormat& f)
      : panels(blocks_of(n, panel_columns)) {
    const std::int64_t width = bits(f.code);
    if (is_float(f.code)) {
      blocks = k;
      block_bytes = panel_columns * width / 8;
      bytes = aligned(panels * blocks * block_bytes);
      return;
    }
    blocks = blocks_of(k, block_k);
    block_bytes = panel_columns * block_k * width / 8;
    sums = scales = zeros = bytes = aligned(panels * blocks * block_bytes);
    if (f.group == 0) {
      bytes += aligned(panels * panel_columns * 8);
      return;
    }
    groups = k / f.group;
    zeros = bytes += aligned(panels * groups * panel_columns * bits(f.scales) / 8);
    if (f.zero_points) bytes += aligned(panels * groups * panel_columns);
  }
};

}  // namespace octavo::cuda
