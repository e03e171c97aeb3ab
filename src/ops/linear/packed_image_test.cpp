// Images of packed weights are refused when they are not what was written.
#include <gtest/gtest.h>

#include <cstring>

#include "ops/linear/testing_packed.hpp"

namespace octavo::testing {
namespace {

void expect_refused(const Image& image, const Refusal& expected) {
  const auto loaded = PackedWeight::deserialize(image);
  ASSERT_FALSE(loaded);
  expect_error(loaded.error(), expected);
}

TEST(PackedImages, RefuseAnotherHeader) {
  const Image image = packed_of(random_weight(DType::s8, 5, 3, 1)).serialize();
  expect_refused(with(image, 0, 'X'), invalid("image", {"OCTAVOPW"}));
  expect_refused(Image(image.size()), invalid("image", {"OCTAVOPW"}));
  for (const std::uint32_t version : {0U, 3U, 0x01000000U, UINT32_MAX})
    expect_refused(with(image, version_at, version),
                   unsupported("image", {"version 1 to 2", std::to_string(version)}));
  for (const std::uint32_t dtype : {1U, 8U, 9U, 10U, 0x104U, UINT32_MAX})
    expect_refused(with(image, dtype_at, dtype),
                   unsupported("image", {"s8, u8, s4", std::to_string(dtype)}));
  for (const std::uint32_t dtype : {0U, 3U, 6U, 9U, 0x104U, UINT32_MAX})
    expect_refused(with(as_version_1(image), dtype_at, dtype),
                   unsupported("image", {"s8 or u8", std::to_string(dtype)}));
  // Formats that no one reads.
  for (const std::uint32_t layout : {0U, 2U, 3U, 77U})
    expect_refused(with(image, layout_at, layout), unsupported("image", {"format"}));
  expect_refused(with(image, dtype_at, static_cast<std::uint32_t>(DType::s4)),
                 unsupported("image", {"format"}));
  expect_refused(with(image, scales_at, std::uint8_t{1}), unsupported("image", {"format"}));
  expect_refused(with(image, scales_at, std::uint8_t{4}), unsupported("image", {"format"}));
  for (const std::uint8_t zero_points : {std::uint8_t{1}, std::uint8_t{2}})
    expect_refused(with(image, zero_points_at, zero_points), unsupported("image", {"format"}));
  for (std::size_t i = zero_points_at + 1; i < header_bytes; ++i)
    expect_refused(with(image, i, std::uint8_t{1}), unsupported("image", {"format"}));
  for (const std::int64_t group : {std::int64_t{-4}, std::int64_t{2}, std::int64_t{4}})
    expect_refused(with(image, group_at, group), invalid("image", {"groups", "k = 3"}));
  // One that is allowed, but not that of this image.
  expect_refused(with(image, dtype_at, static_cast<std::uint32_t>(DType::u8)),
                 invalid("image", {"checksum"}));
  expect_refused(with(image, n_at, std::int64_t{7}), invalid("image", {"checksum"}));
  expect_refused(with(image, k_at, std::int64_t{64}), invalid("image", {"checksum"}));
}

TEST(PackedImages, RefuseAbsurdSizes) {
  const Image image = packed_of(random_weight(DType::s8, 5, 3, 1)).serialize();
  const auto sized = [&](std::int64_t n, std::int64_t k) {
    return with(with(image, n_at, n), k_at, k);
  };
  for (const std::int64_t wrong : {std::int64_t{-1}, INT64_MIN}) {
    expect_refused(sized(wrong, 3), invalid("n", {std::to_string(wrong)}));
    expect_refused(sized(5, wrong), invalid("k", {std::to_string(wrong)}));
  }
  const std::vector<std::int64_t> large{INT64_MAX,
                                        INT64_MAX - 15,
                                        std::int64_t{1} << 62,
                                        std::int64_t{1} << 60,
                                        std::int64_t{1} << 58,
                                        std::int64_t{1} << 32,
                                        std::int64_t{1} << 31};
  for (const std::int64_t n : large)
    for (const std::int64_t k : large) EXPECT_FALSE(PackedWeight::deserialize(sized(n, k)));
  // Sizes that could be, were there so many bytes.
  for (const std::int64_t size : large) {
    EXPECT_FALSE(PackedWeight::deserialize(sized(size, 0)));
    EXPECT_FALSE(PackedWeight::deserialize(sized(size, 3)));
    EXPECT_FALSE(PackedWeight::deserialize(sized(0, size)));
    EXPECT_FALSE(PackedWeight::deserialize(sized(5, size)));
  }
  const std::int64_t needed = 2 * (64 * 16 + 16 * 8) + 64;
  expect_refused(sized(17, 3), too_small("image", needed, std::ssize(image)));
}

TEST(PackedImages, RefuseTruncatedImages) {
  const Image image = packed_of(random_weight(DType::u8, 5, 3, 1)).serialize();
  const std::int64_t size = std::ssize(image);
  for (std::int64_t bytes = 0; bytes < size; ++bytes) {
    // In memory of that size, so that a sanitizer sees what is read behind it.
    const Image cut(image.begin(), image.begin() + bytes);
    if (bytes < static_cast<std::int64_t>(header_bytes)) {
      expect_refused(cut, invalid("image", {bytes < 40 ? "40" : "64", std::to_string(bytes)}));
    } else {
      expect_refused(cut, too_small("image", size, bytes));
    }
  }
  for (const std::size_t more : {1, 8, 1024}) {
    Image longer = image;
    longer.resize(longer.size() + more);
    expect_refused(longer, invalid("image", {std::to_string(size), std::to_string(longer.size())}));
  }
}

TEST(PackedImages, RefuseEveryFlippedBit) {
  for (const DType type : {DType::s8, DType::u8}) {
    const Image image = packed_of(random_weight(type, 5, 3, 1)).serialize();
    for (std::size_t i = 0; i < 8 * image.size(); ++i) {
      Image flipped = image;
      flipped[i / 8] ^= static_cast<std::byte>(1U << i % 8);
      ASSERT_FALSE(PackedWeight::deserialize(flipped)) << "bit " << i;
    }
  }
}

// Anyone can write a checksum that fits; sums that are not those of the weights would give other
// results on some targets than on others.
TEST(PackedImages, RefuseSumsAndPaddingThatAreNotTheirs) {
  const Image image = packed_of(random_weight(DType::s8, 5, 3, 1)).serialize();
  ASSERT_EQ(with(image, checksum_at, checksum_of(image)), image);
  const auto refused = [&](std::size_t at, auto value) {
    const Image changed = with(image, at, value);
    ASSERT_NE(changed, image);
    expect_refused(with(changed, checksum_at, checksum_of(changed)), invalid("image", {"sums"}));
  };
  const std::size_t sums = header_bytes + std::size_t{64} * 16;
  for (std::size_t column = 0; column < 16; ++column)
    for (const std::int64_t sum : {INT64_MAX, INT64_MIN, std::int64_t{77777}})
      refused(sums + 8 * column, sum);
  refused(header_bytes + 3, std::int8_t{1});                   // k = 3 of column 0
  refused(header_bytes + std::size_t{5} * 4, std::int8_t{1});  // column 5
  refused(sums - 1, std::int8_t{-1});                          // the last of all
}

// Padding that is counted in its sum is padding still: products of it would be added by targets
// that take more of k at a time than others.
TEST(PackedImages, RefusePaddingThatIsNotZeroEvenInItsSum) {
  const std::int64_t n = 20;
  const std::int64_t k = 3;
  const Image image = packed_of(random_weight(DType::s8, n, k, 1)).serialize();
  const std::size_t panels = header_bytes;
  const std::size_t sums = header_bytes + std::size_t{2} * 64 * 16;
  for (std::size_t column = 0; column < 32; ++column)
    for (std::size_t i = 0; i < 64; ++i) {
      if (column < static_cast<std::size_t>(n) && i < static_cast<std::size_t>(k)) continue;
      // (Four of k of each of 16 columns lie together.)
      const std::size_t at = panels + column / 16 * 64 * 16 + i / 4 * 64 + column % 16 * 4 + i % 4;
      ASSERT_EQ(image[at], std::byte{0});
      std::int64_t sum = 0;
      std::memcpy(&sum, image.data() + sums + 8 * column, 8);
      Image changed = with(image, at, std::int8_t{1});
      changed = with(changed, sums + 8 * column, sum + 1);
      expect_refused(with(changed, checksum_at, checksum_of(changed)), invalid("image", {"sums"}));
    }
}

TEST(PackedImages, RefuseGarbage) {
  const Image image = packed_of(random_weight(DType::s8, 20, 70, 1)).serialize();
  Random random(7);
  for (int i = 0; i < (slow_machine() ? 2000 : 20000); ++i) {
    Image wrong = image;
    for (std::uint64_t change = random.below(5) + 1; change > 0; --change)
      wrong[random.below(i % 2 == 0 ? header_bytes : wrong.size())] =
          static_cast<std::byte>(random.next());
    if (random.below(4) == 0) wrong.resize(random.below(wrong.size()));
    ASSERT_EQ(PackedWeight::deserialize(wrong).has_value(), wrong == image);
  }
}

}  // namespace
}  // namespace octavo::testing
