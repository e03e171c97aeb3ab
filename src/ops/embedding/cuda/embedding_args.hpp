// What the kernels of embeddings are called with, for host and device.
#pragma once

#include <cstdint>

#include "cuda/refusal.hpp"
#include "octavo/dtype.hpp"

namespace octavo::cuda {

inline constexpr unsigned embedding_threads = 256;

struct EmbeddingKernelArgs {
  const std::int32_t* indices = nullptr;
  const void* table = nullptr;
  const void* scales = nullptr;
  const std::int32_t* zero_points = nullptr;  // null: all 0
  void* output = nullptr;
  std::int64_t count = 0;  // indices
  std::int64_t rows = 0;   // of the table
  std::int64_t columns = 0;
  std::int64_t groups = 1;      // of a row
  std::int64_t group_size = 0;  // `columns` where a row is one
  std::int64_t table_step = 0;  // between rows, in elements
  std::int64_t output_step = 0;
  int element_bytes = 4;  // of tables that are copied
  bool quantized = false;
  DType scale_type = DType::f32;
  const Refusal* latest = nullptr;
};

/// The checks of indices and of the scales and zero points of their rows. What the functions that
/// word a refusal want to know is in `detail`: the rows of the table, or its type.
struct EmbeddingCheckArgs {
  EmbeddingKernelArgs run;
  std::uint64_t table_type = 0;
  std::int32_t low = 0;  // of zero points
  std::int32_t high = 0;
  std::uint64_t word_index = 0;
  std::uint64_t word_scale = 0;
  std::uint64_t word_zero_point = 0;
  RefusalState* state = nullptr;
};

}  // namespace octavo::cuda
