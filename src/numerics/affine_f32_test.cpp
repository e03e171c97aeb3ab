// affine_f32.hpp gives the bits of affine.hpp: for hard floats, every range and zero point.
#include "numerics/affine_f32.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

#include "testing/random.hpp"

namespace octavo::numerics {
namespace {

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

// Quotients near ties, near the ends of the range, beyond it, and any bits at all.
float hard(const Affine<float>& a, testing::Random& random) {
  const auto any = static_cast<std::uint32_t>(random.next());
  switch (random.below(4)) {
    case 0:
      return std::bit_cast<float>(any);
    case 1: {
      const double end = random.below(2) == 0 ? a.low : a.high;
      const double near = end + static_cast<double>(random.below(9)) / 2 - 2;
      const auto x = static_cast<float>(near * static_cast<double>(a.scale));
      return std::bit_cast<float>(bits(x) + static_cast<std::uint32_t>(random.below(5)) - 2);
    }
    case 2: {
      const auto k = static_cast<double>(static_cast<std::int32_t>(any) >> random.below(31));
      return static_cast<float>((k + 0.5) * static_cast<double>(a.scale));
    }
    default: {
      constexpr float special[] = {0.0F,
                                   -0.0F,
                                   0.3F,
                                   -0.3F,
                                   std::numeric_limits<float>::infinity(),
                                   -std::numeric_limits<float>::infinity(),
                                   std::numeric_limits<float>::quiet_NaN(),
                                   0x1p-149F,
                                   0x1p34F};
      return special[random.below(std::size(special))];
    }
  }
}

TEST(AffineF32, GivesTheBitsOfDoubles) {
  testing::Random random(1);
  const std::vector<float> scales{1.0F,      0.1F,
                                  0.05F,     3.0F,
                                  0x1p-126F, 0x1.000008p-128F,
                                  0x1p100F,  std::numeric_limits<float>::max(),
                                  1e-5F,     255.5F};
  const std::vector<std::int32_t> zero_points{0,
                                              3,
                                              -128,
                                              255,
                                              INT16_MIN,
                                              (1 << 24) - 255,
                                              (1 << 24) + 1,
                                              -(1 << 24) - 1,
                                              (1 << 30) - 1,
                                              1 << 30,
                                              (1 << 30) + 1,
                                              -(1 << 30),
                                              -(1 << 30) - 1,
                                              INT32_MAX,
                                              INT32_MIN};
  const std::vector<IntRange> ranges{{-128, 127},
                                     {0, 255},
                                     {-8, 7},
                                     {INT16_MIN, INT16_MAX},
                                     {5, 5},
                                     {INT32_MIN, INT32_MAX},
                                     {INT32_MIN, INT32_MIN},
                                     {-(1 << 24) - 1, (1 << 24) + 1}};
  for (const float scale : scales)
    for (const std::int32_t zero_point : zero_points)
      for (const IntRange& range : ranges)
        for (const Profile profile : {Profile::torch, Profile::onnx}) {
          const Affine<float> want(scale, zero_point, range, profile);
          const AffineF32 got(scale, zero_point, range, profile);
          for (int i = 0; i < 400; ++i) {
            const float x = hard(want, random);
            const float dy = hard(want, random);
            SCOPED_TRACE(x);
            ASSERT_EQ(quantize(x, got), quantize(x, want)) << scale << ' ' << zero_point;
            ASSERT_EQ(bits(fake_quantize(x, got)), bits(fake_quantize(x, want))) << scale;
            ASSERT_EQ(passes(x, got), passes(x, want)) << scale << ' ' << zero_point;
            ASSERT_EQ(bits(quantize_backward(x, dy, got)), bits(quantize_backward(x, dy, want)));
            ASSERT_EQ(bits(fake_quantize_backward(x, dy, got)),
                      bits(fake_quantize_backward(x, dy, want)));
            const auto q = static_cast<std::int32_t>(random.next()) >> 16;
            ASSERT_EQ(bits(dequantize_f32(q, scale, zero_point)),
                      bits(dequantize(q, scale, zero_point)));
          }
        }
}

}  // namespace
}  // namespace octavo::numerics
