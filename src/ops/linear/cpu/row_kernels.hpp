// Rows of bytes on their way to a dot product.
#pragma once

#include <cstdint>

#include "ops/linear/cpu/dot.hpp"
#include "simd/vector_targets.hpp"

namespace octavo::detail {

/// u8 as s8, or s8 as u8: less or more 128, which is the same bit.
inline constexpr unsigned char sign_flip = 0x80;

struct RowKernels {
  /// to[i] = from[i] ^ flip for i < n; `to` may be `from`.
  void (*flip)(const unsigned char* from, std::int64_t n, unsigned char flip,
               unsigned char* to) = nullptr;
  /// to[i] = from[i] ^ flip, as s8, for i < n, and 0 up to the next multiple of padded_k. `from`
  /// may be the upper half of `to`.
  void (*widen)(const unsigned char* from, std::int64_t n, unsigned char flip,
                std::int16_t* to) = nullptr;
  /// The sum of from[i] ^ flip, as u8.
  std::int64_t (*sum)(const unsigned char* from, std::int64_t n, unsigned char flip) = nullptr;
  /// The same of each of `groups` groups of `length`, less `off`, `stride` apart: modulo 2^32.
  void (*sum_groups)(const unsigned char* from, std::int64_t length, std::int64_t groups,
                     unsigned char flip, std::int64_t off, std::int32_t* to,
                     std::int64_t stride) = nullptr;
  /// to[i / 4][r][i % 4] = rows[r][i] ^ flip for i < n, and 0 up to the next multiple of 4, of
  /// `count` rows.
  void (*interleave)(const unsigned char* const* rows, std::int64_t count, std::int64_t n,
                     unsigned char flip, unsigned char* to) = nullptr;
};

template <Target target>
RowKernels row_kernels();

#define OCTAVO_DECLARE(target) \
  template <>                  \
  RowKernels row_kernels<target>()
OCTAVO_VECTOR_TARGETS(OCTAVO_DECLARE);
#undef OCTAVO_DECLARE

}  // namespace octavo::detail
