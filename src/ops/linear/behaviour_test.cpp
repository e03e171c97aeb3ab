// How linear plans may be used: from many threads at once, with fewer rows than they were made for,
// on another stream, in any floating-point environment, and for the layers that peers got wrong.
#include <gtest/gtest.h>

#include <thread>

#include "ops/elementwise/testing_checks.hpp"
#include "ops/linear/testing_guard.hpp"
#include "testing/environment.hpp"

namespace octavo::testing {
namespace {

/// A plan of any kind with its data, the answer, and packed weights if it has them.
class Layer {
 public:
  Layer(const Stream& stream, const LinearCase& c) : data(make_linear(c)), answer(expected(data)) {
    if (c.packed) packed_ = *octavo::pack(stream, data.weight.ref());
    switch (c.kind) {
      case LinearKind::matmul:
        matmul_ = *QuantizedMatmulPlan::select(stream, matmul_descriptor(c));
        break;
      case LinearKind::dynamic:
        dynamic_ = *QuantizedLinearPlan::select(stream, dynamic_descriptor(c));
        break;
      default:
        smoothquant_ = *SmoothQuantLinearPlan::select(stream, smoothquant_descriptor(data));
        break;
    }
  }

  [[nodiscard]] std::size_t workspace_size() const {
    if (matmul_) return matmul_->workspace_size();
    return dynamic_ ? dynamic_->workspace_size() : smoothquant_->workspace_size();
  }
  /// The first `rows` rows, into `out`.
  [[nodiscard]] bool run(const Stream& stream, Workspace workspace, Matrix& out,
                         std::int64_t rows) const {
    const auto with = [&]<class P>(const P& plan) {
      auto args = linear_args<typename P::Args>(data, packed_, out);
      args.input.shape[0] = args.output.shape[0] = rows;
      const auto shorten = [&](TensorRef& t) {
        if (t.data != nullptr && t.shape[0] == data.c.m) t.shape[0] = rows;
      };
      shorten(args.residual);
      if constexpr (requires { args.activation_scales; }) {
        shorten(args.activation_scales);
        shorten(args.activation_zero_points);
      }
      const Status status = plan.run(stream, workspace, args);
      EXPECT_TRUE(status) << status.error().message();
      return status.has_value();
    };
    if (matmul_) return with(*matmul_);
    return dynamic_ ? with(*dynamic_) : with(*smoothquant_);
  }
  /// Whether all rows are the oracle's.
  [[nodiscard]] bool is_right(const Stream& stream, Workspace workspace) const {
    Matrix out = blank_output(data.c);
    return run(stream, workspace, out, data.c.m) && out.bytes == answer.bytes;
  }

  LinearData data;
  Matrix answer;

 private:
  PackedWeight packed_;
  std::optional<QuantizedMatmulPlan> matmul_;
  std::optional<QuantizedLinearPlan> dynamic_;
  std::optional<SmoothQuantLinearPlan> smoothquant_;
};

/// Layers of all kinds and types, of these sizes.
template <class F>
void for_each_layer(std::int64_t m, std::int64_t n, std::int64_t k, F&& f) {
  for (std::uint64_t turn = 0; turn < (slow_machine() ? 7 : 28); ++turn)
    f(linear_case_in_turn(turn, m, n, k));
}

TEST(LinearThreads, OnePlanRunsFromManyAtOnce) {
  [[maybe_unused]] const ManyThreads many;
  constexpr int callers = 8;
  for (const Target target : linear_targets())
    for_each_layer(20, 150, 700, [&](const LinearCase& c) {
      const Stream stream = Stream::cpu({.threads = 3, .cap = target});
      const Layer layer(stream, c);
      std::vector<int> wrong(callers);
      std::vector<std::thread> threads;
      threads.reserve(callers);
      for (int& failures : wrong)
        threads.emplace_back([&] {
          const WorkspaceBuffer workspace(layer.workspace_size());
          for (int i = 0; i < 3; ++i)
            if (!layer.is_right(stream, workspace)) ++failures;
        });
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(wrong, std::vector<int>(callers)) << name(target) << " " << c.text();
    });
}

TEST(LinearThreads, AnyNumberGivesTheSameBits) {
  [[maybe_unused]] const ManyThreads many;
  for (const Target target : linear_targets()) {
    const Streams streams(target);
    // Several million products each, so that threads share them: by panels of columns, by both, and
    // one row.
    for (const auto& [m, n, k] :
         {std::array<std::int64_t, 3>{67, 700, 180}, {700, 40, 260}, {1, 3000, 2100}}) {
      if (slow_machine() && target == Target::scalar) continue;
      for_each_layer(m, n, k, [&](const LinearCase& c) {
        if (c.seed % 4 != 0) return;
        for (const Stream& stream : streams) {
          const Layer layer(stream, c);
          const WorkspaceBuffer workspace(layer.workspace_size());
          ASSERT_TRUE(layer.is_right(stream, workspace))
              << name(target) << ", " << stream.threads() << " threads: " << c.text();
        }
      });
    }
  }
}

// The workspace is for as many threads as the plan was made with; a stream with more must not use
// more of it.
TEST(LinearThreads, AnotherStreamThanThePlans) {
  [[maybe_unused]] const ManyThreads many;
  for (const Target target : linear_targets())
    for (const int made_with : {1, 2, 16})
      for (const int run_with : {16, 5, 1})
        for_each_layer(33, 700, 130, [&](const LinearCase& c) {
          if (c.seed % 7 != static_cast<std::uint64_t>(made_with % 7)) return;
          const Layer layer(Stream::cpu({.threads = made_with, .cap = target}), c);
          const std::size_t needed = layer.workspace_size();
          const GuardedMemory memory(needed);
          const Workspace lent{memory.back(needed), needed};
          EXPECT_TRUE(layer.is_right(Stream::cpu({.threads = run_with}), lent))
              << name(target) << " " << made_with << " " << run_with << " " << c.text();
        });
}

TEST(LinearRows, FewerThanThePlanWasMadeFor) {
  for (const Target target : linear_targets()) {
    const Stream stream = Stream::cpu({.threads = 2, .cap = target});
    for_each_layer(53, 67, 75, [&](const LinearCase& c) {
      const Layer layer(stream, c);
      const WorkspaceBuffer workspace(layer.workspace_size());
      for (const std::int64_t rows : {0, 1, 2, 4, 15, 16, 17, 47, 48, 49, 52, 53}) {
        Matrix out = blank_output(c);
        ASSERT_TRUE(layer.run(stream, workspace, out, rows));
        Matrix want = blank_output(c);
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t i = 0; i < c.n; ++i) want.set(r, i, layer.answer.get(r, i));
        ASSERT_TRUE(out.bytes == want.bytes) << name(target) << " " << rows << " " << c.text();
      }
    });
  }
}

TEST(LinearEnvironment, NeitherMattersNorChanges) {
  [[maybe_unused]] const ManyThreads many;
  const Environment usual = environment();
  for (const int threads : {1, 5}) {
    const Stream stream = Stream::cpu({.threads = threads});
    for_each_layer(33, 700, 160, [&](const LinearCase& c) {
      const Layer layer(stream, c);
      const WorkspaceBuffer workspace(layer.workspace_size());
      const std::vector<Environment> all = environments();
      for (std::size_t i = c.seed % 5; i < all.size(); i += 5) {
        Matrix out = blank_output(c);
        set(all[i]);
        const bool ran = layer.run(stream, workspace, out, c.m);
        const Environment after = environment();
        set(usual);
        ASSERT_TRUE(ran);
        ASSERT_EQ(after.control, all[i].control) << c.text();
        ASSERT_EQ(after.status, all[i].status) << c.text();
        ASSERT_TRUE(out.bytes == layer.answer.bytes) << c.text();
      }
    });
  }
}

// With k = 0 nothing is read of the input and the weights: their pointers may be null, whatever the
// strides are, and the output is what the epilogue makes of sums of 0.
TEST(LinearRows, NullPointersToNothing) {
  const std::vector<float> scales{1};
  const std::vector<float> bias{1.5F, -2};
  for (const Target target : linear_targets())
    for (const DType activation : {DType::s8, DType::u8})
      for (const DType weight : {DType::s8, DType::u8})
        for (const bool packed : {false, true}) {
          const Stream stream = Stream::cpu({.threads = 1, .cap = target});
          const TensorRef rows(nullptr, weight, {2, 0}, {3, 1});
          const auto held = octavo::pack(stream, rows);
          ASSERT_TRUE(held);
          const WeightRef weights = packed ? WeightRef(*held) : WeightRef(rows);
          const std::vector<float> want{1.5F, -2, 1.5F, -2, 1.5F, -2};
          std::vector<float> y(6);
          const auto matmul = QuantizedMatmulPlan::select(stream, {.m = 3,
                                                                   .n = 2,
                                                                   .activation = activation,
                                                                   .weight = weight,
                                                                   .packed_weight = packed,
                                                                   .epilogue = Epilogue::bias});
          ASSERT_TRUE(matmul);
          const WorkspaceBuffer workspace(matmul->workspace_size());
          ASSERT_TRUE(matmul->run(stream, workspace,
                                  {.input = TensorRef(nullptr, activation, {3, 0}, {7, 1}),
                                   .activation_scales = scales,
                                   .weight = weights,
                                   .weight_scales = scales,
                                   .bias = bias,
                                   .output = TensorMut(y, {3, 2})}));
          EXPECT_EQ(y, want) << name(target);
          const auto linear = QuantizedLinearPlan::select(stream, {.m = 3,
                                                                   .n = 2,
                                                                   .weight = weight,
                                                                   .mode = RangeMode::asymmetric,
                                                                   .packed_weight = packed,
                                                                   .epilogue = Epilogue::bias});
          ASSERT_TRUE(linear);
          const WorkspaceBuffer more(linear->workspace_size());
          ASSERT_TRUE(linear->run(stream, more,
                                  {.input = TensorRef(nullptr, DType::f32, {3, 0}, {7, 1}),
                                   .weight = weights,
                                   .weight_scales = scales,
                                   .bias = bias,
                                   .output = TensorMut(y, {3, 2})}));
          EXPECT_EQ(y, want) << name(target);
        }
}

// ---- what users of the peers complained about --------------------------------------------------

/// acc of [1, k] by [1, k], all values the same, on every target.
void expect_sum(DType activation, int a, DType weight, int w, std::int64_t k) {
  const std::vector<std::uint8_t> as(static_cast<std::size_t>(k), static_cast<std::uint8_t>(a));
  const std::vector<std::uint8_t> ws(static_cast<std::size_t>(k), static_cast<std::uint8_t>(w));
  for (const Target target : linear_targets())
    for (const bool packed : {false, true}) {
      const Stream stream = Stream::cpu({.threads = 1, .cap = target});
      const auto plan = QuantizedMatmulPlan::select(stream, {.m = 1,
                                                             .n = 1,
                                                             .k = k,
                                                             .activation = activation,
                                                             .weight = weight,
                                                             .output = DType::s32,
                                                             .packed_weight = packed});
      ASSERT_TRUE(plan) << plan.error().message();
      const TensorRef rows(ws.data(), weight, {1, k});
      const PackedWeight held = *octavo::pack(stream, rows);
      std::vector<std::int32_t> y(1);
      const WorkspaceBuffer workspace(plan->workspace_size());
      ASSERT_TRUE(plan->run(stream, workspace,
                            {.input = TensorRef(as.data(), activation, {1, k}),
                             .weight = packed ? WeightRef(held) : WeightRef(rows),
                             .output = TensorMut(y, {1, 1})}));
      EXPECT_EQ(y[0], std::int64_t{a} * w * k) << name(target) << " k=" << k;
    }
}

TEST(LinearPeers, ProductsNeverSaturate) {
  for (const std::int64_t k : {2, 3, 4, 64, 1000, 6656}) {
    expect_sum(DType::u8, 255, DType::s8, 127, k);
    expect_sum(DType::u8, 255, DType::s8, -128, k);
    expect_sum(DType::s8, -128, DType::s8, -128, k);
    expect_sum(DType::s8, -128, DType::s8, 127, k);
    expect_sum(DType::s8, 127, DType::u8, 255, k);
    expect_sum(DType::u8, 255, DType::u8, 255, k);
  }
}

// Sums beyond 2^24 are exact: they never pass through f32.
TEST(LinearPeers, SumsNeverPassThroughF32) {
  for (const std::int64_t k : {6655, 6656, 6657, 33025}) {
    expect_sum(DType::s8, 127, DType::s8, 127, k);
    expect_sum(DType::u8, 253, DType::s8, 127, k);
    expect_sum(DType::u8, 251, DType::u8, 253, k);
  }
  expect_sum(DType::s8, -128, DType::s8, -128, 131071);
  expect_sum(DType::u8, 255, DType::s8, -128, 65793);
  expect_sum(DType::u8, 255, DType::u8, 255, 33025);
}

TEST(LinearPeers, NoBatchIsTooSmall) {
  for (const Target target : linear_targets()) {
    const Stream stream = Stream::cpu({.threads = 1, .cap = target});
    for (std::int64_t m = 1; m <= 17; ++m)
      for_each_layer(m, 24, 40, [&](const LinearCase& c) {
        const Layer layer(stream, c);
        const WorkspaceBuffer workspace(layer.workspace_size());
        ASSERT_TRUE(layer.is_right(stream, workspace)) << name(target) << " " << c.text();
      });
  }
}

// A row of zeros, and one without a finite value, have a scale, and give what the formula says.
TEST(LinearPeers, RowsOfZerosAndNaN) {
  const Stream stream = Stream::cpu({.threads = 1});
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x{0, 0, 0, NAN, inf, -inf, 1, 0, -1};
  const std::vector<std::int8_t> w{1, 2, 3};
  const std::vector<float> one{1};
  const auto plan = QuantizedLinearPlan::select(stream, {.m = 3, .n = 1, .k = 3});
  ASSERT_TRUE(plan);
  std::vector<float> y(3, 77);
  const WorkspaceBuffer workspace(plan->workspace_size());
  ASSERT_TRUE(plan->run(stream, workspace,
                        {.input = TensorRef(x, {3, 3}),
                         .weight = TensorRef(w, {1, 3}),
                         .weight_scales = one,
                         .output = TensorMut(y, {3, 1})}));
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 0 * 1 + 127 * 2 - 128 * 3);  // scale 1, infinities saturate, NaN is 0
  EXPECT_EQ(y[2], -254 * (1.0F / 127));
}

}  // namespace
}  // namespace octavo::testing
