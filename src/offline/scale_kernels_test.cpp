// Smoothed columns by vectors against the scalar loop: every bit, on every target.
#include "offline/scale_kernels.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "octavo/stream.hpp"

namespace octavo::offline {
namespace {

template <class T>
void expect_equal_rows(Target target, DType type, const std::vector<T>& values, float factor) {
  const auto n = static_cast<std::int64_t>(values.size());
  std::vector<float> scales(values.size());
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = factor * (1.0F + static_cast<float>(i % 1021) / 1021.0F);
  std::vector<T> expected(values.size()), got(values.size());
  choose_scale_row(Stream::cpu({.cap = Target::scalar}), type)(values.data(), scales.data(), n,
                                                               expected.data());
  choose_scale_row(Stream::cpu({.cap = target}), type)(values.data(), scales.data(), n, got.data());
  const std::size_t bytes = values.size() * sizeof(T);
  const auto* a = reinterpret_cast<const unsigned char*>(expected.data());
  const auto* b = reinterpret_cast<const unsigned char*>(got.data());
  ASSERT_TRUE(std::equal(a, a + bytes, b)) << name(target) << ' ' << name(type) << " of " << n;
}

class ScaleRows : public ::testing::TestWithParam<Target> {};

TEST_P(ScaleRows, AllValuesOf16Bits) {
  std::vector<bf16> b(65536);
  std::vector<f16> h(65536);
  for (std::size_t i = 0; i < b.size(); ++i) {
    b[i].bits = static_cast<std::uint16_t>(i);
    h[i].bits = static_cast<std::uint16_t>(i);
  }
  for (const float factor : {1e-5F, 0.37F, 1.0F, 3.3F, 3e38F / 2}) {
    expect_equal_rows(GetParam(), DType::bf16, b, factor);
    expect_equal_rows(GetParam(), DType::f16, h, factor);
  }
}

TEST_P(ScaleRows, AllLengths) {
  std::vector<float> f;
  std::vector<double> d;
  std::vector<bf16> b;
  for (std::uint32_t i = 0; i < 300; ++i) {
    expect_equal_rows(GetParam(), DType::f32, f, 0.7F);
    expect_equal_rows(GetParam(), DType::f64, d, 0.7F);
    expect_equal_rows(GetParam(), DType::bf16, b, 0.7F);
    f.push_back(i % 17 == 0 ? std::numeric_limits<float>::quiet_NaN()
                            : 1.0F / static_cast<float>(i));
    d.push_back(1.0 / i);
    b.push_back({static_cast<std::uint16_t>(i * 2654435761U >> 16U)});
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ScaleRows, ::testing::ValuesIn(available_targets()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace octavo::offline
