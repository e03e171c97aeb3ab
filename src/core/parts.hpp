// How many threads share some work: the one place where it is bounded.
#pragma once

#include <algorithm>
#include <cstdint>

namespace octavo::detail {

/// One for each whole `per_part` of the work, at least 1 and at most `most`.
constexpr int parts_of(std::int64_t work, std::int64_t per_part, std::int64_t most) {
  return static_cast<int>(
      std::clamp<std::int64_t>(work / per_part, 1, std::max<std::int64_t>(most, 1)));
}

/// a * b of sizes, or INT64_MAX if it is beyond that.
constexpr std::int64_t amount(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

}  // namespace octavo::detail
