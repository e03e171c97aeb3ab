// The search for alpha, against plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "octavo/smooth.hpp"
#include "testing/threads.hpp"

namespace octavo {
namespace {

using ::testing::HasSubstr;

std::vector<float> random_floats(std::size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<float> out(n);
  for (float& x : out) x = static_cast<float>(static_cast<std::int32_t>(rng())) * 0x1p-31F;
  return out;
}

// The whole measurement in plain loops, for one weight that fits in one slab.
double plain_error(const std::vector<float>& w, const std::vector<float>& x,
                   const std::vector<float>& s, std::size_t n, std::size_t k, std::size_t r) {
  double square = 0, energy = 0;
  const auto row_scale = [](const float* row, std::size_t count) {
    float most = 0;
    for (std::size_t i = 0; i < count; ++i) most = std::max(most, std::fabs(row[i]));
    return most > 0 ? most / 127.0F : 1.0F;
  };
  const auto quantized = [](float v, float scale) {
    return static_cast<int>(std::clamp(std::rint(v * (1.0F / scale)), -128.0F, 127.0F));
  };
  std::vector<double> exact(r * n);
  std::vector<float> got(r * n);
  for (std::size_t a = 0; a < r; ++a)
    for (std::size_t b = 0; b < n; ++b) {
      std::vector<float> xs(k), ws(k);
      for (std::size_t j = 0; j < k; ++j) {
        exact[a * n + b] += double{x[a * k + j]} * double{w[b * k + j]};
        xs[j] = x[a * k + j] / s[j];
        ws[j] = w[b * k + j] * s[j];
      }
      const float sx = row_scale(xs.data(), k), sw = row_scale(ws.data(), k);
      int sum = 0;
      for (std::size_t j = 0; j < k; ++j) sum += quantized(xs[j], sx) * quantized(ws[j], sw);
      got[a * n + b] = static_cast<float>(sum) * (sx * sw);
    }
  for (const double v : exact) energy += v * v;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double d = exact[i] - double{got[i]};
    square += d * d;
  }
  return square / energy;
}

TEST(SearchAlpha, MeasuresAndPicksTheLeast) {
  constexpr std::size_t n = 30, k = 64, r = 9;
  const std::vector<float> w = random_floats(n * k, 5);
  std::vector<float> x = random_floats(r * k, 6);
  std::vector<float> absmax(k, 0.0F);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % k == 7) x[i] *= 60;  // an outlier channel
    absmax[i % k] = std::max(absmax[i % k], std::fabs(x[i]));
  }
  const std::vector<TensorRef> weights{{w, {n, k}}};
  const std::vector<double> candidates{0.0, 0.5, 0.8, 1.0};
  const auto found = search_alpha(Stream::cpu(), {.weights = weights,
                                                  .absmax = absmax,
                                                  .rows = TensorRef(x, {r, k}),
                                                  .candidates = candidates});
  ASSERT_TRUE(found) << found.error().message();
  std::vector<double> expected;
  for (const double alpha : candidates) {
    const auto s = smoothing_scales(Stream::cpu(), weights, absmax, alpha);
    expected.push_back(plain_error(w, x, *s, n, k, r));
  }
  EXPECT_EQ(found->errors, expected);
  EXPECT_EQ(found->error, *std::min_element(expected.begin(), expected.end()));
  EXPECT_GT(found->alpha, 0.0);
  EXPECT_LT(found->alpha, 1.0);
  EXPECT_LT(found->error, found->errors[0] / 4);
}

TEST(SearchAlpha, DoesNotDependOnThreads) {
  [[maybe_unused]] const testing::ManyThreads many;
  constexpr std::int64_t n = 700, k = 1024;  // several slabs
  const std::vector<float> w = random_floats(n * k, 7);
  const std::vector<float> x = random_floats(4 * k, 8);
  const std::vector<float> absmax(k, 1.0F);
  for (const Scheme scheme : {Scheme::w8a8_dynamic, Scheme::w8a8_static, Scheme::w8a16,
                              Scheme::w4a8_group, Scheme::w4a16_group}) {
    std::vector<double> first;
    for (const int threads : {1, 3, 16}) {
      const std::vector<TensorRef> weights{{w, {n, k}}, {w, {n / 2, k}}};
      const std::vector<double> candidates{0.3, 0.7};
      const auto found =
          search_alpha(Stream::cpu({.threads = threads}), {.weights = weights,
                                                           .absmax = absmax,
                                                           .rows = TensorRef(x, {4, k}),
                                                           .candidates = candidates,
                                                           .scheme = scheme,
                                                           .group_size = 32});
      ASSERT_TRUE(found) << found.error().message();
      if (first.empty()) first = found->errors;
      EXPECT_EQ(found->errors, first) << name(scheme);
      EXPECT_LT(found->error, 0.05);
    }
  }
}

TEST(SearchAlpha, Refusals) {
  const std::vector<float> w(8, 1.0F), x(4, 1.0F), absmax(4, 1.0F);
  const std::vector<TensorRef> weights{{w, {2, 4}}};
  const auto message = [&](const AlphaSearchArgs& args) {
    const auto found = search_alpha(Stream::cpu(), args);
    return found ? "accepted" : found.error().message();
  };
  EXPECT_EQ(message({.weights = weights, .absmax = absmax, .rows = TensorRef(x, {1, 4})}),
            "accepted");
  EXPECT_THAT(message({.weights = weights, .absmax = absmax, .rows = TensorRef(x, {2, 2})}),
              HasSubstr("rows: expected at least one row of 4"));
  EXPECT_THAT(message({.weights = weights, .absmax = absmax, .rows = TensorRef(x, {0, 4})}),
              HasSubstr("rows: expected at least one row of 4"));
  for (const std::int64_t size : {3, 2, 8, -4})
    EXPECT_THAT(message({.weights = weights,
                         .absmax = absmax,
                         .rows = TensorRef(x, {1, 4}),
                         .scheme = Scheme::w4a16_group,
                         .group_size = size}),
                HasSubstr("group_size: expected a divisor of 4 that is a multiple of 4"));
  for (const std::int64_t size : {4, 0})
    EXPECT_EQ(message({.weights = weights,
                       .absmax = absmax,
                       .rows = TensorRef(x, {1, 4}),
                       .scheme = Scheme::w4a8_group,
                       .group_size = size,
                       .asymmetric = true}),
              "accepted");
  const std::vector<double> bad{2.0};
  EXPECT_THAT(
      message(
          {.weights = weights, .absmax = absmax, .rows = TensorRef(x, {1, 4}), .candidates = bad}),
      HasSubstr("alpha"));
}

// Twentieths from 0 to 1, and rows that lie in memory in any way.
TEST(SearchAlpha, DefaultsAndStrides) {
  constexpr std::size_t n = 20, k = 32, r = 5;
  const std::vector<float> w = random_floats(n * k, 10), x = random_floats(r * k, 11);
  std::vector<float> absmax(k, 1.0F), turned(x.size());  // [k, r]
  absmax[3] = 50;
  for (std::size_t i = 0; i < x.size(); ++i) turned[i % k * r + i / k] = x[i];
  const std::vector<TensorRef> weights{{w, {n, k}}};
  std::vector<double> twentieths;
  for (int i = 0; i <= 20; ++i) twentieths.push_back(i / 20.0);
  const auto named = search_alpha(Stream::cpu(), {.weights = weights,
                                                  .absmax = absmax,
                                                  .rows = TensorRef(x, {r, k}),
                                                  .candidates = twentieths});
  const auto found =
      search_alpha(Stream::cpu(), {.weights = weights,
                                   .absmax = absmax,
                                   .rows = TensorRef(turned.data(), Shape{r, k}, Shape{1, r})});
  ASSERT_TRUE(named);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->errors, named->errors);
  EXPECT_EQ(found->alpha, named->alpha);
}

// What is no number is not the least.
TEST(SearchAlpha, ErrorsThatAreNoNumbersAreInfinite) {
  std::vector<float> w = random_floats(8, 12);
  w[5] = std::numeric_limits<float>::infinity();
  const std::vector<float> x(4, 1.0F), absmax(4, 1.0F);
  const std::vector<TensorRef> weights{{w, {2, 4}}};
  const auto found = search_alpha(
      Stream::cpu(), {.weights = weights, .absmax = absmax, .rows = TensorRef(x, {1, 4})});
  ASSERT_TRUE(found) << found.error().message();
  for (const double error : found->errors)
    EXPECT_EQ(error, std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace octavo
