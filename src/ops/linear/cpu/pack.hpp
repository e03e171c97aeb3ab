// Packed weights in the host's memory, in the layouts of panels.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/large_pages.hpp"
#include "ops/linear/packed_weight.hpp"
#include "ops/linear/panels.hpp"

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
};

WeightRows rows_of(const TensorRef& weight, std::int64_t n, std::int64_t k, bool offset);

inline constexpr std::int64_t block_k = padded_k;  // a cache line of each row
/// block_k bytes of each of 16 columns, step by step, as a panel of layout 1 has them.
void transpose_block(const unsigned char* const (&rows)[panel_columns], std::uint32_t flip,
                     std::int8_t* to);
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
