// Device code: where a row starts.
#pragma once

#include "ops/runs/cuda/rows.hpp"

namespace octavo::cuda {

struct Division {
  std::int64_t quotient;
  std::int64_t rest;
};
/// Of numbers that are not negative: in 32 bits where that is enough.
OCTAVO_DEVICE Division divide(std::int64_t number, std::int64_t by) {
  if ((static_cast<std::uint64_t>(number | by) >> 32U) == 0) {
    const auto quotient = static_cast<std::uint32_t>(number) / static_cast<std::uint32_t>(by);
    return {quotient,
            static_cast<std::uint32_t>(number) - quotient * static_cast<std::uint32_t>(by)};
  }
  return {number / by, number % by};
}

struct Start : Strides {
  /// Of all rows that have these parameters, the first.
  bool is_first = true;
};

/// Divides only where there are several dimensions.
OCTAVO_DEVICE Start start_of(const Rows& rows, std::int64_t row) {
  Start at;
  for (int i = rows.rank - 1; i >= 0; --i) {
    Division d{0, row};
    if (i > 0) d = divide(row, rows.size[i]);
    row = d.quotient;
    at.input += d.rest * rows.stride[i].input;
    at.output += d.rest * rows.stride[i].output;
    at.params += d.rest * rows.stride[i].params;
    at.is_first = at.is_first && (rows.stride[i].params != 0 || d.rest == 0);
  }
  return at;
}

}  // namespace octavo::cuda
