// The same bits on every thread count, from many callers at once, and under any floating-point
// environment of the caller, which stays as it was.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "ops/elementwise/testing_checks.hpp"
#include "ops/elementwise/testing_placed.hpp"
#include "testing/environment.hpp"

namespace octavo::testing {
namespace {

/// A call with random operands and an output of its own. Every value of a byte occurs, so NaNs,
/// infinities and subnormals do, too.
struct RandomCall {
  Problem problem;
  Operands operands;

  explicit RandomCall(const Problem& p) : problem(p), operands{p, {}, {}, {}, {}, {}} {
    Random random(5);
    const std::int64_t slices = slice_count(p);
    const DType type = scale_type(p);
    operands.scale_bytes.resize(static_cast<std::size_t>(bytes_for(type, slices)));
    for (std::int64_t i = 0; i < slices; ++i) {
      const auto at = static_cast<std::size_t>(i);
      operands.scales.push_back(ordinary.scales[at % ordinary.scales.size()]);
      operands.zero_points.push_back(ordinary.zero_points[at % ordinary.zero_points.size()]);
      store_bits(operands.scale_bytes.data(), bits(type) / 8, i,
                 encode(type, operands.scales.back()));
    }
    const auto fill = [&](Bytes& bytes, DType t) {
      bytes.resize(static_cast<std::size_t>(Elements(t, p.shape).bytes()) / 8 * 8 + 8);
      for (std::size_t i = 0; i < bytes.size(); i += 8)
        store_bits(bytes.data() + i, 8, 0, random.next());
    };
    if (has_input(p.op)) fill(operands.input, input_type(p));
    if (has_grad(p.op)) fill(operands.grad, p.element);
  }
  [[nodiscard]] Bytes output() const {
    return Bytes(static_cast<std::size_t>(output_bytes(problem)));
  }
  /// The output, after checking that the call was accepted.
  [[nodiscard]] Bytes run(const Stream& stream) const {
    Bytes bytes = output();
    const Status status = run_call(stream, problem, call_of(operands, bytes.data()));
    EXPECT_TRUE(status) << status.error().message();
    return bytes;
  }
};

/// Problems of every op and layout, for two pairs of types, on [rows, cols].
std::vector<Problem> problems(std::int64_t rows, std::int64_t cols) {
  std::vector<Problem> all;
  for_each_kind([&](const Kind& kind) {
    if (kind.element == DType::f64 || kind.element == DType::f16) return;
    for (int axis = 0; axis < (kind.layout == Layout::per_channel ? 2 : 1); ++axis)
      all.push_back(problem_on(kind, {rows, cols}, axis));
  });
  return all;
}

TEST(Threads, AnyNumberGivesTheSameBits) {
  [[maybe_unused]] const ManyThreads many;
  // More than 16 shares of work, in rows of an odd length.
  const std::int64_t rows = slow_machine() ? 203 : 1041;
  for (const Problem& p : problems(rows, 1023)) {
    const RandomCall call(p);
    const Bytes want = call.run(Stream::cpu({.threads = 1}));
    for (const int threads : all_thread_counts) {
      SCOPED_TRACE(title(p) + " on " + std::to_string(threads));
      ASSERT_TRUE(call.run(Stream::cpu({.threads = threads})) == want);
    }
  }
}

TEST(Threads, OnePlanRunsFromManyAtOnce) {
  [[maybe_unused]] const ManyThreads many;
  constexpr int callers = 8;
  for (Problem p : problems(slow_machine() ? 67 : 199, 1023)) {
    // Scales that each run converts into its own workspace.
    if (p.layout != Layout::per_tensor) p.scale_type = DType::f64;
    SCOPED_TRACE(title(p));
    const RandomCall call(p);
    const Stream stream = Stream::cpu({.threads = 3});
    const auto plan = select_plan(stream, p);
    ASSERT_TRUE(plan) << plan.error().message();
    const Bytes want = call.run(Stream::cpu({.threads = 1}));
    std::vector<int> wrong(callers);
    std::vector<std::thread> threads;
    threads.reserve(callers);
    for (int& failures : wrong)
      threads.emplace_back([&] {
        const WorkspaceBuffer workspace((*plan)->workspace_size());
        for (int i = 0; i < 3; ++i) {
          Bytes output = call.output();
          const bool ran =
              (*plan)->run(stream, workspace, call_of(call.operands, output.data())).has_value();
          if (!ran || output != want) ++failures;
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(callers));
  }
}

// ---- the floating-point environment ------------------------------------------------------------

TEST(FloatEnvironment, NeitherMattersNorChanges) {
  [[maybe_unused]] const ManyThreads many;
  const Environment usual = environment();
  const std::vector<Environment> all = environments();
  // More than 16 shares: [1041, 1023] is too much work for every environment, so most are tried on
  // little and some on all threads.
  for (const bool big : {false, true}) {
    std::size_t turn = 0;
    for (Problem p : problems(big ? (slow_machine() ? 203 : 1041) : 5, big ? 1023 : 99)) {
      SCOPED_TRACE(title(p));
      // A tenth is rounded from f64: that, too, has a rounding mode.
      if (p.layout != Layout::per_tensor) p.scale_type = DType::f64;
      const RandomCall call(p);
      const Stream first = Stream::cpu({.threads = 1});
      const Bytes want = call.run(first);
      const auto plan = select_plan(first, p);
      ASSERT_TRUE(plan);
      const WorkspaceBuffer workspace((*plan)->workspace_size());
      for (const int threads : all_thread_counts) {
        if (!big && threads > 1) break;
        const Stream stream = Stream::cpu({.threads = threads});
        for (std::size_t i = 0; i < all.size(); ++i) {
          if (big && i != turn % all.size()) continue;
          Bytes got = call.output();
          const Call args = call_of(call.operands, got.data());
          set(all[i]);
          const Status asked = (*plan)->can_implement(args);
          const Environment between = environment();
          const Status ran = (*plan)->run(stream, workspace, args);
          const Environment after = environment();
          set(usual);
          ASSERT_TRUE(asked && ran);
          ASSERT_EQ(between.control, all[i].control);
          ASSERT_EQ(after.control, all[i].control) << std::hex << all[i].control;
          ASSERT_EQ(after.status, all[i].status);
          ASSERT_TRUE(got == want)
              << threads << " threads, environment " << std::hex << all[i].control;
        }
        turn += 5;
      }
    }
  }
}

// A stream's threads keep the environment they were started in; it must not leak into results.
TEST(FloatEnvironment, OfTheThreadThatMadeTheStream) {
  [[maybe_unused]] const ManyThreads many;
  const Environment usual = environment();
  for (const Environment& e : environments()) {
    for (const Op op : all_ops) {
      const Problem p =
          problem_of({op, Layout::per_tensor, DType::f32, DType::s8}, {5 * 65536 + 3});
      const RandomCall call(p);
      const Bytes want = call.run(Stream::cpu({.threads = 1}));
      Bytes got = call.output();
      const Call args = call_of(call.operands, got.data());
      set(e);
      Status status;
      {
        const Stream stream = Stream::cpu({.threads = 5});
        status = run_call(stream, p, args);
      }
      const Environment after = environment();
      set(usual);
      ASSERT_TRUE(status) << status.error().message();
      ASSERT_EQ(after.control, e.control);
      ASSERT_TRUE(got == want) << name(op) << " environment " << std::hex << e.control;
    }
    if (slow_machine()) break;
  }
}

// Looking at a scale must not raise a flag, or trap, either.
TEST(FloatEnvironment, IsNotTouchedBySubnormalScales) {
  const Environment usual = environment();
  const Stream stream = Stream::cpu({.threads = 1});
  for (const Profile profile : all_profiles) {
    const Problem p =
        problem_of({Op::quantize, Layout::per_channel, DType::f32, DType::s8, profile}, {3, 5}, 1);
    const Operands o = make_operands(p, {{0x1p-127, 0x1.8p-127}, {0}}, 1);
    const Bytes want = expected(o);
    for (const Environment& e : environments()) {
      Bytes got(want.size());
      set(e);
      const Status ran = run(stream, p, pointers_of(o, got.data()));
      const Environment after = environment();
      set(usual);
      ASSERT_TRUE(ran);
      ASSERT_EQ(after.control, e.control);
      ASSERT_EQ(after.status, e.status);
      ASSERT_EQ(got, want);
    }
  }
}

}  // namespace
}  // namespace octavo::testing
