// The same states and parameters through C as through C++.
#include "octavo/observer.hpp"
#include "c/testing.hpp"

namespace octavo::testing {
namespace {

std::vector<float> batch(int seed) {
  std::vector<float> x(std::size_t{24} * 50);
  std::uint32_t state = 12345U + static_cast<std::uint32_t>(seed);
  for (float& value : x) {
    state = state * 1664525U + 1013904223U;
    const auto v = static_cast<float>(static_cast<std::int32_t>(state)) / 1e9F;
    value = v * v * v;
  }
  return x;
}

octavo_observer_desc c_descriptor(octavo_op op, const ObserverDescriptor& cpp) {
  octavo_observer_desc d{};
  d.struct_size = sizeof d;
  d.op = op;
  d.input = static_cast<octavo_dtype>(cpp.input);
  d.scope = static_cast<octavo_layout>(cpp.scope);
  d.channels = cpp.channels;
  if (cpp.axis != -1) d.axis = octavo_some(cpp.axis);
  if (cpp.histogram_bits != 7) d.histogram_bits = octavo_some(cpp.histogram_bits);
  return d;
}

Handle<octavo_observer_state> c_state(const octavo_plan* plan) {
  return made<octavo_observer_state>(
      [&](auto out) { return octavo_observer_make_state(plan, out); });
}

void see(const octavo_stream* cpu, const octavo_plan* plan, octavo_observer_state* state,
         const std::vector<float>& x) {
  CTensors tensors;
  const octavo_observer_args a{sizeof a, tensors(TensorRef(x, {50, 24})), state};
  const CWorkspace workspace(plan);
  EXPECT_EQ(octavo_observer_can_implement(plan, &a), OCTAVO_OK);
  ASSERT_EQ(octavo_observer_run(plan, cpu, workspace.data, workspace.bytes, &a), OCTAVO_OK)
      << octavo_last_error()->message;
}

void expect_same(const octavo_observer_state* state, const MinMaxState& want) {
  const auto slices = static_cast<std::int64_t>(want.low().size());
  ASSERT_EQ(octavo_observer_state_slices(state), slices);
  std::vector<double> low(want.low().size());
  std::vector<double> high(want.low().size());
  ASSERT_EQ(octavo_observer_state_extremes(state, low.data(), high.data(), slices), OCTAVO_OK);
  EXPECT_EQ(low, want.low());
  EXPECT_EQ(high, want.high());
}

template <class State>
void expect_same_parameters(const octavo_observer_state* state, const State& want,
                            Calibration method, RangeMode mode) {
  CalibrationOptions cpp;
  cpp.method = method;
  cpp.mode = mode;
  cpp.output = mode == RangeMode::symmetric ? DType::s8 : DType::u8;
  octavo_calibration_options o{};
  o.struct_size = sizeof o;
  o.method = static_cast<octavo_calibration>(method);
  o.mode = static_cast<octavo_range_mode>(mode);
  o.output = static_cast<octavo_dtype>(cpp.output);
  for (const double percentile : {0.0, 90.0}) {
    if (percentile != 0 && method != Calibration::percentile) continue;
    o.percentile = percentile;
    if (percentile != 0) cpp.percentile = percentile;
    const auto found = want.parameters(cpp);
    ASSERT_TRUE(found);
    CalibratedParameters got{std::vector<double>(found->scales.size()),
                             std::vector<std::int32_t>(found->scales.size(), 99)};
    ASSERT_EQ(octavo_observer_state_calibrate(state, &o, got.scales.data(), got.zero_points.data(),
                                              static_cast<std::int64_t>(got.scales.size())),
              OCTAVO_OK)
        << octavo_last_error()->message;
    EXPECT_TRUE(got == *found) << name(method) << ' ' << name(mode);
  }
}

template <class Plan>
void expect_same(octavo_op op, const ObserverDescriptor& cpp) {
  constexpr bool histogram = std::is_same_v<Plan, HistogramObserver>;
  const Stream stream = Stream::cpu();
  const auto plan = Plan::select(stream, cpp);
  ASSERT_TRUE(plan) << plan.error().message();
  auto want = plan->make_state();
  const WorkspaceBuffer scratch(plan->workspace_size());

  const auto cpu = c_stream();
  const octavo_observer_desc d = c_descriptor(op, cpp);
  const auto c_plan = made<octavo_plan>(
      [&](auto out) { return octavo_observer_select(cpu.get(), &d, nullptr, out); });
  ASSERT_NE(c_plan, nullptr);
  EXPECT_EQ(octavo_plan_sku(c_plan.get()), to_string(plan->sku()));
  const auto odd = c_state(c_plan.get());
  const auto even = c_state(c_plan.get());
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> x = batch(i);
    ASSERT_TRUE(plan->run(stream, scratch, {.input = TensorRef(x, {50, 24}), .state = &want}));
    see(cpu.get(), c_plan.get(), i % 2 == 0 ? even.get() : odd.get(), x);
  }
  ASSERT_EQ(octavo_observer_state_merge(odd.get(), even.get()), OCTAVO_OK);
  for (const RangeMode mode : {RangeMode::symmetric, RangeMode::asymmetric})
    for (int method = 0; method < (histogram ? 4 : 1); ++method)
      expect_same_parameters(odd.get(), want, static_cast<Calibration>(method), mode);
  if constexpr (histogram) {
    expect_same(odd.get(), want.extremes());
    ASSERT_EQ(octavo_observer_state_bins(odd.get()), want.bins());
    std::vector<std::int64_t> counts(want.counts().size());
    ASSERT_EQ(octavo_observer_state_counts(odd.get(), counts.data(),
                                           octavo_observer_state_slices(odd.get()), want.bins()),
              OCTAVO_OK);
    EXPECT_EQ(counts, want.counts());
  } else {
    expect_same(odd.get(), want);
    EXPECT_EQ(octavo_observer_state_bins(odd.get()), 0);
  }
}

TEST(CObserver, HasTheStatesOfCxx) {
  for (const ObserverDescriptor& d :
       {ObserverDescriptor{},
        ObserverDescriptor{.scope = Layout::per_channel, .channels = 24, .histogram_bits = 3},
        ObserverDescriptor{
            .scope = Layout::per_channel, .axis = 0, .channels = 50, .histogram_bits = 2}}) {
    expect_same<MinMaxObserver>(OCTAVO_OBSERVE_MIN_MAX, d);
    expect_same<HistogramObserver>(OCTAVO_OBSERVE_HISTOGRAM, d);
  }
}

// Arrays of another size than the state's are not written.
TEST(CObserver, RefusesAnotherNumberOfSlices) {
  const auto cpu = c_stream();
  const octavo_observer_desc d =
      c_descriptor(OCTAVO_OBSERVE_HISTOGRAM, {.scope = Layout::per_channel, .channels = 3});
  const auto plan = made<octavo_plan>(
      [&](auto out) { return octavo_observer_select(cpu.get(), &d, nullptr, out); });
  const auto state = c_state(plan.get());
  octavo_calibration_options o{};
  o.struct_size = sizeof o;
  o.output = OCTAVO_S8;
  for (const std::int64_t wrong : {2, 4, 0, -3}) {
    double scales[] = {9, 9, 9, 9};
    double more[] = {9, 9, 9, 9};
    std::int32_t zero_points[] = {9, 9, 9, 9};
    expect_refusal(octavo_observer_state_extremes(state.get(), scales, more, wrong),
                   OCTAVO_INVALID_PROBLEM, "slices", "expected 3");
    expect_refusal(octavo_observer_state_calibrate(state.get(), &o, scales, zero_points, wrong),
                   OCTAVO_INVALID_PROBLEM, "slices", "expected 3");
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(scales[i], 9);
      EXPECT_EQ(more[i], 9);
      EXPECT_EQ(zero_points[i], 9);
    }
  }
}

TEST(CObserver, RefusesTheStateOfAnother) {
  const auto cpu = c_stream();
  const auto plan_of = [&](octavo_op op) {
    const octavo_observer_desc d = c_descriptor(op, {});
    return made<octavo_plan>(
        [&](auto out) { return octavo_observer_select(cpu.get(), &d, nullptr, out); });
  };
  const auto min_max = plan_of(OCTAVO_OBSERVE_MIN_MAX);
  const auto histogram = plan_of(OCTAVO_OBSERVE_HISTOGRAM);
  const auto a = c_state(min_max.get());
  const auto b = c_state(histogram.get());
  const std::vector<float> x = batch(0);
  CTensors tensors;
  const octavo_observer_args args{sizeof args, tensors(TensorRef(x)), b.get()};
  expect_refusal(octavo_observer_can_implement(min_max.get(), &args), OCTAVO_INVALID_PROBLEM,
                 "state", "another kind");
  expect_refusal(octavo_observer_state_merge(a.get(), b.get()), OCTAVO_INVALID_PROBLEM, "other",
                 "the same kind");
  octavo_calibration_options o{};
  o.struct_size = sizeof o;
  o.method = OCTAVO_MSE;
  o.output = OCTAVO_S8;
  double scales[2] = {-1, -1};
  expect_refusal(octavo_observer_state_calibrate(a.get(), &o, scales, nullptr, 1),
                 OCTAVO_UNSUPPORTED, "method", "HistogramObserver");
  expect_refusal(octavo_observer_state_calibrate(b.get(), &o, scales, nullptr, 2),
                 OCTAVO_INVALID_PROBLEM, "slices", "expected 1");
  std::int64_t count = -1;
  expect_refusal(octavo_observer_state_counts(a.get(), &count, 1, 1), OCTAVO_INVALID_PROBLEM,
                 "bins", "only histograms");
  EXPECT_EQ(scales[0], -1);
  EXPECT_EQ(count, -1);
  // Counts are written only to an array of all of them.
  const std::int64_t bins = octavo_observer_state_bins(b.get());
  std::vector<std::int64_t> counts(static_cast<std::size_t>(bins) + 1, -1);
  for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{1}, bins - 1, bins + 1, -bins})
    expect_refusal(
        octavo_observer_state_counts(b.get(), counts.data(), 1, wrong), OCTAVO_INVALID_PROBLEM,
        "bins",
        "expected " + std::to_string(bins) + ", as the state has, got " + std::to_string(wrong));
  expect_refusal(octavo_observer_state_counts(b.get(), counts.data(), 2, bins),
                 OCTAVO_INVALID_PROBLEM, "slices", "expected 1");
  EXPECT_EQ(counts, std::vector<std::int64_t>(counts.size(), -1));
  octavo_observer_desc d = c_descriptor(OCTAVO_QUANTIZE, {});
  octavo_plan* out = nullptr;
  expect_refusal(octavo_observer_select(cpu.get(), &d, nullptr, &out), OCTAVO_UNSUPPORTED, "op",
                 "OCTAVO_OBSERVE_HISTOGRAM (9), got 0");
}

}  // namespace
}  // namespace octavo::testing
