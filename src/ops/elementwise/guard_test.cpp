// No kernel reads or writes a byte outside of its buffers. octavo_exhaustive --guard is the full
// form, with every length up to 1024 and every alignment.
#include <gtest/gtest.h>

#include "ops/elementwise/testing_checks.hpp"
#include "ops/elementwise/testing_guard.hpp"

namespace octavo::testing {
namespace {

class Guard : public ::testing::TestWithParam<TargetAndOp> {};

TEST_P(Guard, NothingOutsideIsTouched) {
  const auto [target, op] = GetParam();
  if (const std::string why = no_guard_tests(target); !why.empty()) GTEST_SKIP() << why;
  GuardPlan plan;
  if (slow_machine()) {
    plan.max_length = 67;
    plan.offsets = {0, 12};
  }
  if (target == Target::sm80) plan.max_length = 37;  // (a driver on the CPU is slow)
  EXPECT_EQ(check_guards(target, op, plan), "");
}
INSTANTIATE_TEST_SUITE_P(All, Guard, ::testing::ValuesIn(tested([](Op) { return true; })),
                         test_name);

TEST_P(Guard, LargerThanCaches) {
  const auto [target, op] = GetParam();
  if (slow_machine()) GTEST_SKIP() << "too slow here";
  if (target == Target::scalar || target == Target::sm80) GTEST_SKIP() << "no such code";
  const FaultNote note;
  const Stream stream = Stream::cpu({.threads = 2, .cap = target});
  for (Kind kind : large_kinds(op))
    for (const Layout layout : {Layout::per_tensor, Layout::per_channel}) {
      kind.layout = layout;
      const bool channels = layout == Layout::per_channel;
      const Operands once = make_operands(
          channels ? problem_of(kind, {5, 2048}, 1) : problem_of(kind, {10250}), {{0.05}, {3}}, 1);
      const std::int64_t times = large_bytes / output_bytes(once.problem) + 1;
      const Operands o = repeated(once, times);
      const Bytes want = repeated(expected(once), times);
      const auto plan = octavo::detail::AnyElementwisePlan::select(stream, o.problem, {});
      ASSERT_TRUE(plan);
      GuardedCall call(std::max({want.size(), o.input.size(), o.grad.size()}) + 64);
      FaultNote::set(digest_name(kind) + ", " + std::string(name(target)));
      for (const bool at_back : {false, true})
        EXPECT_EQ(call.run(*plan, stream, o, want, at_back, at_back ? 0 : 8), "");
    }
}

// The guards themselves work: an access one byte outside ends the process.
TEST(GuardedMemoryDeathTest, Faults) {
  const GuardedMemory memory(100);
  EXPECT_DEATH(*static_cast<volatile std::byte*>(memory.front() - 1) = std::byte{1}, "");
  EXPECT_DEATH(*static_cast<volatile std::byte*>(memory.back(0)) = std::byte{1}, "");
}

}  // namespace
}  // namespace octavo::testing
