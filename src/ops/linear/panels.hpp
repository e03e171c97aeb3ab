// Layouts of packed weights, which every CPU reads and which images hold.
//
// 1. Bytes with one scale per channel. Panels of 16 columns (output channels), each [k / 4][16][4]:
// the 64 bytes of a step hold four consecutive k of every column. k is padded with zeros to a
// multiple of 64. That is the order of an AMX tile and of the VNNI and Arm dot-product instructions
// alike. u8 is held as s8, less 128. After all panels come the sums of all columns, those of
// padding included, as 64-bit integers.
//
// 2. Integers in groups, and all of four bits. Panels of 32 columns; of each group the scales of
// the columns, and then its steps: 128 bytes, as two of layout 1, or 64 where byte 4i + j holds
// column i in its lower half and column 16 + i in its upper half. Codes are unsigned: s4 and s8 are
// held more by 8 and by 128. Scales lie in front of what they scale, so that one stream brings
// both. After its groups a panel has their zero points, [groups][32], as codes; or, where there is
// one scale per channel, which it does not hold, the sums of its columns' codes, as 64-bit
// integers. Then k is padded with zeros to a multiple of 4.
//
// 3. Floats. Panels of 32 columns, each [k][32].
//
// Columns that are not there are 0 in all of them, scales and zero points included.
#pragma once

#include <cstdint>

#include "octavo/packed_weight.hpp"

namespace octavo::detail {

inline constexpr std::uint32_t panels_layout = 1;
inline constexpr std::uint32_t groups_layout = 2;
inline constexpr std::uint32_t floats_layout = 3;

inline constexpr std::int64_t panel_columns = 16;
inline constexpr std::int64_t wide_columns = 32;  // of layouts 2 and 3
inline constexpr std::int64_t step_k = 4;         // of a step, 64 bytes of a panel
inline constexpr std::int64_t padded_k = 64;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t panels_of(std::int64_t n) { return (n + panel_columns - 1) / panel_columns; }
constexpr std::int64_t wide_panels_of(std::int64_t n) {
  return (n + wide_columns - 1) / wide_columns;
}
constexpr std::int64_t panel_bytes_of(std::int64_t k) {
  return round_up(k, padded_k) * panel_columns;
}

/// What is added to a signed code to hold it as an unsigned one.
constexpr std::int32_t offset_of(DType code) { return -storage_range(code).min; }

/// Where things lie in a panel of layout 2.
struct GroupPanel {
  bool nibbles;
  std::int64_t groups;       // one of all k, where there is one scale per channel
  std::int64_t length;       // of a group
  std::int64_t steps;        // of a group
  std::int64_t code_bytes;   // of a step
  std::int64_t scale_bytes;  // of a group
  std::int64_t group_bytes;
  std::int64_t zero_points;  // from the start of a panel; then the sums
  std::int64_t sums;
  std::int64_t bytes;

  constexpr GroupPanel(std::int64_t k, const WeightFormat& f)
      : nibbles(is_packed(f.code)),
        groups(f.group == 0 ? 1 : k / f.group),
        length(f.group == 0 ? k : f.group),
        steps((length + step_k - 1) / step_k),
        code_bytes(wide_columns * step_k / (nibbles ? 2 : 1)),
        scale_bytes(f.group == 0 ? 0 : wide_columns * bits(f.scales) / 8),
        group_bytes(scale_bytes + steps * code_bytes),
        zero_points(groups * group_bytes),
        sums(zero_points + (f.zero_points ? round_up(groups * wide_columns, 64) : 0)),
        bytes(sums + (f.group == 0 ? wide_columns * 8 : 0)) {}
};

/// The same weights with each nibble in a byte of its own.
constexpr WeightFormat widened_format(WeightFormat f) {
  f.code = DType::u8;
  return f;
}

constexpr std::int64_t float_panel_bytes(std::int64_t k, DType code) {
  return k * wide_columns * (bits(code) / 8);
}

/// All of a weight's, in bytes; for sizes that were checked.
constexpr std::int64_t packed_bytes(std::int64_t n, std::int64_t k, const WeightFormat& f) {
  if (f.layout == panels_layout) return panels_of(n) * (panel_bytes_of(k) + panel_columns * 8);
  return wide_panels_of(n) *
         (f.layout == groups_layout ? GroupPanel(k, f).bytes : float_panel_bytes(k, f.code));
}

}  // namespace octavo::detail
