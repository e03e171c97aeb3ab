// Observers: the same state in any order, split and thread count; and parameters that make sense.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "numerics/log2.hpp"
#include "ops/dynamic_range/testing.hpp"
#include "ops/elementwise/testing_checks.hpp"
#include "ops/observer/testing.hpp"

namespace octavo::testing {
namespace {

/// Batches of [rows, 24]: a heavy-tailed mixture, with anything at all now and then.
std::vector<Bytes> batches_of(DType type) {
  Random random(42);
  std::vector<Bytes> batches;
  for (const std::int64_t rows : {1, 40, 7, 9000, 100}) {
    Bytes batch(static_cast<std::size_t>(bytes_for(type, rows * 24)));
    for (std::int64_t i = 0; i < rows * 24; ++i)
      store_bits(batch.data(), bits(type) / 8, i,
                 dynamic_bits(type, random.below(500) == 0 ? 7 : 9 + random.below(3), random));
    batches.push_back(std::move(batch));
  }
  return batches;
}
TensorRef tensor_of(const Bytes& batch, DType type) {
  return {
      batch.data(), type, {static_cast<std::int64_t>(batch.size()) / (bits(type) / 8) / 24, 24}};
}

template <class Plan>
void expect_same_in_any_order(const ObserverDescriptor& d) {
  const std::vector<Bytes> batches = batches_of(d.input);
  [[maybe_unused]] const ManyThreads many;
  const Watch<Plan> reference(Stream::cpu({.threads = 1, .cap = Target::scalar}), d);
  auto want = reference.plan.make_state();
  for (const Bytes& b : batches)
    reference.see(Stream::cpu({.threads = 1, .cap = Target::scalar}), tensor_of(b, d.input), want);

  for (const Target target : tested_places())
    for (const Stream& stream : Streams(target)) {
      const int threads = stream.threads();
      const Watch<Plan> watch(stream, d);
      auto backwards = watch.plan.make_state();
      auto odd = watch.plan.make_state();
      auto even = watch.plan.make_state();
      for (std::size_t i = batches.size(); i-- > 0;) {
        watch.see(stream, tensor_of(batches[i], d.input), backwards);
        watch.see(stream, tensor_of(batches[i], d.input), i % 2 == 0 ? even : odd);
      }
      EXPECT_EQ(backwards, want) << name(target) << ' ' << threads;
      auto merged = odd;
      ASSERT_TRUE(merged.merge(even));
      EXPECT_EQ(merged, want) << name(target) << ' ' << threads;
      ASSERT_TRUE(even.merge(odd));
      EXPECT_EQ(even, want) << name(target) << ' ' << threads;
    }
}

TEST(Observers, AreTheSameInAnyOrder) {
  for (const DType type : all_floats)
    for (const Layout scope : {Layout::per_tensor, Layout::per_channel}) {
      const ObserverDescriptor d{
          .input = type, .scope = scope, .axis = 1, .channels = 24, .histogram_bits = 4};
      expect_same_in_any_order<MinMaxObserver>(d);
      expect_same_in_any_order<HistogramObserver>(d);
    }
}

TEST(Observers, CountEveryFiniteValue) {
  for (const Stream& stream : one_of_each()) {
    const std::vector<Bytes> batches = batches_of(DType::f32);
    const Watch<HistogramObserver> watch(
        stream, {.scope = Layout::per_channel, .axis = -1, .channels = 24, .histogram_bits = 3});
    HistogramState state = watch.plan.make_state();
    std::vector<std::int64_t> want(static_cast<std::size_t>(24 * state.bins()));
    std::vector<double> low(24), high(24);
    for (const Bytes& batch : batches) {
      watch.see(stream, tensor_of(batch, DType::f32), state);
      for (std::size_t i = 0; i < batch.size() / 4; ++i) {
        const auto bits =
            static_cast<std::uint32_t>(load_bits(batch.data(), 4, static_cast<std::int64_t>(i)));
        const double x = decode(DType::f32, bits);
        if (!std::isfinite(x)) continue;
        ++want[i % 24 * 4096 + (bits >> 20)];
        low[i % 24] = std::min(low[i % 24], x);
        high[i % 24] = std::max(high[i % 24], x);
      }
    }
    EXPECT_EQ(state.bins(), 4096);
    EXPECT_EQ(state.counts(), want);
    EXPECT_EQ(state.extremes().low(), low);
    EXPECT_EQ(state.extremes().high(), high);
  }
}

// A batch seen through strides, and one in another shape.
TEST(Observers, TakeAnyShapeAndStride) {
  for (const Stream& stream : one_of_each()) {
    const Bytes batch = batches_of(DType::f32)[1];
    const Watch<HistogramObserver> rows(
        stream, {.scope = Layout::per_channel, .axis = 1, .channels = 24, .histogram_bits = 2});
    const Watch<HistogramObserver> columns(
        stream, {.scope = Layout::per_channel, .axis = 0, .channels = 24, .histogram_bits = 2});
    HistogramState a = rows.plan.make_state();
    HistogramState b = columns.plan.make_state();
    HistogramState c = rows.plan.make_state();
    rows.see(stream, TensorRef(batch.data(), DType::f32, {40, 24}), a);
    columns.see(stream, TensorRef(batch.data(), DType::f32, {24, 40}, {1, 24}), b);
    rows.see(stream, TensorRef(batch.data(), DType::f32, {8, 24, 5}, {120, 1, 24}), c);
    EXPECT_EQ(a, b);
    EXPECT_EQ(a, c);
    rows.see(stream, TensorRef(batch.data(), DType::f32, {0, 24}), a);  // nothing
    EXPECT_EQ(a, b);
  }
}

TEST(Observers, MinMaxGivesWhatDynamicRangeFinds) {
  for (const RangeMode mode : all_modes)
    for (const DType type : all_floats) {
      const Kind kind{Op::quantize, Layout::per_channel, type, DType::s8, Profile::torch};
      const DynamicCall call = make_dynamic(problem_of(kind, {50, 24}, 1), mode, 3);
      const DynamicResult want = expected(call);
      for (const Stream& stream : one_of_each()) {
        const ObserverDescriptor d{
            .input = type, .scope = Layout::per_channel, .axis = 1, .channels = 24};
        const Watch<MinMaxObserver> watch(stream, d);
        MinMaxState state = watch.plan.make_state();
        watch.see(stream, TensorRef(call.input.data(), type, {50, 24}), state);
        const auto found = state.parameters({.mode = mode});
        ASSERT_TRUE(found);
        EXPECT_EQ(found->zero_points, want.zero_points);
        const DType compute = compute_type(type);
        for (std::int64_t i = 0; i < 24; ++i)
          EXPECT_EQ(encode(compute, found->scales[static_cast<std::size_t>(i)]),
                    load_bits(want.scales.data(), bits(compute) / 8, i));
      }
    }
}

/// 100000 values of a bell curve (sums of uniform ones), and three far outside.
std::vector<float> bell_with_outliers() {
  Random random(7);
  std::vector<float> x;
  for (int i = 0; i < 100000; ++i) {
    double sum = 0;
    for (int k = 0; k < 12; ++k) sum += static_cast<double>(random.below(1 << 20)) / (1 << 20);
    x.push_back(static_cast<float>(sum - 6));
  }
  x.insert(x.end(), {80, -70, 95});
  return x;
}

double mean_squared_error(const std::vector<float>& x, double scale, std::int32_t zero_point,
                          IntRange range) {
  double sum = 0;
  for (const float v : x) {
    const double q = std::clamp(std::rint(v / scale) + zero_point, static_cast<double>(range.min),
                                static_cast<double>(range.max));
    const double error = v - scale * (q - zero_point);
    sum += error * error;
  }
  return sum / static_cast<double>(x.size());
}

TEST(Calibrate, OutliersAreCutOff) {
  const std::vector<float> x = bell_with_outliers();
  const Stream stream = one_thread();
  const Watch<HistogramObserver> watch(stream, {});
  HistogramState state = watch.plan.make_state();
  watch.see(stream, x, state);
  for (const auto& [mode, output] :
       {std::pair(RangeMode::symmetric, DType::s8), std::pair(RangeMode::asymmetric, DType::u8),
        std::pair(RangeMode::symmetric, DType::s4), std::pair(RangeMode::asymmetric, DType::u4)}) {
    const IntRange range = storage_range(output);
    std::array<double, 4> error{};
    for (const Calibration method : all_methods) {
      const auto found = state.parameters({.method = method, .mode = mode, .output = output});
      ASSERT_TRUE(found);
      error[static_cast<std::size_t>(method)] =
          mean_squared_error(x, found->scales[0], found->zero_points[0], range);
      const double reach = found->scales[0] * (range.max - found->zero_points[0]);
      if (method == Calibration::min_max) {
        EXPECT_GT(reach, 60);
      } else if (method != Calibration::mse) {
        EXPECT_LT(reach, 20) << name(method) << ' ' << name(output);
        EXPECT_GT(reach, 1.5) << name(method) << ' ' << name(output);
      }
    }
    // No scale on a fine grid does much better than the one that was found.
    const auto found =
        state.parameters({.method = Calibration::mse, .mode = mode, .output = output});
    const auto widest = state.parameters({.mode = mode, .output = output});
    double least = error[0];
    for (int k = 1; k <= 1000; ++k) {
      const double scale = widest->scales[0] * k / 1000;
      least = std::min(least, mean_squared_error(x, scale, widest->zero_points[0], range));
    }
    EXPECT_LE(error[2], least * 1.05) << name(output);
    EXPECT_LE(error[2], error[0]);
  }
}

TEST(Calibrate, PercentilesOfKnownValues) {
  std::vector<float> x(1000);
  std::iota(x.begin(), x.end(), 1.0F);
  const Stream stream = one_thread();
  const Watch<HistogramObserver> watch(stream, {});
  HistogramState state = watch.plan.make_state();
  watch.see(stream, x, state);
  const auto high = [&](double percentile) {
    const auto found =
        state.parameters({.method = Calibration::percentile, .percentile = percentile});
    return found->scales[0] * 127;
  };
  EXPECT_FLOAT_EQ(static_cast<float>(high(100)), 1000);
  for (const double p : {1.0, 10.0, 50.0, 99.0}) {
    EXPECT_GE(high(p), p * 10);
    EXPECT_LE(high(p), p * 10 * (1 + 1.0 / 64));
  }
}

// All slices, methods and modes give these bits on every machine.
TEST(Calibrate, IsTheSameEverywhere) {
  for (const Stream& stream : one_of_each()) {
    Digest digest;
    for (const DType type : all_floats) {
      const Watch<HistogramObserver> watch(
          stream, {.input = type, .scope = Layout::per_channel, .axis = 1, .channels = 24});
      HistogramState state = watch.plan.make_state();
      for (const Bytes& batch : batches_of(type)) watch.see(stream, tensor_of(batch, type), state);
      for (const Calibration method : all_methods)
        for (const RangeMode mode : all_modes) {
          const auto found = state.parameters({.method = method, .mode = mode, .percentile = 99.5});
          ASSERT_TRUE(found);
          digest.add(found->scales.data(), found->scales.size() * sizeof(double));
          digest.add(found->zero_points.data(), found->zero_points.size() * 4);
        }
    }
    EXPECT_EQ(digest.value(), 0x4f285172fef443b2ULL) << name(stream.backend());
  }
}

TEST(Calibrate, NothingSeenIsAllZero) {
  const Watch<HistogramObserver> watch(one_thread(), {});
  const HistogramState state = watch.plan.make_state();
  for (const Calibration method : all_methods) {
    EXPECT_EQ(*state.parameters({.method = method}), (CalibratedParameters{{1.0}, {0}}));
    EXPECT_EQ(
        *state.parameters({.method = method, .mode = RangeMode::asymmetric, .output = DType::u8}),
        (CalibratedParameters{{1.0}, {0}}));
  }
}

TEST(Log2, IsAccurate) {
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::ldexp(1.0 + static_cast<double>(random.below(1ULL << 52)) * 0x1p-52,
                                static_cast<int>(random.below(200)) - 100);
    ASSERT_NEAR(numerics::log2(x), std::log2(x), 1e-13) << x;
  }
  for (int e = -1000; e < 1000; ++e) EXPECT_EQ(numerics::log2(std::ldexp(1.0, e)), e);
}

// What the driver refuses is an error of the run: after it nothing is queued, and unless it came
// while counts were brought back, the state is as it was.
TEST(Observers, FailuresOfTheDriverAreErrors) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  const Stream stream = *cuda_stream();
  const auto* control = standin::Control::find();
  if (control == nullptr) GTEST_SKIP() << "only the stand-in driver can be made to fail";
  const Bytes batch = batches_of(DType::f32)[1];
  const Watch<HistogramObserver> watch(
      stream, {.scope = Layout::per_channel, .axis = 1, .channels = 24, .histogram_bits = 3});
  HistogramState state = watch.plan.make_state();
  watch.see(stream, tensor_of(batch, DType::f32), state);
  const HistogramState before = state;
  for (const char* function : {"cuMemsetD8Async", "cuLaunchKernel", "cuMemcpyHtoDAsync",
                               "cuMemcpyDtoHAsync", "cuStreamSynchronize"}) {
    Lent lent(stream);
    const TensorRef input = lent.lend(tensor_of(batch, DType::f32));
    constexpr int out_of_memory = 2;
    control->inject(function, 1, out_of_memory);
    const Status s = watch.plan.run(stream, watch.workspace, {.input = input, .state = &state});
    control->clear_injections();
    ASSERT_FALSE(s) << function;
    EXPECT_EQ(s.error().code(), ErrorCode::backend) << s.error().message();
    const std::string_view name(function);
    if (name != "cuStreamSynchronize") {
      EXPECT_TRUE(state == before) << function;
    }
    state = before;
  }
  watch.see(stream, tensor_of(batch, DType::f32), state);
  HistogramState twice = before;
  ASSERT_TRUE(twice.merge(before));
  EXPECT_TRUE(state == twice);
}

// ---- refusals ----------------------------------------------------------------------------------

// What is queued when a batch is seen, the writing of it say, is waited for; what that refuses is
// said later.
TEST(Observers, WaitForWhatIsQueuedAndLeaveRefusals) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  const Stream stream = *cuda_stream();
  const std::vector<std::int8_t> q{1, -2, 3, 4};
  const std::vector<float> scales{0.5F, 2.0F};
  const std::vector<float> bad{0.5F, INFINITY};
  std::vector<float> x(4);
  Lent lent(stream);
  float* batch = lent.lend(x);
  const auto* from = lent.lend(q);
  const auto dequantize = DequantizePerTokenPlan::select(
      stream, {.tokens = 2, .hidden = 2, .input = DType::s8, .output = DType::f32});
  ASSERT_TRUE(dequantize) << dequantize.error().message();
  const auto queue = [&](const std::vector<float>& s) {
    ASSERT_TRUE(dequantize->run(
        stream, {},
        {.input = {from, {2, 2}}, .scales = {lent.lend(s), {2}}, .output = {batch, {2, 2}}}));
  };
  const auto watch = MinMaxObserver::select(stream, {});
  ASSERT_TRUE(watch);
  const WorkspaceBuffer workspace(stream, watch->workspace_size());
  MinMaxState state = watch->make_state();
  queue(scales);
  queue(bad);
  ASSERT_TRUE(watch->run(stream, workspace, {.input = TensorRef(batch, {2, 2}), .state = &state}));
  EXPECT_EQ(state.low(), std::vector<double>{-1});
  EXPECT_EQ(state.high(), std::vector<double>{8});
  const Status said = stream.synchronize();
  ASSERT_FALSE(said);
  EXPECT_EQ(said.error().argument(), "scales");
  EXPECT_TRUE(stream.synchronize());
}

TEST(ObserverRefusals, NameTheArgument) {
  constexpr auto unsupported = ErrorCode::unsupported;
  constexpr auto invalid = ErrorCode::invalid_problem;
  const Stream stream = one_thread();
  const auto select = [&](const ObserverDescriptor& d) {
    return HistogramObserver::select(stream, d);
  };
  expect_error(select({.input = DType::s8}), unsupported, "input");
  expect_error(select({.scope = Layout::per_token}), unsupported, "scope");
  expect_error(select({.scope = Layout::per_channel, .channels = -1}), invalid, "channels");
  expect_error(select({.scope = Layout::per_channel, .channels = INT64_MAX / 8}), invalid,
               "channels");
  expect_error(select({.histogram_bits = 8}), invalid, "histogram_bits");
  expect_error(HistogramObserver::select(stream, {}, {.max_workspace_bytes = 1}),
               ErrorCode::workspace_too_small, "max_workspace_bytes");

  const auto observer = select({.scope = Layout::per_channel, .axis = 1, .channels = 3});
  ASSERT_TRUE(observer);
  const WorkspaceBuffer workspace(observer->workspace_size());
  HistogramState state = observer->make_state();
  const HistogramState before = state;
  std::vector<float> x(12, 1.0F);
  const auto run = [&](const TensorRef& input, HistogramState* to) {
    return observer->run(stream, workspace, {.input = input, .state = to});
  };
  expect_error(run({x, {4, 3}}, nullptr), invalid, "state");
  expect_error(run({x, {3, 4}}, &state), invalid, "input");
  expect_error(run({x, {12}}, &state), invalid, "input");
  expect_error(run(TensorRef(x.data(), DType::f64, {4, 3}), &state), unsupported, "input");
  expect_error(run(TensorRef(nullptr, DType::f32, {4, 3}), &state), invalid, "input");
  HistogramState other = select({})->make_state();
  expect_error(run({x, {4, 3}}, &other), invalid, "state");
  expect_error(observer->run(stream, {}, {.input = {x, {4, 3}}, .state = &state}),
               ErrorCode::workspace_too_small, "workspace");
  expect_error(state.merge(other), invalid, "other");
  EXPECT_EQ(state, before);

  const auto parameters = [&](const CalibrationOptions& o) { return state.parameters(o); };
  expect_error(parameters({.mode = RangeMode::symmetric, .output = DType::u8}), unsupported,
               "output");
  expect_error(parameters({.output = DType::f32}), unsupported, "output");
  expect_error(parameters({.q_min = -200}), invalid, "q_min");
  expect_error(parameters({.q_min = 200}), invalid, "q_min");
  expect_error(parameters({.q_max = 128}), invalid, "q_max");
  expect_error(parameters({.q_min = 5, .q_max = 4}), invalid, "q_max");
  expect_error(parameters({.method = static_cast<Calibration>(9)}), unsupported, "method");
  for (const double percentile : {0.0, -1.0, 100.5, std::nan("")})
    expect_error(parameters({.method = Calibration::percentile, .percentile = percentile}), invalid,
                 "percentile");
  expect_error(state.extremes().parameters({.method = Calibration::mse}), unsupported, "method");
}

}  // namespace
}  // namespace octavo::testing
