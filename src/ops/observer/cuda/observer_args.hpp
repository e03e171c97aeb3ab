// What the kernel of histograms is called with, for host and device.
#pragma once

#include <cstdint>

#include "ops/runs/cuda/rows.hpp"

namespace octavo::cuda {

inline constexpr unsigned count_threads = 256;

/// 1 << lanes threads take a tile of a row.
struct CountArgs {
  const void* input = nullptr;
  std::int64_t* counts = nullptr;  // of each slice as many as there are bins
  Rows rows;
  std::int64_t length = 0;  // of the innermost dimension
  Strides step;             // along it
  int lanes = 0;
  std::int64_t tile = 0;
  std::int64_t tiles = 1;  // of a row
  std::int64_t bins = 0;
  int shift = 0;  // what a bin leaves of an f32 pattern
};

}  // namespace octavo::cuda
