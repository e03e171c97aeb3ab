// Packed weights in the host's memory, in the layouts of panels.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "core/large_pages.hpp"
#include "ops/linear/packed_weight.hpp"
#include "ops/linear/panels.hpp"
#include "ops/runs/cpu/convert.hpp"

namespace octavo::detail {

struct HostWeight final : PackedWeight::Impl {
  HostWeight(std::int64_t columns, std::int64_t sums_over, const WeightFormat& f)
      : Impl(columns, sums_over, f) {
    bytes = static_cast<std::size_t>(packed_bytes(n, k, format));
  }
  [[nodiscard]] const std::byte* image() const override { return data; }
  [[nodiscard]] Status unpack(const TensorMut& weight, const TensorMut& scales,
                              const TensorMut& zero_points) const override;

  /// A panel of layouts 2 and 3.
  [[nodiscard]] const std::byte* panel(std::int64_t i, std::int64_t panel_bytes) const {
    return data + i * panel_bytes;
  }
  // Of layout 1.
  [[nodiscard]] const std::int8_t* panels() const {
    return reinterpret_cast<const std::int8_t*>(data);
  }
  [[nodiscard]] const std::int64_t* sums() const {
    return reinterpret_cast<const std::int64_t*>(data + panels_of(n) * panel_bytes_of(k));
  }

  const std::byte* data = nullptr;
  std::unique_ptr<std::byte, FreeLargePages> own;  // or it is kept by:
  std::shared_ptr<const void> keeper;
};

inline const HostWeight& host_weight(const PackedWeight& packed) {
  return static_cast<const HostWeight&>(*packed.impl());
}

/// Rows of weights as they are.
struct WeightRows {
  const void* data = nullptr;
  std::int64_t stride = 0;  // bytes
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType type = DType::s8;
  bool offset = false;  // signed ones, as unsigned ones
  // Of groups: [n, groups]; null where there are none.
  const void* scales = nullptr;
  DType scale_type = DType::f32;
  const std::int32_t* zero_points = nullptr;
  ConvertFunction convert = nullptr;  // scales to the type that panels hold, if it is another
};

WeightRows rows_of(const TensorRef& weight, std::int64_t n, std::int64_t k, bool offset);

inline constexpr std::int64_t block_k = padded_k;  // a cache line of each row

// ---- Squares of elements, transposed. Every CPU has vectors of 16 bytes.

using Bytes = unsigned char __attribute__((vector_size(16)));
using Words = std::uint16_t __attribute__((vector_size(16)));
using Quads = std::uint32_t __attribute__((vector_size(16)));

template <class V>
V load_vector(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

inline Quads lower(Quads a, Quads b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Quads upper(Quads a, Quads b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
inline Words lower(Words a, Words b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
inline Words upper(Words a, Words b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

/// As many vectors as a vector has lanes.
template <class V, std::size_t lanes>
void transpose(V (&v)[lanes]) {
  static_assert(lanes * sizeof(v[0][0]) == sizeof(V));
#pragma GCC unroll 4
  for (std::size_t left = lanes; left > 1; left /= 2) {
    V next[lanes];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < lanes / 2; ++i) {
      next[2 * i] = lower(v[i], v[i + lanes / 2]);
      next[2 * i + 1] = upper(v[i], v[i + lanes / 2]);
    }
#pragma GCC unroll 8
    for (std::size_t i = 0; i < lanes; ++i) v[i] = next[i];
  }
}

/// Packs the panels first..last-1 of layout 1 to `to`.
void pack_panels(const WeightRows& rows, std::int64_t first, std::int64_t last, std::int8_t* to);
/// The sums of columns first..last-1, u8 taken as s8.
void add_columns(const WeightRows& rows, std::int64_t first, std::int64_t last, std::int64_t* sums);

/// One panel of layout 2; what is not written is padding, which is zeroed.
void pack_group_panel(const WeightRows& rows, const WeightFormat& format, std::int64_t panel,
                      std::byte* to);
/// One panel of layout 3.
void pack_float_panel(const WeightRows& rows, std::int64_t panel, std::byte* to);

/// Whether padding is 0, sums are those of their columns, and zero points within the type. An image
/// may be anyone's, and wrong ones would give other results on some targets than on others.
bool is_consistent_groups(const HostWeight& weight);
bool is_consistent_floats(const HostWeight& weight);

void unpack_panels(const HostWeight& from, const TensorMut& weight);
void unpack_groups(const HostWeight& from, const TensorMut& weight, const TensorMut& scales,
                   const TensorMut& zero_points);
void unpack_floats(const HostWeight& from, const TensorMut& weight);

}  // namespace octavo::detail
