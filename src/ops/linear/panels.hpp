// Layout 1 of packed weights, which every CPU reads and which images hold.
//
// Weights lie in panels of 16 columns (output channels), each [k / 4][16][4]: the 64 bytes of a
// step hold four consecutive k of every column. k is padded with zeros to a multiple of 64. That is
// the order of an AMX tile and of the VNNI and Arm dot-product instructions alike. u8 is held as
// s8, less 128. With them go the sums of all columns, those of padding included, as 64-bit
// integers.
#pragma once

#include <cstdint>

namespace octavo::detail {

inline constexpr std::uint32_t panels_layout = 1;

inline constexpr std::int64_t panel_columns = 16;
inline constexpr std::int64_t step_k = 4;  // of a step, 64 bytes of a panel
inline constexpr std::int64_t padded_k = 64;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t panels_of(std::int64_t n) { return (n + panel_columns - 1) / panel_columns; }
constexpr std::int64_t panel_bytes_of(std::int64_t k) {
  return round_up(k, padded_k) * panel_columns;
}

}  // namespace octavo::detail
