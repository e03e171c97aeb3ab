// A cap on the target is honoured: the kernel that is named is the one that runs, and no other.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "ops/elementwise/testing_placed.hpp"

namespace octavo::testing {
namespace {

/// The targets that elementwise kernels are written for, best last.
#if defined(__x86_64__)
constexpr std::array kernel_targets{Target::scalar, Target::avx2, Target::avx512};
#else
constexpr std::array kernel_targets{Target::scalar, Target::neon, Target::sve};
#endif

/// The best of them that this CPU has and the cap allows.
Target expected_target(Target cap) {
  Target best = Target::scalar;
  for (const Target target : kernel_targets)
    if (is_available(target) && at_or_below(target, cap)) best = target;
  return best;
}
Target best_target() {
  Target best = Target::scalar;
  for (const Target target : kernel_targets)
    if (is_available(target)) best = target;
  return best;
}

std::uint32_t bit(Target target) { return 1U << static_cast<int>(target); }

/// Runs a problem and expects exactly one target in the trace.
void expect_ran(const CpuOptions& options, const PlanPreference& preference, const Problem& p,
                Target expected) {
  SCOPED_TRACE(title(p) + " on " + std::string(name(expected)));
  std::atomic<std::uint32_t> trace{0};
  CpuOptions traced = options;
  traced.trace = &trace;
  const Stream stream = Stream::cpu(traced);
  const auto plan = select_plan(stream, p, preference);
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ((*plan)->sku().target, expected);
  EXPECT_NE(to_string((*plan)->sku()).find("cpu." + std::string(name(expected))),
            std::string::npos);
  EXPECT_EQ(trace.load(), 0U) << "select runs nothing";

  const Operands o = make_operands(p, ordinary, 1);
  Bytes output(static_cast<std::size_t>(output_bytes(p)));
  const WorkspaceBuffer workspace((*plan)->workspace_size());
  const Status status = (*plan)->run(stream, workspace, call_of(o, output.data()));
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_EQ(trace.load(), bit(expected));
}

class TargetCap : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam())) GTEST_SKIP() << "this CPU has no " << name(GetParam());
  }
};

TEST_P(TargetCap, OfAStreamsCap) {
  const Target cap = GetParam();
  for_each_kind([&](const Kind& kind) {
    for (int axis = 0; axis < (kind.layout == Layout::per_channel ? 2 : 1); ++axis)
      expect_ran({.threads = 1, .cap = cap}, {}, problem_on(kind, {5, 66}, axis),
                 expected_target(cap));
  });
}

TEST_P(TargetCap, OfAStreamsCapOnThreads) {
  const Target cap = GetParam();
  for (const Op op : all_ops)
    expect_ran(
        {.threads = 3, .cap = cap}, {},
        problem_of({op, Layout::per_tensor, DType::f32, DType::s8}, {std::int64_t{4} * 65536}),
        expected_target(cap));
}

TEST_P(TargetCap, OfAPreference) {
  const Target wanted = GetParam();
  for_each_plan([&](const Problem& p) {
    expect_ran({.threads = 1}, {.target = wanted}, p, expected_target(wanted));
    // The lower of two caps counts, whichever it is.
    expect_ran({.threads = 1, .cap = Target::scalar}, {.target = wanted}, p, Target::scalar);
    expect_ran({.threads = 1, .cap = wanted}, {.target = Target::scalar}, p, Target::scalar);
  });
}

TEST_P(TargetCap, OfTheEnvironment) {
  const char* before = std::getenv("OCTAVO_TARGET");
  if (before != nullptr) GTEST_SKIP() << "OCTAVO_TARGET is set to " << before;
  const std::string wanted(name(GetParam()));
  ASSERT_EQ(setenv("OCTAVO_TARGET", wanted.c_str(), 1), 0);
  for_each_plan([&](const Problem& p) {
    expect_ran({.threads = 1}, {}, p, expected_target(GetParam()));
    expect_ran({.threads = 1, .cap = Target::scalar}, {}, p, Target::scalar);
  });
  ASSERT_EQ(unsetenv("OCTAVO_TARGET"), 0);
}

INSTANTIATE_TEST_SUITE_P(All, TargetCap, ::testing::ValuesIn(machine_targets),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(TargetChoice, TheBestIsTheDefault) {
  const char* wanted = std::getenv("OCTAVO_TARGET");
  if (wanted != nullptr) GTEST_SKIP() << "OCTAVO_TARGET is set to " << wanted;
  for_each_kind([](const Kind& kind) {
    expect_ran({.threads = 1}, {}, problem_on(kind, {5, 66}), best_target());
  });
}

TEST(TargetChoice, AStreamMayHaveNoTrace) {
  const Problem p = small_problem(Op::quantize, Layout::per_token);
  const Operands o = make_operands(p, ordinary, 1);
  Bytes output(static_cast<std::size_t>(output_bytes(p)));
  EXPECT_TRUE(run_call(Stream::cpu({.threads = 1}), p, call_of(o, output.data())));
}

}  // namespace
}  // namespace octavo::testing
