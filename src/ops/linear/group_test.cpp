// Linear layers with weights in groups, of four bits, with activations of 16 bits, and of floats,
// against the oracle: all shapes, types, epilogues, targets and thread counts.
#include <gtest/gtest.h>

#include "ops/linear/testing.hpp"
#include "ops/linear/testing_targets.hpp"
#include "testing/environment.hpp"
#include "testing/threads.hpp"

namespace octavo::testing {
namespace {

/// Where a target has no products of its own, those of the next below run.
class GroupTarget : public LinearPlaceTest {};

OCTAVO_ON_LINEAR_PLACES(GroupTarget);

#define EXPECT_ORACLE(stream, data)                                  \
  do {                                                               \
    const LinearData made = data;                                    \
    const std::string wrong = compare(stream, made, expected(made)); \
    ASSERT_TRUE(wrong.empty()) << wrong;                             \
  } while (false)

constexpr std::array weights{DType::s4, DType::u4, DType::s8, DType::u8};
constexpr std::array kinds{LinearKind::dynamic, LinearKind::matmul, LinearKind::smoothquant};

/// What a sweep over shapes does not leave fixed.
LinearCase varied(LinearCase c, std::uint64_t i) {
  c.weight = weights[i % 4];
  c.kind = kinds[i / 4 % 3];
  if (c.kind == LinearKind::dynamic) {
    c.activation = all_floats[i / 12 % all_floats.size()];
    switch (i / 48 % 4) {
      case 0:
        c.mode = RangeMode::asymmetric;
        if (i % 7 == 0) c.quantized = DType::s8;
        break;
      case 1:
        break;
      default:
        c.quantized = DType::s16;
    }
  } else {
    c.activation = i / 12 % 2 != 0 ? DType::u8 : DType::s8;
    c.activation_zero_points = i % 5 < 2;
  }
  c.weight_zero_points = i % 7 < 3;
  c.packed = i % 3 != 0;
  c.one_activation_scale = i % 9 == 0;
  c.one_weight_scale = i % 8 == 0;
  c.padding = static_cast<std::int64_t>(i % 11 == 0 ? 6 : 0);
  c.parameter = all_floats[i / 2 % all_floats.size()];
  c.epilogue = static_cast<Epilogue>(i % 8);
  c.seed = i;
  return c;
}

TEST_P(GroupTarget, AllSmallShapes) {
  const Stream s = stream();
  const std::int64_t most = slow() ? 9 : 20;
  std::uint64_t i = 0;
  LinearCase c;
  for (c.m = 1; c.m <= most; ++c.m)
    for (c.n = 1; c.n <= most; ++c.n)
      for (c.group = 4; c.group <= 16; c.group += 4)
        for (const std::int64_t groups : {1, 2, 3}) {
          c.k = c.group * groups;
          EXPECT_ORACLE(s, make_linear(varied(c, ++i)));
        }
}

TEST_P(GroupTarget, OneScalePerChannel) {
  const Stream s = stream();
  std::uint64_t i = 0;
  LinearCase c;
  for (c.m = 1; c.m <= 15; c.m += 2)
    for (const std::int64_t n : {1, 31, 32, 33, 65})
      for (const std::int64_t k : {1, 2, 3, 5, 31, 64, 67, 130}) {
        c.n = n;
        c.k = k;
        for (const DType weight : weights) {
          LinearCase v = varied(c, ++i);
          v.weight = weight;
          if (v.kind == LinearKind::matmul && i % 3 == 0) {
            v.output = DType::s32;
            v.epilogue = Epilogue::none;
          }
          EXPECT_ORACLE(s, make_linear(v));
        }
      }
}

TEST_P(GroupTarget, EveryTypeEpilogueAndProfile) {
  const Stream s = stream();
  std::uint64_t i = 0;
  constexpr std::array<std::array<std::int64_t, 4>, 5> shapes{
      {{1, 1, 4, 4}, {3, 17, 24, 8}, {5, 70, 64, 32}, {13, 33, 32, 16}, {7, 31, 384, 128}}};
  for (const DType output : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::s8, DType::u8})
    for (int epilogue = 0; epilogue < 8; ++epilogue)
      for (const Profile profile : all_profiles)
        for (const DType weight : weights)
          for (int variant = 0; variant < 6; ++variant) {
            LinearCase c = varied({}, ++i * 12 + static_cast<std::uint64_t>(variant) * 4);
            const auto& shape = shapes[i % shapes.size()];
            c.m = shape[0];
            c.n = shape[1];
            c.k = shape[2];
            c.group = shape[3];
            c.weight = weight;
            c.output = output;
            c.epilogue = static_cast<Epilogue>(epilogue);
            c.profile = profile;
            EXPECT_ORACLE(s, make_linear(c));
          }
}

// Segments: below, at and above each of their numbers, and groups that do not fill them.
TEST_P(GroupTarget, SegmentsOfFloatSums) {
  [[maybe_unused]] const ManyThreads many;
  const Stream s = stream(2);
  std::uint64_t i = 5;
  for (const auto& [k, group] : {std::array<std::int64_t, 2>{1020, 4},
                                 {1024, 32},
                                 {1536, 512},
                                 {2016, 32},
                                 {2048, 1024},
                                 {3072, 96},
                                 {4096, 128},
                                 {4096, 2048},
                                 {4160, 64},
                                 {9216, 3072}}) {
    LinearCase c;
    c.m = 2;
    c.n = 40;
    c.k = k;
    c.group = group;
    for (int again = 0; again < 12; ++again) EXPECT_ORACLE(s, make_linear(varied(c, i += 5)));
  }
}

// All values at the ends of their ranges, where 32 bits are just enough, and just too few.
TEST_P(GroupTarget, SumsAtTheirBounds) {
  const Stream s = stream();
  const auto check = [&](LinearCase c, std::int64_t group) {
    c.extreme = true;
    c.m = 2;
    c.n = 3;
    c.packed = true;
    for (const std::int64_t g : {group / 4 * 4, group / 4 * 4 + 4}) {
      c.group = g;
      c.k = 2 * g;
      for (c.seed = 1; c.seed <= 6; ++c.seed) {
        c.output = c.seed % 3 == 0 ? DType::f64 : DType::f32;
        EXPECT_ORACLE(s, make_linear(c));
      }
    }
  };
  LinearCase c;
  c.kind = LinearKind::dynamic;
  c.activation = DType::f32;
  c.quantized = DType::s16;
  for (const auto& [weight, zero_points, group] :
       {std::tuple<DType, bool, std::int64_t>{DType::u8, false, 258},
        {DType::s8, true, 258},
        {DType::s8, false, 514},
        {DType::u4, true, 4386},
        {DType::s4, false, 8224}}) {
    if (slow_machine() && group > 1000) continue;
    c.weight = weight;
    c.weight_zero_points = zero_points;
    check(c, group);
  }
  if (slow_machine()) return;
  c = {};
  c.activation = DType::u8;
  c.activation_zero_points = true;
  c.weight = DType::u8;
  c.weight_zero_points = true;
  check(c, 33025);
}

TEST_P(GroupTarget, ChannelsWhoseSumsNeedMoreThan32Bits) {
  if (slow_machine()) GTEST_SKIP() << "takes too long here";
  const Stream s = stream();
  for (const DType weight : weights) {
    LinearCase c;
    c.extreme = true;
    c.m = 2;
    c.n = 2;
    c.weight = weight;
    c.weight_zero_points = true;
    c.packed = true;
    // 16-bit activations always do; of 8 bits it takes long rows.
    c.k = 3001;
    c.kind = LinearKind::dynamic;
    c.activation = DType::f32;
    c.quantized = DType::s16;
    EXPECT_ORACLE(s, make_linear(c));
    c.kind = LinearKind::matmul;
    c.quantized = {};
    c.activation = DType::u8;
    c.activation_zero_points = true;
    c.k = is_packed(weight) ? 600'001 : 40'001;
    EXPECT_ORACLE(s, make_linear(c));
    c.kind = LinearKind::dynamic;
    c.activation = DType::f32;
    c.activation_zero_points = false;
    c.quantized = DType::s16;
    c.k = is_packed(weight) ? 1'200'001 : 70'001;
    EXPECT_ORACLE(s, make_linear(c));
  }
}

// Sums that fit 32 bits, of one row: there kernels add up 16 times the half of the columns.
TEST_P(GroupTarget, OneLongRowOfNibbles) {
  if (slow_machine()) GTEST_SKIP() << "takes too long here";
  const Stream s = stream();
  for (const DType weight : {DType::s4, DType::u4})
    for (const std::int64_t group : {0, 81'924}) {
      LinearCase c;
      c.extreme = true;
      c.n = 18;
      c.k = group == 0 ? 150'003 : 2 * group;
      c.group = group;
      c.weight = weight;
      c.packed = true;
      for (c.seed = 1; c.seed <= 6; ++c.seed) EXPECT_ORACLE(s, make_linear(c));
    }
}

TEST_P(GroupTarget, AnyNumberOfThreads) {
  LinearCase c;
  c.m = 37;
  c.n = 300;
  c.k = 512;
  c.group = 32;
  for (std::uint64_t i = 1; i < 60; i += 7) {
    if (slow()) c.n = 70;
    const LinearData d = make_linear(varied(c, i));
    const Matrix answer = expected(d);
    for (const int threads : {1, 2, 3, 8}) {
      const std::string wrong = compare(stream(threads), d, answer);
      ASSERT_TRUE(wrong.empty()) << wrong;
    }
  }
}

// Rows enough for every tile: groups of any length, segments, sums at their bounds and beyond.
TEST_P(GroupTarget, ManyRows) {
  const Stream s = stream();
  std::uint64_t i = 3;
  for (const auto& [m, k, group] : {std::array<std::int64_t, 3>{9, 2080, 32},
                                    {17, 1024, 64},
                                    {31, 4096, 512},
                                    {32, 1248, 96},
                                    {33, 680, 68},
                                    {47, 200, 100},
                                    {64, 64, 32},
                                    {67, 680, 68}}) {
    LinearCase c;
    c.m = m;
    c.n = 33;
    c.k = k;
    c.group = group;
    for (int again = 0; again < (slow() ? 2 : 9); ++again)
      EXPECT_ORACLE(s, make_linear(varied(c, i += 7)));
  }
  LinearCase c;
  c.extreme = true;
  c.packed = true;
  c.m = 35;
  c.n = 3;
  c.kind = LinearKind::dynamic;
  c.activation = DType::f32;
  c.quantized = DType::s16;
  c.weight = DType::s8;
  c.weight_zero_points = true;
  for (const std::int64_t group : {256, 260}) {
    c.group = group;
    c.k = 2 * group;
    EXPECT_ORACLE(s, make_linear(c));
  }
  c.quantized = {};
  c.kind = LinearKind::matmul;
  c.activation = DType::u8;
  c.activation_zero_points = true;
  c.weight = DType::u4;
  c.group = 0;
  if (slow_machine()) return;
  // (32 bits are enough, and too few; k is cut in pieces that are not its divisors.)
  for (const std::int64_t k : {40'001, 600'035}) {
    c.m = k > 100'000 ? 6 : 20;
    c.k = k;
    EXPECT_ORACLE(s, make_linear(c));
  }
}

TEST_P(GroupTarget, Nothing) {
  const Stream s = stream();
  std::uint64_t i = 0;
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{0, 5, 8}, {3, 0, 8}, {3, 5, 0}, {0, 0, 0}})
    for (int again = 0; again < 24; ++again) {
      LinearCase c;
      c.m = m;
      c.n = n;
      c.k = k;
      c.group = again % 2 == 0 ? 4 : 0;
      if (k == 0) c.group = 0;
      EXPECT_ORACLE(s, make_linear(varied(c, ++i)));
    }
}

// ---- Floats -------------------------------------------------------------------------------------

LinearCase floats(LinearCase c, std::uint64_t i) {
  constexpr std::array types{DType::f32, DType::f16, DType::bf16};
  constexpr std::array outputs{DType::f32, DType::f16, DType::bf16, DType::s8, DType::u8};
  c.kind = LinearKind::floats;
  c.activation = types[i % 3];
  c.weight = types[i / 3 % 3];
  c.output = outputs[i % 5];
  c.packed = i % 2 == 0;
  c.epilogue = static_cast<Epilogue>(i % 8);
  c.profile = i % 4 < 2 ? Profile::torch : Profile::onnx;
  c.padding = static_cast<std::int64_t>(i % 11 == 0 ? 3 : 0);
  c.parameter = all_floats[i / 2 % all_floats.size()];
  c.special = i % 13 == 0;
  c.seed = i;
  return c;
}

TEST_P(GroupTarget, FloatsOfAllSmallShapes) {
  const Stream s = stream();
  const std::int64_t most = slow() ? 9 : 16;
  std::uint64_t i = 0;
  LinearCase c;
  for (c.m = 0; c.m <= most; ++c.m)
    for (c.n = 0; c.n <= most; ++c.n)
      for (c.k = 0; c.k <= most; ++c.k) EXPECT_ORACLE(s, make_linear(floats(c, ++i)));
}

TEST_P(GroupTarget, FloatsOfOddAndLargeShapes) {
  const Stream s = stream(2);
  std::uint64_t i = 0;
  LinearCase c;
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 333, 1001},
                                {7, 95, 1024},
                                {50, 64, 64},
                                {97, 129, 257},
                                {1, 65, 2047},
                                {2, 33, 2048},
                                {5, 66, 4097},
                                {3, 3, 8192}}) {
    if (slow_machine() && m * n * k > 100'000) continue;
    c.m = m;
    c.n = n;
    c.k = k;
    for (int again = 0; again < 9; ++again) EXPECT_ORACLE(s, make_linear(floats(c, ++i)));
  }
}

}  // namespace
}  // namespace octavo::testing
