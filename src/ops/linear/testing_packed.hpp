// What the tests of packed weights share.
#pragma once

#include <cstring>
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

// ---- Images. The fields of the header, by their place.

constexpr std::size_t version_at = 8, dtype_at = 12, n_at = 16, k_at = 24, checksum_at = 32,
                      group_at = 40, layout_at = 48, scales_at = 52, zero_points_at = 53,
                      header_bytes = 64, header_1_bytes = 40;
template <class T>
Image with(Image image, std::size_t at, T value) {
  std::memcpy(image.data() + at, &value, sizeof value);
  return image;
}
template <class T>
T field(const Image& image, std::size_t at) {
  T value{};
  std::memcpy(&value, image.data() + at, sizeof value);
  return value;
}

/// What the header holds as the checksum, written from its description.
inline std::uint64_t checksum_of(Image image, std::size_t header = header_bytes) {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15U;
  std::uint64_t h = 0;
  image = with(image, checksum_at, std::uint64_t{0});
  const auto add = [&](std::size_t first, std::size_t bytes) {
    h ^= bytes * odd;
    for (std::size_t i = 0; i < bytes; i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, image.data() + first + i, 8);
      h = (h ^ word) * odd;
      h ^= h >> 32U;
    }
  };
  add(0, header);
  add(header, image.size() - header);
  return h;
}

/// The image that version 1 had of the same weights: a shorter header, and sums in front.
inline Image as_version_1(const Image& image) {
  const auto columns = static_cast<std::size_t>((field<std::int64_t>(image, n_at) + 15) / 16 * 16);
  const auto sums = image.end() - static_cast<std::ptrdiff_t>(columns * 8);
  Image old(image.begin(), image.begin() + header_1_bytes);
  old.insert(old.end(), sums, image.end());
  old.insert(old.end(), image.begin() + header_bytes, sums);
  old = with(old, version_at, std::uint32_t{1});
  return with(old, checksum_at, checksum_of(old, header_1_bytes));
}

}  // namespace octavo::testing
