// Products by weights in groups (panels.hpp, layout 2): what a kernel is.
#pragma once

#include <cstdint>

#include "octavo/dtype.hpp"
#include "octavo/stream.hpp"
#include "ops/linear/cpu/dot.hpp"
#include "ops/linear/panels.hpp"

namespace octavo::detail {

/// Of a sum: where it ends, in groups, and numerics::merges_after it.
struct GroupSegment {
  std::int64_t end = 0;
  int merges = 0;
};

/// A tile of rows by the 32 columns of a panel, or of two. With a the activations, w the codes,
///
///     d[r,c,g] = sum over the group of a[r,k] * w[c,k] - zero[c,g] * row_sums[r,g]
///                                                      - row_zeros[r] * column_sums[c,g]
///     values[r,c] = the tree of segments (numerics/segments.hpp) of fma(C(d), scale[c,g], ...)
///
/// where of 16-bit activations d is 256 times that of their upper parts plus that of the lower.
struct GroupCall {
  const std::int8_t* activations = nullptr;  // [k / run][rows][parts][run]
  std::int64_t run = step_k;                 // see GroupKernel
  const std::int32_t* row_sums = nullptr;    // [groups][rows][parts]
  const std::int32_t* row_zeros = nullptr;   // [rows], or null: 0 (always with two parts)
  const std::int32_t* column_sums[2] = {};   // [groups][32] of each panel, with row_zeros
  int rows = 0;
  int parts = 1;  // or 2: the upper and the lower half of 16 bits
  int panels = 1;
  const unsigned char* weights[2] = {};
  const unsigned char* zero_points[2] = {};  // [groups][32] of each, or null: `zero` for all
  std::int32_t zero = 0;
  DType scale_type = DType::f32;  // any float; f64 is rounded
  std::int64_t steps = 0;         // of a group: its length / 4
  int segments = 1;
  const GroupSegment* segment = nullptr;
  float* values = nullptr;  // group_columns apart, panel after panel
};

/// The sums of products alone, modulo 2^32: sums[r * parts + part][c] = sum over `steps` of a * w.
struct GroupSumsCall {
  const std::int8_t* activations = nullptr;  // as above
  std::int64_t run = step_k;
  int rows = 0;
  int parts = 1;
  int panels = 1;
  const unsigned char* codes[2] = {};
  std::int64_t steps = 0;
  std::int32_t* sums = nullptr;  // group_columns apart, panel after panel
};

inline constexpr int max_tile_rows = 32;

struct GroupKernel {
  /// Rows of a tile, at most (and at least 2); halves of 16 bits count as rows.
  int rows = 2;
  /// The same of calls of more than `few` rows; 0: no others.
  int many_rows = 0;
  /// Calls of more than `few` rows have so many k of a row together, or as many of them as divide a
  /// group (run_of); all others have a step.
  int few = 0;
  std::int64_t most_together = step_k;
  /// Whose instructions it uses too.
  Target beside = Target::scalar;
  Target (*run)(const GroupCall& call, bool nibbles) = nullptr;
  Target (*sums)(const GroupSumsCall& call, bool nibbles) = nullptr;
  /// Where calls of more than `few` rows want bytes: nibbles of so many steps, taken apart.
  void (*widen)(const unsigned char* nibbles, std::int64_t steps, unsigned char* bytes) = nullptr;
  /// After all calls of a thread, where the target needs it.
  void (*end)() = nullptr;
};

/// How many k of a row lie together: whole steps, which groups of this length are made of.
constexpr std::int64_t run_of(std::int64_t most_together, std::int64_t length) {
  std::int64_t run = most_together;
  while (length % run != 0) run -= step_k;
  return run;
}

// One for each instruction set that has one; implementation.cpp has them in order.
extern const GroupKernel group_scalar;
#if defined(__x86_64__)
extern const GroupKernel group_avx2;
extern const GroupKernel group_avxvnni;
extern const GroupKernel group_avx512;
extern const GroupKernel group_avx512vnni;
extern const GroupKernel group_avx512vnni_idle;  // where has_logic_beside_products
extern const GroupKernel group_amx;
#else
extern const GroupKernel group_neon;
extern const GroupKernel group_dotprod;
extern const GroupKernel group_i8mm;
#endif

}  // namespace octavo::detail
