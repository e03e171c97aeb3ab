// What the tests of observers share.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "octavo/observer.hpp"
#include "testing/lent.hpp"

namespace octavo::testing {

inline constexpr std::array all_methods{Calibration::min_max, Calibration::percentile,
                                        Calibration::mse, Calibration::entropy};

inline Stream one_thread() { return Stream::cpu({.threads = 1}); }

/// An observer with the workspace that it needs.
template <class Plan>
struct Watch {
  Plan plan;
  WorkspaceBuffer workspace;
  explicit Watch(const Stream& stream, const ObserverDescriptor& d)
      : plan(*Plan::select(stream, d)),
        workspace(stream, plan.workspace_size()) {}
  template <class State>
  void see(const Stream& stream, const TensorRef& x, State& state) const {
    Lent lent(stream);
    const Status status = plan.run(stream, workspace, {.input = lent.lend(x), .state = &state});
    ASSERT_TRUE(status) << status.error().message();
  }
};

template <class T>
void expect_error(const T& result, ErrorCode code, const std::string& argument) {
  ASSERT_FALSE(result) << argument;
  EXPECT_EQ(result.error().code(), code) << result.error().message();
  EXPECT_EQ(result.error().argument(), argument) << result.error().message();
}

}  // namespace octavo::testing
