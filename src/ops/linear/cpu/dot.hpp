// Dot products of 8-bit integers, on weights in panels (panels.hpp): what a kernel is.
//
// All kernels add modulo 2^32: whatever a partial sum does, the sum is right if it fits at the end.
#pragma once

#include <cstdint>

#include "octavo/stream.hpp"
#include "ops/linear/panels.hpp"

namespace octavo::detail {

inline constexpr int group_panels = 4;  // at most, of a call
inline constexpr std::int64_t group_columns = group_panels * panel_columns;
inline constexpr std::int64_t block_rows = 64;  // at most, of a call

/// How a kernel reads activations. `u8` and `s8` differ by 128, which the zero point takes up.
enum class Form : std::uint8_t { s8, u8, s16 };

/// sums[r][c] = sum over k of activations[r][k] * weights[c][k], modulo 2^32.
struct DotCall {
  const void* activations = nullptr;
  std::int64_t activation_stride = 0;  // bytes between rows
  std::int64_t rows = 0;
  const std::int8_t* weights = nullptr;  // the first panel
  std::int64_t panel_bytes = 0;          // between panels
  int panels = 0;
  std::int64_t steps = 0;        // k / 4, rounded up to what the kernel's grain makes of it
  std::int32_t* sums = nullptr;  // group_columns apart; those of all panels are written
  // Weights that come next, to be brought nearer meanwhile; or null.
  const std::int8_t* ahead = nullptr;
  std::int64_t ahead_bytes = 0;
};

struct DotKernel {
  Form form = Form::s8;
  /// Rows are read in whole multiples of so many k.
  std::int64_t k_grain = step_k;
  /// Best called with so many rows, up to block_rows.
  std::int64_t rows = 48;
  /// So many rows are multiplied by all weights before the next are: as many as should stay in the
  /// second cache.
  std::int64_t resident_rows = INT64_MAX;
  /// Below this many products per thread, waking another one costs more than it saves.
  std::int64_t products_per_thread = std::int64_t{1} << 20;
  Target (*run)(const DotCall& call) = nullptr;  // returns the target it was compiled for
  /// After all calls of a thread, where the target needs it.
  void (*end)() = nullptr;
};

// One for each instruction set that has one; implementation.cpp has them in order.
extern const DotKernel dot_scalar;
#if defined(__x86_64__)
extern const DotKernel dot_avx2;
extern const DotKernel dot_avxvnni;
extern const DotKernel dot_avx512;
extern const DotKernel dot_avx512vnni;
extern const DotKernel dot_avx512vnni_idle;  // where has_logic_beside_products
extern const DotKernel dot_amx;
#else
extern const DotKernel dot_neon;
extern const DotKernel dot_dotprod;
extern const DotKernel dot_i8mm;
#endif

}  // namespace octavo::detail
