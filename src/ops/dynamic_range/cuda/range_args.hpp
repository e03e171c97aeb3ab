// What the kernels of dynamic ranges are called with, for host and device.
#pragma once

#include <cstdint>

#include "ops/runs/cuda/rows.hpp"

namespace octavo::cuda {

/// The most threads of a block, and how many there are where a row does not ask for more.
inline constexpr unsigned max_row_threads = 512;
inline constexpr unsigned range_threads = 256;
/// Blocks of a launch at most: where there is more to do, each goes on with what is so far ahead.
inline constexpr std::int64_t max_range_blocks = 65536;

/// What is kept of a row in shared memory: pieces of 16 bytes, or single elements as patterns.
template <class Bits>
constexpr std::uint32_t staged_bytes(bool vector) {
  return vector ? 16 : sizeof(Bits);
}

/// What is looked for in a slice, and how its elements are quantized.
struct RangeMath {
  std::int32_t q_min = 0;
  std::int32_t q_max = 0;
  bool symmetric = true;
  bool torch = true;   // the profile
  int width = 8;       // bits of an integer
  bool pairs = false;  // integers of 4 bits lie two to a byte along the innermost dimension
};

/// Slices of a tensor, or pieces of them.
struct RangeArgs {
  const void* input = nullptr;
  void* output = nullptr;
  void* scales = nullptr;
  std::int32_t* zero_points = nullptr;  // null: not wanted
  void* ranges = nullptr;  // in the workspace: two patterns for each slice (extremes.hpp)
  std::int64_t slices = 0;
  RangeMath math;

  Rows rows;
  std::int64_t length = 0;  // of the innermost dimension
  Strides step;             // along it
  // So many neighbouring threads, 1 << lanes, take a row, or `tile` elements of it; or as many
  // columns (or pieces of 16 bytes), where slices lie along the innermost dimension, and `tile`
  // rows of them.
  int lanes = 0;
  std::int64_t tile = 0;
  std::int64_t tiles = 1;   // of a row, or of the rows
  bool same_params = true;  // of all rows
};

}  // namespace octavo::cuda
