// What a caller of dynamic ranges sees: scales, integers and workspaces of a few plain inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "octavo/dynamic_range_quantize.hpp"

namespace octavo {
namespace {

TEST(DynamicRangeValues, Symmetric) {
  const Stream stream = Stream::cpu({.threads = 1});
  const std::vector<float> x{-1, 0.5F, 127, 2, INFINITY, -INFINITY, NAN, 0, 0};
  std::vector<std::int8_t> q(9);
  std::vector<float> scales(3);
  const auto plan = DynamicRangeQuantizePlan::select<float, std::int8_t>(stream, {.shape = {3, 3}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->workspace_size(), 0U);
  EXPECT_EQ(plan->slices(), 3);
  ASSERT_TRUE(
      plan->run(stream, {}, {.input = {x, {3, 3}}, .output = {q, {3, 3}}, .scales = scales}));
  EXPECT_EQ(scales, (std::vector<float>{1, 2.0F / 127, 1}));
  EXPECT_EQ(q, (std::vector<std::int8_t>{-1, 0, 127, 127, 127, -128, 0, 0, 0}));
}

// s16: both halves of an integer fit 8 bits, unless a range is given.
TEST(DynamicRangeValues, SixteenBits) {
  const Stream stream = Stream::cpu({.threads = 1});
  const std::vector<float> x{-1, 0.5F, 32639, INFINITY, -INFINITY, NAN, -32639, 0, 7};
  std::vector<std::int16_t> q(9);
  std::vector<float> scales(3);
  const auto run = [&](const DynamicRangeQuantizeDescriptor& d) {
    const auto plan = DynamicRangeQuantizePlan::select<float, std::int16_t>(stream, d);
    ASSERT_TRUE(plan) << plan.error().message();
    ASSERT_TRUE(
        plan->run(stream, {}, {.input = {x, {3, 3}}, .output = {q, {3, 3}}, .scales = scales}));
  };
  run({.shape = {3, 3}});
  EXPECT_EQ(scales, (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(q, (std::vector<std::int16_t>{-1, 0, 32639, 32639, -32639, 0, -32639, 0, 7}));
  run({.shape = {3, 3}, .q_min = -32768, .q_max = 32767});
  EXPECT_EQ(scales, (std::vector<float>{32639.0F / 32767, 1, 32639.0F / 32767}));
  EXPECT_EQ(q, (std::vector<std::int16_t>{-1, 1, 32767, 32767, -32768, 0, -32767, 0, 7}));
}

// Rows that are few and long are shared by threads, which need ranges of their own.
TEST(DynamicRangeValues, Workspace) {
  const auto needed = [](int threads, const DynamicRangeQuantizeDescriptor& d) {
    return DynamicRangeQuantizePlan::select(Stream::cpu({.threads = threads}), d)->workspace_size();
  };
  constexpr std::int64_t length = (1 << 18) + 1;
  EXPECT_EQ(needed(4, {.shape = {2, length}}), 8 * sizeof(float));
  EXPECT_EQ(needed(1, {.shape = {2, length}}), 0U);
  EXPECT_EQ(needed(4, {.shape = {32, length}}), 0U);
  EXPECT_EQ(needed(4, {.shape = {2, length - 1}}), 0U);
  EXPECT_EQ(needed(4, {.shape = {0, length}}), 0U);
  EXPECT_EQ(needed(4, {.shape = {2, 2 * length}, .scope = Layout::per_group, .group_size = length}),
            16 * sizeof(float));
  EXPECT_EQ(needed(4, {.shape = {9}, .mode = RangeMode::asymmetric, .scope = Layout::per_tensor}),
            8 * sizeof(float));
}

TEST(DynamicRangeValues, AsymmetricIsOnnxDynamicQuantizeLinear) {
  const Stream stream = Stream::cpu({.threads = 1});
  const std::vector<float> x{0, 2, -3, -2.5F, 1.34F, 0.5F};
  std::vector<std::uint8_t> q(6);
  std::vector<float> scale(1);
  std::vector<std::int32_t> zero_point(1);
  const auto plan =
      DynamicRangeQuantizePlan::select<float, std::uint8_t>(stream, {.shape = {6},
                                                                     .mode = RangeMode::asymmetric,
                                                                     .scope = Layout::per_tensor,
                                                                     .profile = Profile::onnx});
  ASSERT_TRUE(plan);
  const WorkspaceBuffer workspace(plan->workspace_size());
  ASSERT_TRUE(plan->run(stream, workspace,
                        {.input = x, .output = q, .scales = scale, .zero_points = zero_point}));
  EXPECT_EQ(q, (std::vector<std::uint8_t>{153, 255, 0, 26, 221, 179}));
  EXPECT_EQ(scale[0], 5.0F / 255);
  EXPECT_EQ(zero_point[0], 153);
}

}  // namespace
}  // namespace octavo
