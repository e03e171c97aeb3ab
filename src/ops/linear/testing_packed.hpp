// What the tests of packed weights share.
#pragma once

#include <vector>

#include "ops/linear/testing_refusals.hpp"

namespace octavo::testing {

using Image = std::vector<std::byte>;

inline Stream one_thread() { return Stream::cpu({.threads = 1}); }

inline Matrix random_weight(DType type, std::int64_t n, std::int64_t k, std::uint64_t seed,
                            std::int64_t padding = 0) {
  Matrix m(type, n, k, padding);
  Random random(seed);
  for (std::byte& byte : m.bytes) byte = static_cast<std::byte>(random.next());
  return m;
}
inline PackedWeight packed_of(const Matrix& m) {
  auto packed = octavo::pack(one_thread(), m.ref());
  EXPECT_TRUE(packed) << packed.error().message();
  return packed ? *packed : PackedWeight();
}

}  // namespace octavo::testing
