// Packed weights, inside. The layout is described in dot.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "octavo/packed_weight.hpp"
#include "ops/linear/dot.hpp"

namespace octavo {

struct PackedWeight::Impl {
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType dtype = DType::s8;
  std::int64_t data_bytes = 0;
  struct Free {
    void operator()(std::int8_t* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<std::int8_t, Free> data;  // panels
  std::vector<std::int64_t> sums;           // of each column, u8 taken as s8 (less 128)
};

namespace detail {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t panels_of(std::int64_t n) { return (n + panel_columns - 1) / panel_columns; }
constexpr std::int64_t panel_bytes_of(std::int64_t k) {
  return round_up(k, padded_k) * panel_columns;
}

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

/// [n, k] of `dtype`, with rows that may lie apart.
Status check_weight(const TensorRef& weight, DType dtype, std::int64_t n, std::int64_t k);

/// Sizes whose packed form can be counted in bytes.
Status check_weight_sizes(std::int64_t n, std::int64_t k);

}  // namespace detail
}  // namespace octavo
