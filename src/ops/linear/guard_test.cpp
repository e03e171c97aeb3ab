// No linear plan reads or writes a byte outside of its buffers, and a workspace of workspace_size()
// bytes is enough. octavo_exhaustive --linear goes over more sizes.
#include <gtest/gtest.h>

#include "ops/elementwise/testing_checks.hpp"
#include "ops/linear/testing_guard.hpp"
#include "ops/linear/testing_targets.hpp"

namespace octavo::testing {
namespace {

class LinearGuard : public LinearPlaceTest {
 protected:
  void SetUp() override {
    LinearPlaceTest::SetUp();
    if (IsSkipped()) return;
    skip_without_dot_product();
    if (const std::string why = no_guard_tests(target()); !why.empty()) GTEST_SKIP() << why;
  }
};
OCTAVO_ON_LINEAR_PLACES(LinearGuard);

TEST_P(LinearGuard, NothingOutsideIsTouched) {
  const std::vector<std::int64_t> all{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                      13, 14, 15, 16, 17, 31, 33, 47, 49, 63, 64, 65, 97};
  const std::vector<std::int64_t> some{0, 1, 2, 3, 5, 8, 15, 17, 49, 65};
  EXPECT_EQ(check_linear_guards(target(), slow_machine() ? some : all, 0, linear_case_in_turn), "");
}

TEST_P(LinearGuard, NothingOutsideOfGroupsAndFloatsIsTouched) {
  const std::vector<std::int64_t> all{0,  1,  2,  3,  4,  5,  6,  7,  8,  12, 13, 16,
                                      20, 24, 31, 32, 33, 36, 48, 63, 64, 65, 96, 100};
  const std::vector<std::int64_t> some{0, 1, 3, 4, 8, 15, 24, 33, 64};
  EXPECT_EQ(check_linear_guards(target(), slow_machine() ? some : all, 0, group_case_in_turn), "");
}

TEST_P(LinearGuard, NorByManyThreads) {
  [[maybe_unused]] const ManyThreads many;
  const FaultNote note;
  const Stream stream = this->stream(5);
  GuardedLinear call(std::size_t{8} * 2200 * 1000);
  std::uint64_t turn = 0;
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{65, 700, 131}, {1, 2200, 1000}, {700, 37, 129}})
    for (int again = 0; again < (slow_machine() ? 3 : 14); ++again) {
      const auto in_turn = again % 2 == 0 ? linear_case_in_turn : group_case_in_turn;
      const LinearData d = make_linear(in_turn(++turn, m, n, k));
      const Matrix want = expected(d);
      for (const bool at_back : {false, true})
        ASSERT_EQ(call.run(stream, d, want, at_back), "") << d.c.text();
    }
}

}  // namespace
}  // namespace octavo::testing
