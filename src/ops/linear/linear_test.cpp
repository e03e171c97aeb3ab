// The linear plans against the oracle: all shapes, types, epilogues, targets and thread counts.
#include <gtest/gtest.h>

#include "ops/linear/testing.hpp"
#include "ops/linear/testing_targets.hpp"
#include "testing/environment.hpp"

namespace octavo::testing {
namespace {

/// Targets with a dot product of their own.
class LinearTarget : public LinearPlaceTest {
 protected:
  void SetUp() override {
    LinearPlaceTest::SetUp();
    if (!IsSkipped()) skip_without_dot_product();
  }
  void TearDown() override {
    LinearPlaceTest::TearDown();
    // What ran was what was asked for.
    if (!IsSkipped() && !HasFailure() && !on_device()) {
      EXPECT_EQ(trace_.load(), 1U << static_cast<unsigned>(target()));
    }
  }
};

OCTAVO_ON_LINEAR_PLACES(LinearTarget);

#define EXPECT_ORACLE(stream, data, answer)                  \
  do {                                                       \
    const std::string wrong = compare(stream, data, answer); \
    ASSERT_TRUE(wrong.empty()) << wrong;                     \
  } while (false)

/// What a small sweep over shapes does not leave fixed: types, zero points, packing, padding.
LinearCase varied(LinearCase c, std::uint64_t i) {
  c.activation = i % 2 != 0 ? DType::u8 : DType::s8;
  c.weight = i % 3 == 2 ? DType::u8 : DType::s8;
  c.activation_zero_points = i % 5 < 2;
  c.weight_zero_points = i % 7 < 2;
  c.packed = i % 4 < 2;
  c.one_activation_scale = i % 9 == 0;
  c.one_weight_scale = i % 8 == 0;
  c.padding = static_cast<std::int64_t>(i % 11 == 0 ? 3 : 0);
  c.seed = i;
  return c;
}

TEST_P(LinearTarget, SumsOfAllSmallShapes) {
  const std::int64_t most = on_device() ? 9 : slow() ? 17 : 32;
  const Stream s = stream();
  std::uint64_t i = 0;
  LinearCase c;
  c.output = DType::s32;
  for (c.m = 1; c.m <= most; ++c.m)
    for (c.n = 1; c.n <= most; ++c.n)
      for (c.k = 1; c.k <= most; ++c.k) {
        const LinearData d = make_linear(varied(c, ++i));
        EXPECT_ORACLE(s, d, expected(d));
      }
}

TEST_P(LinearTarget, SumsOfOddAndLargeShapes) {
  const Stream s = stream(2);
  std::uint64_t i = 0;
  LinearCase c;
  c.output = DType::s32;
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 333, 1001},
                                {7, 333, 1001},
                                {48, 64, 64},
                                {49, 65, 63},
                                {97, 129, 257},
                                {16, 16, 4096},
                                {1, 1, 9999},
                                {200, 3, 100},
                                {3, 700, 5}}) {
    if (slow_machine() && m * n * k > 100'000) continue;
    c.m = m;
    c.n = n;
    c.k = k;
    for (int again = 0; again < 6; ++again) {
      const LinearData d = make_linear(varied(c, ++i));
      EXPECT_ORACLE(s, d, expected(d));
    }
  }
}

/// Every combination of output type, epilogue, profile and kind, over a few shapes in turn.
template <class F>
void for_each_kind(F&& f) {
  std::uint64_t i = 0;
  constexpr std::array<std::array<std::int64_t, 3>, 6> shapes{
      {{1, 1, 1}, {3, 17, 5}, {5, 70, 33}, {50, 33, 16}, {2, 130, 64}, {7, 31, 129}}};
  for (const DType output : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::s8, DType::u8})
    for (int epilogue = 0; epilogue < 8; ++epilogue)
      for (const Profile profile : all_profiles)
        for (const DType activation :
             {DType::s8, DType::u8, DType::f32, DType::f64, DType::f16, DType::bf16})
          for (int variant = 0; variant < 2; ++variant) {
            ++i;
            LinearCase c = varied({}, i);
            const auto& shape = shapes[i % shapes.size()];
            c.m = shape[0];
            c.n = shape[1];
            c.k = shape[2];
            c.output = output;
            c.epilogue = static_cast<Epilogue>(epilogue);
            c.profile = profile;
            c.activation = activation;
            c.parameter = all_floats[i / 2 % all_floats.size()];
            if (is_float(activation)) {
              c.kind = LinearKind::dynamic;
              c.activation_zero_points = false;
              c.mode = variant == 0 ? RangeMode::symmetric : RangeMode::asymmetric;
              if (variant == 1 && i % 3 == 0) c.quantized = DType::s8;
            } else {
              c.kind = variant == 0 ? LinearKind::matmul : LinearKind::smoothquant;
            }
            f(c);
          }
}

TEST_P(LinearTarget, EveryTypeEpilogueAndProfile) {
  const Stream s = stream();
  for_each_kind([&](const LinearCase& c) {
    const LinearData d = make_linear(c);
    EXPECT_ORACLE(s, d, expected(d));
  });
}

TEST_P(LinearTarget, AnyNumberOfThreads) {
  LinearCase c;
  c.kind = LinearKind::dynamic;
  c.activation = DType::f32;
  c.epilogue = Epilogue::bias | Epilogue::relu;
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{33, 500, 300}, {700, 20, 300}, {1, 2000, 2100}}) {
    if (slow_machine() && m * n * k > 5'000'000) continue;
    c.m = m;
    c.n = n;
    c.k = k;
    for (const bool packed : {false, true}) {
      c.packed = packed;
      const LinearData d = make_linear(c);
      const Matrix answer = expected(d);
      for (const int threads : all_thread_counts) EXPECT_ORACLE(stream(threads), d, answer);
    }
  }
}

TEST_P(LinearTarget, ExtremeValuesAtTheLargestK) {
  const Stream s = stream(2);
  LinearCase c;
  c.m = 3;
  c.n = 18;
  c.extreme = true;
  // The last k whose sums fit 32 bits, and the first beyond; raw sums exist up to the former.
  for (const bool za : {false, true})
    for (const bool zw : {false, true})
      for (const int beyond : {0, 1, 40000}) {
        c.activation_zero_points = za;
        c.weight_zero_points = zw;
        c.k = (za && zw ? 33025 : za || zw ? 65793 : 131071) + beyond;
        if (slow_machine() && c.k > 66000) continue;
        c.packed = beyond != 0;
        for (const DType output : {DType::s32, DType::f32, DType::f64}) {
          if (output == DType::s32 && beyond != 0) continue;
          c.output = output;
          c.epilogue = output == DType::f32 ? Epilogue::bias : Epilogue::none;
          ++c.seed;
          const LinearData d = make_linear(c);
          EXPECT_ORACLE(s, d, expected(d));
        }
      }
}

TEST_P(LinearTarget, WideSumsInEveryOutputType) {
  const Stream s = stream(2);
  for (const DType output : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::s8, DType::u8})
    for (const DType activation : {DType::s8, DType::u8, DType::f32}) {
      if (slow_machine() && output != DType::bf16 && activation != DType::f32) continue;
      LinearCase c;
      c.m = 2;
      c.n = 5;
      c.k = 131200;
      c.activation = activation;
      c.kind = is_float(activation) ? LinearKind::dynamic : LinearKind::matmul;
      c.weight = DType::u8;
      c.weight_zero_points = true;
      c.output = output;
      c.epilogue = static_cast<Epilogue>(7);
      const LinearData d = make_linear(c);
      EXPECT_ORACLE(s, d, expected(d));
    }
  // More rows than a block of 64-bit sums has.
  LinearCase c;
  c.m = 20;
  c.n = 3;
  c.k = 131200;
  c.weight = c.activation = DType::u8;
  c.output = DType::f32;
  const LinearData d = make_linear(c);
  EXPECT_ORACLE(s, d, expected(d));
}

TEST_P(LinearTarget, EmptySizes) {
  const Stream s = stream(2);
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{0, 5, 7}, {5, 0, 7}, {5, 7, 0}, {0, 0, 0}, {70, 70, 0}})
    for (const bool packed : {false, true})
      for (const DType activation : {DType::s8, DType::f32}) {
        LinearCase c;
        c.m = m;
        c.n = n;
        c.k = k;
        c.packed = packed;
        c.activation = activation;
        c.kind = is_float(activation) ? LinearKind::dynamic : LinearKind::matmul;
        c.weight_zero_points = true;
        c.epilogue = Epilogue::bias;
        const LinearData d = make_linear(c);
        EXPECT_ORACLE(s, d, expected(d));
      }
  // (Nothing of a size 0 runs a kernel.)
  LinearCase one;
  const LinearData d = make_linear(one);
  EXPECT_ORACLE(s, d, expected(d));
}

// A row's result does not depend on the batch it is in, nor on the plan's largest m.
TEST_P(LinearTarget, RowsOfABatchEqualThoseAlone) {
  const Stream s = stream(2);
  LinearCase c;
  c.kind = LinearKind::dynamic;
  c.activation = DType::f32;
  c.m = slow() ? 60 : 512;
  c.n = 75;
  c.k = 200;
  c.packed = true;
  const LinearData d = make_linear(c);
  Matrix all;
  ASSERT_EQ(run(s, d, all), "");
  const auto plan = QuantizedLinearPlan::select(s, dynamic_descriptor(c));
  ASSERT_TRUE(plan);
  const auto packed = packed_there(s, d);
  ASSERT_TRUE(packed);
  const auto* rows = reinterpret_cast<const float*>(d.input.bytes.data());
  for (std::int64_t m = 0; m < c.m; ++m) {
    std::vector<float> one(static_cast<std::size_t>(c.n));
    ASSERT_TRUE(
        run_anywhere(s, *plan,
                     {.input = TensorRef(rows + m * c.k, {1, c.k}),
                      .weight = *packed,
                      .weight_scales = TensorRef(d.weight_scales.bytes.data(), DType::f32, {c.n}),
                      .output = TensorMut(one, {1, c.n})}));
    ASSERT_EQ(std::memcmp(one.data(), all.bytes.data() + m * c.n * 4, one.size() * 4), 0) << m;
  }
}

// The caller's rounding mode and flush-to-zero change nothing.
TEST_P(LinearTarget, AnyFloatingPointEnvironment) {
  const Stream s = stream();
  std::uint64_t i = 0;
  for_each_kind([&](const LinearCase& c) {
    if (++i % 17 != 0) return;
    const LinearData d = make_linear(c);
    const Matrix answer = expected(d);
    const Environment usual = environment();
    for (const Environment& e : environments()) {
      set(e);
      std::string wrong = compare(s, d, answer);
      set(usual);
      EXPECT_EQ(wrong, "");
    }
  });
}

}  // namespace
}  // namespace octavo::testing
