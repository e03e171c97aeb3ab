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
  GuardPlan plan;
  if (slow_machine()) {
    plan.max_length = 67;
    plan.offsets = {0, 12};
  }
  EXPECT_EQ(check_guards(target, op, plan), "");
}
INSTANTIATE_TEST_SUITE_P(All, Guard, ::testing::ValuesIn(tested([](Op) { return true; })),
                         test_name);

/// Outputs too large for a cache are written past it, by other code.
TEST_P(Guard, LargerThanCaches) {
  const auto [target, op] = GetParam();
  if (slow_machine()) GTEST_SKIP() << "too slow here";
  if (target == Target::scalar) GTEST_SKIP() << "the reference has no such code";
  constexpr std::int64_t bytes = 9 << 20;
  const FaultNote note;
  const Stream stream = Stream::cpu({.threads = 2, .cap = target});
  for (const auto& [element, integer] : mixed_types) {
    const Kind kind{op, Layout::per_tensor, element, integer, Profile::torch};
    const DType output = output_type(problem_of(kind, {1}));
    if (is_packed(output)) continue;
    const Problem p = problem_of(kind, {bytes * 8 / octavo::bits(output) + 5});
    const Operands o = make_operands(p, {{0.05}, {3}}, 1);
    const Bytes want = expected(o);
    const auto plan = octavo::detail::ElementwisePlan::select(stream, p, {});
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
