// Observers where something ends: states of other observers, large states, more channels than are
// counted at once, and f64 where f32 has no such values.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/elementwise/testing_data.hpp"
#include "ops/observer/testing.hpp"
#include "testing/threads.hpp"

namespace octavo::testing {
namespace {

// Their counts lie elsewhere, or are too few: nothing may be added to them.
template <class Plan>
void expect_other_states_refused() {
  const ObserverDescriptor own{.scope = Layout::per_channel, .channels = 3, .histogram_bits = 4};
  const Stream stream = one_thread();
  const Watch<Plan> watch(stream, own);
  const std::vector<float> x(12, 1.0F);
  auto state = watch.plan.make_state();
  watch.see(stream, TensorRef(x, {4, 3}), state);
  const auto before = state;

  const auto with = [&](auto change) {
    ObserverDescriptor d = own;
    change(d);
    return d;
  };
  const ObserverDescriptor others[] = {
      with([](auto& d) { d.histogram_bits = 3; }),
      with([](auto& d) { d.histogram_bits = 5; }),
      with([](auto& d) { d.input = DType::f64; }),
      with([](auto& d) { d.channels = 2; }),
      with([](auto& d) { d.channels = 4; }),
      with([](auto& d) { d.scope = Layout::per_tensor; }),
  };
  for (const ObserverDescriptor& d : others) {
    auto other = Plan::select(stream, d)->make_state();
    const auto untouched = other;
    expect_error(watch.plan.can_implement({.input = {x, {4, 3}}, .state = &other}),
                 ErrorCode::invalid_problem, "state");
    expect_error(watch.plan.run(stream, watch.workspace, {.input = {x, {4, 3}}, .state = &other}),
                 ErrorCode::invalid_problem, "state");
    expect_error(state.merge(other), ErrorCode::invalid_problem, "other");
    expect_error(other.merge(state), ErrorCode::invalid_problem, "other");
    EXPECT_EQ(other, untouched);
  }
  // One that was moved from holds nothing.
  auto moved = watch.plan.make_state();
  [[maybe_unused]] const auto taken = std::move(moved);
  // NOLINTNEXTLINE(bugprone-use-after-move): the point
  expect_error(watch.plan.run(stream, watch.workspace, {.input = {x, {4, 3}}, .state = &moved}),
               ErrorCode::invalid_problem, "state");
  expect_error(state.merge(moved), ErrorCode::invalid_problem, "other");
  EXPECT_EQ(state, before);
}

TEST(ObserverStates, OfAnotherObserverAreRefused) {
  expect_other_states_refused<MinMaxObserver>();
  expect_other_states_refused<HistogramObserver>();
}

// One channel of one axis is that channel of another: only their number counts.
TEST(ObserverStates, OfAnotherAxisAreTheSameKind) {
  const Watch<HistogramObserver> rows(one_thread(),
                                      {.scope = Layout::per_channel, .axis = 0, .channels = 3});
  const Watch<HistogramObserver> columns(one_thread(),
                                         {.scope = Layout::per_channel, .axis = 1, .channels = 3});
  HistogramState state = rows.plan.make_state();
  HistogramState other = columns.plan.make_state();
  EXPECT_TRUE(state.merge(other));
}

/// One value per row and channel: channel c sees c % 7 + 1, with the sign of its row.
std::vector<float> labelled(std::int64_t rows, std::int64_t channels) {
  std::vector<float> x;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < channels; ++c)
      x.push_back(static_cast<float>(c % 7 + 1) * (r % 2 == 0 ? 1.0F : -1.0F));
  return x;
}
void expect_labelled(const HistogramState& state, std::int64_t rows, std::int64_t channels) {
  std::vector<std::int64_t> want(static_cast<std::size_t>(channels * state.bins()));
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto bin = std::bit_cast<std::uint32_t>(static_cast<float>(c % 7 + 1)) >> 23U;
    std::int64_t* own = want.data() + c * state.bins();
    own[bin] = (rows + 1) / 2;
    own[bin + 256] = rows / 2;
  }
  EXPECT_TRUE(state.counts() == want);
}

// Channels that lie side by side are counted 4096 at a time.
TEST(ObserverStates, HoldMoreChannelsThanAreCountedAtOnce) {
  for (const Stream& stream : one_of_each()) {
    constexpr std::int64_t channels = 2 * 4096 + 5;
    const Watch<HistogramObserver> watch(
        stream, {.scope = Layout::per_channel, .channels = channels, .histogram_bits = 0});
    HistogramState state = watch.plan.make_state();
    const std::vector<float> x = labelled(3, channels);
    watch.see(stream, TensorRef(x, {3, channels}), state);
    expect_labelled(state, 3, channels);
  }
}

/// Runs in a workspace that ends at a page which must not be touched.
void see_guarded(const HistogramObserver& plan, const Stream& stream, const TensorRef& x,
                 HistogramState& state) {
  const std::size_t bytes = plan.workspace_size();
  const std::size_t whole =
      (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
  const GuardedMemory memory(whole);
  const Status status =
      plan.run(stream, {memory.back(whole), bytes}, {.input = x, .state = &state});
  ASSERT_TRUE(status) << status.error().message();
}

// Of 33 MiB each, so that no two threads have counts of their own in 64 MiB; and of 5 MiB, where
// some of the threads have.
TEST(ObserverStates, BeyondWhatThreadsMayHoldAreCountedByFewer) {
  [[maybe_unused]] const ManyThreads many;
  for (const std::int64_t channels : {8300, 1300})
    for (const int threads : {2, 16}) {
      const std::int64_t rows = threads * std::int64_t{65536} / channels + 1;
      const Stream stream = Stream::cpu({.threads = threads});
      const auto plan = HistogramObserver::select(
          stream, {.scope = Layout::per_channel, .channels = channels, .histogram_bits = 0});
      ASSERT_TRUE(plan);
      HistogramState state = plan->make_state();
      const std::vector<float> x = labelled(rows, channels);
      see_guarded(*plan, stream, TensorRef(x, {rows, channels}), state);
      expect_labelled(state, rows, channels);
      EXPECT_LE(
          plan->workspace_size(),
          (std::size_t{64} << 20U) + std::size_t{16} * 8 * static_cast<std::size_t>(channels));
    }
}

// On a GPU so many channels are counted at a time that their counts have 64 MiB: along the
// innermost dimension, and along another.
TEST(ObserverStates, AreCountedInPartsOnADevice) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  const Stream stream = *cuda_stream();
  constexpr std::int64_t channels = 300;
  std::vector<HistogramState> states;
  const std::vector<float> x = labelled(4, channels);
  for (const Stream& on : {one_thread(), stream})
    for (const auto& [axis, shape, strides] :
         {std::tuple(1, Shape{4, channels}, Shape{channels, 1}),
          std::tuple(0, Shape{channels, 4}, Shape{1, channels})}) {
      const Watch<HistogramObserver> watch(
          on, {.scope = Layout::per_channel, .axis = axis, .channels = channels});
      EXPECT_LE(watch.plan.workspace_size(), (std::size_t{64} << 20U) + 16 * channels);
      states.push_back(watch.plan.make_state());
      watch.see(on, TensorRef(x.data(), DType::f32, shape, strides), states.back());
    }
  for (const HistogramState& state : states) EXPECT_TRUE(state == states.front());
}

// The workspace is the plan's, however many threads a stream has.
TEST(ObserverStates, AreTheSameOnAStreamOfMoreThreadsThanThePlans) {
  [[maybe_unused]] const ManyThreads many;
  constexpr std::int64_t rows = std::int64_t{6} * 65536;
  const std::vector<float> x = labelled(rows, 3);
  for (const int threads : {1, 2, 3}) {
    const auto plan = HistogramObserver::select(
        Stream::cpu({.threads = threads}),
        {.scope = Layout::per_channel, .channels = 3, .histogram_bits = 0});
    for (const int other : {1, 2, 16}) {
      HistogramState state = plan->make_state();
      see_guarded(*plan, Stream::cpu({.threads = other}), TensorRef(x, {rows, 3}), state);
      expect_labelled(state, rows, 3);
    }
  }
}

// Zero is always in the range, though no value is near it.
TEST(ObserverStates, OfOneSignHaveRangesThatReachToZero) {
  for (const Stream& stream : one_of_each()) {
    std::vector<float> x(1000);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 100.0F + static_cast<float>(i) / 10;
    const Watch<HistogramObserver> watch(stream, {});
    for (const bool negative : {false, true}) {
      HistogramState state = watch.plan.make_state();
      std::vector<float> y = x;
      for (float& v : y) v = negative ? -v : v;
      watch.see(stream, y, state);
      for (const Calibration method : all_methods) {
        const auto found = state.parameters({.method = method,
                                             .mode = RangeMode::asymmetric,
                                             .output = DType::u8,
                                             .percentile = 99});
        ASSERT_TRUE(found);
        EXPECT_EQ(found->zero_points[0], negative ? 255 : 0) << name(method);
        EXPECT_GT(found->scales[0] * 255, 100) << name(method);
        EXPECT_LT(found->scales[0] * 255, 200) << name(method);
      }
    }
  }
}

// ---- f64 ---------------------------------------------------------------------------------------

HistogramState seen(const std::vector<double>& x) {
  std::vector<HistogramState> states;
  for (const Stream& stream : one_of_each()) {
    const Watch<HistogramObserver> watch(stream, {.input = DType::f64});
    states.push_back(watch.plan.make_state());
    watch.see(stream, x, states.back());
  }
  EXPECT_EQ(states.front(), states.back());
  return states.back();
}

// Finite ones count as the largest of f32, those that are not finite not at all.
TEST(ObserverDoubles, BeyondF32AreCountedAsTheLargest) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const HistogramState state =
      seen({1e300, 3.5e38, 0x1.ffffffp127, -1e300, -1e39, 1.0, inf, -inf, std::nan("")});
  std::vector<std::int64_t> want(1U << 16U);
  want[0x7F7F] = 3;
  want[0xFF7F] = 2;
  want[0x3F80] = 1;
  EXPECT_EQ(state.counts(), want);
  EXPECT_EQ(state.extremes().low(), std::vector<double>{-1e300});
  EXPECT_EQ(state.extremes().high(), std::vector<double>{1e300});
}

// The last bin reaches as far as what was seen, and no further.
TEST(ObserverDoubles, BeyondF32AreWithinPercentiles) {
  for (const double high : {1e300, 1e39, 0x1.fffffep127, 0x1.ff8p127})
    for (const double low : {-1e200, -0x1.ff8p127, -1.0}) {
      const HistogramState state = seen({high, low, 1.0, 2.0});
      for (const RangeMode mode : {RangeMode::symmetric, RangeMode::asymmetric}) {
        const auto all =
            state.parameters({.method = Calibration::percentile, .mode = mode, .percentile = 100});
        EXPECT_EQ(*all, *state.parameters({.mode = mode})) << high << ' ' << low;
      }
    }
}

// Candidates are computed in f64: in f32, each of these would be infinite, or 0.
TEST(ObserverDoubles, BeyondF32HaveALeastError) {
  for (const double x : {1e100, 0x1p-200}) {
    const HistogramState state = seen({x});
    // As if in the middle of its bin, x / 2 is half a step off with the widest range.
    const auto found = state.parameters({.method = Calibration::mse});
    const auto widest = state.parameters({});
    const auto error = [&](double scale) {
      return std::fabs(x / 2 - std::rint(x / 2 / scale) * scale);
    };
    EXPECT_LT(error(found->scales[0]), error(widest->scales[0]) / 1000) << x;
  }
}

TEST(ObserverDoubles, WhoseErrorsAllOverflowKeepTheWidestRange) {
  const HistogramState state = seen({1e200, -0.7e200});
  for (const RangeMode mode : {RangeMode::symmetric, RangeMode::asymmetric})
    EXPECT_EQ(*state.parameters({.method = Calibration::mse, .mode = mode}),
              *state.parameters({.mode = mode}));
}

}  // namespace
}  // namespace octavo::testing
