// Weights packed in panels, in the host's memory: layout 1 (panels.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/large_pages.hpp"
#include "ops/linear/packed_weight.hpp"
#include "ops/linear/panels.hpp"

namespace octavo::detail {

struct Panels final : PackedWeight::Impl {
  Panels(std::int64_t columns, std::int64_t sums_over, DType code)
      : Impl(columns, sums_over, panels_format(code)) {}
  void write_to(std::byte* to) const override;

  std::size_t data_bytes = 0;
  std::unique_ptr<std::int8_t, FreeLargePages> data;
  std::vector<std::int64_t> sums;  // of each column
};

/// Rows of weights as they are.
struct WeightRows {
  const void* data = nullptr;
  std::int64_t stride = 0;  // bytes
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool is_unsigned = false;
};

/// Packs the panels first..last-1 to `to`.
void pack_panels(const WeightRows& rows, std::int64_t first, std::int64_t last, std::int8_t* to);
/// The sums of columns first..last-1, u8 taken as s8.
void add_columns(const WeightRows& rows, std::int64_t first, std::int64_t last, std::int64_t* sums);

}  // namespace octavo::detail
