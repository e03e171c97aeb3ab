// What the kernels of linear layers are given, for host and device. All pointers are the device's.
#pragma once

#include <cstdint>

#include "cuda/refusal.hpp"
#include "octavo/dtype.hpp"
#include "octavo/profile.hpp"

namespace octavo::cuda {

/// Floats of any type, one for each row or column, or one for all. Null: there are none.
struct Floats {
  const void* data = nullptr;
  DType type = DType::f32;
  bool single = false;
};
/// Zero points, likewise; `shift` is added to each, or to 0 where there are none.
struct Zeros {
  const std::int32_t* data = nullptr;
  bool single = false;
  std::int32_t shift = 0;
};

/// From sums, or from values in the compute type, to the output.
struct FinishArgs {
  const Refusal* slot = nullptr;
  std::int64_t rows = 0, n = 0, k = 0;

  // Sums of products, as held (layout.hpp): [pieces][rows as they are multiplied][stride]. Or
  // values, [pieces][rows][stride], to be added as the tree of segments.
  const void* from = nullptr;
  std::int64_t stride = 0;
  std::int64_t piece_stride = 0;  // elements
  int pieces = 1;
  int halves = 1;
  bool wide = false;  // sums need more than 32 bits

  // What zero points take off. Sums as held; null where they are not needed.
  Zeros row_zeros, column_zeros;
  const std::int64_t* row_sums = nullptr;
  const std::int64_t* column_sums = nullptr;

  Floats row_scales;  // or one that is given by value
  double row_scale = 1;
  float row_scale_f32 = 1;
  Floats column_scales;
  Floats bias;
  const void* residual = nullptr;
  DType residual_type = DType::f32;
  std::int64_t residual_stride = 0;
  bool relu = false;

  void* output = nullptr;
  DType output_type = DType::f32;
  std::int64_t output_stride = 0;
  double output_scale = 1;
  float output_scale_f32 = 1;
  std::int32_t output_zero_point = 0;
  Profile profile = Profile::torch;
};
inline constexpr unsigned finish_threads = 256;

/// Rows of activations, brought into the form that is multiplied: s8 (u8 less 128), k padded with
/// zeros. Of 16 bits there are two rows for each: of eight rows the upper halves, then the lower
/// ones.
struct RowsArgs {
  const Refusal* slot = nullptr;
  const void* input = nullptr;
  std::int64_t input_stride = 0;  // elements
  std::int64_t rows = 0, k = 0;
  std::int8_t* codes = nullptr;  // null: only sums are wanted
  std::int64_t stride = 0;       // bytes, a multiple of 16
  std::int64_t* sums = nullptr;  // of the codes as held; null where they are not needed
  int halves = 1;
  unsigned flip = 0;  // 0x80808080: of u8
  // Of floats, which are quantized:
  void* scales = nullptr;  // in their compute type
  std::int32_t* zero_points = nullptr;
  IntRange range{};
  Profile profile = Profile::torch;
  bool symmetric = true;
  bool keeps_rows = false;  // as they came, in shared memory, which has room: they are read once
};
inline constexpr unsigned rows_threads = 256;
/// What a kernel may have without asking for it, less what it declares itself.
inline constexpr std::int64_t most_kept = std::int64_t{47} * 1024;

/// Rows of weights to a packed one.
struct PackArgs {
  const Refusal* slot = nullptr;
  const void* rows = nullptr;
  std::int64_t stride = 0;  // bytes
  std::int64_t n = 0, k = 0;
  unsigned flip = 0;  // of the bits of a code, in each byte or nibble
  void* codes = nullptr;
  std::int64_t* sums = nullptr;  // null where they are not wanted
};
inline constexpr unsigned pack_threads = 256;

/// Scales and zero points of groups.
struct PackGroupsArgs {
  const Refusal* slot = nullptr;
  std::int64_t n = 0, groups = 0;
  const void* scales = nullptr;
  int scale_bits = 32;
  const std::int32_t* zero_points = nullptr;
  std::int32_t shift = 0;
  void* packed_scales = nullptr;  // of as many bits
  std::int8_t* packed_zeros = nullptr;
};

/// Products of integers.
struct ProductArgs {
  FinishArgs finish;
  bool fused = true;  // else sums or values go to `to`, as FinishArgs reads them
  void* to = nullptr;

  const std::int8_t* rows = nullptr;
  std::int64_t row_stride = 0;    // bytes
  unsigned row_flip = 0;          // (linear_tiles.cu takes none)
  std::int64_t product_rows = 0;  // of 16 bits two for each, and whole tiles of 16
  const void* codes = nullptr;
  std::int64_t panels = 0, blocks = 0;  // as WeightLayout has them
  std::int64_t piece_blocks = 0;        // of k: what one block of threads adds up
  int parts = 1;  // warps of a block that share it; of groups one for each segment

  // Of groups:
  std::int64_t group = 0, groups = 0;
  Floats scales;  // [panels][groups][32]
  const std::int8_t* zeros = nullptr;
  std::int32_t shift = 0;  // what codes are held more by
  int segments = 1;
};
inline constexpr unsigned product_warps = 8;
inline constexpr unsigned product_threads = 32 * product_warps;
inline constexpr int product_rows = 16;
inline constexpr unsigned group_threads = 128;
inline constexpr unsigned tile_threads = 256;
inline constexpr int tile_columns = 128;
inline constexpr int tile_stages = 4;
inline constexpr int group_tile_rows = 64;
/// Shared memory of a tile of 32 * row_tiles rows: of the steps, and then of its sums and what is
/// taken from its rows.
constexpr unsigned tile_shared_bytes(int row_tiles, bool nibbles) {
  const int steps = tile_stages * 64 * (32 * row_tiles + tile_columns / (nibbles ? 2 : 1));
  const int sums = 32 * row_tiles * (tile_columns * 4 + 16);
  return static_cast<unsigned>(steps > sums ? steps : sums);
}

/// Products of floats: values of segments first_segment.. of k.
struct FloatProductArgs {
  FinishArgs finish;
  bool fused = true;
  float* to = nullptr;
  const void* input = nullptr;
  DType input_type = DType::f32;
  std::int64_t input_stride = 0;
  const void* weights = nullptr;  // packed
  DType weight_type = DType::f32;
  int segments = 1;
  int parts = 1;  // blocks that share a tile's segments
};
inline constexpr unsigned float_threads = 256;
inline constexpr int float_tile = 64;

}  // namespace octavo::cuda
