// Every refusal of dynamic-range quantize names the argument, and leaves the outputs as they were;
// and no byte outside of a buffer is touched.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/dynamic_range/testing_guard.hpp"
#include "ops/elementwise/testing_checks.hpp"

namespace octavo::testing {
namespace {

using Descriptor = DynamicRangeQuantizeDescriptor;
using Args = DynamicRangeQuantizeArgs;

Stream one_thread() { return Stream::cpu({.threads = 1}); }

void expect_select_refuses(const Descriptor& d, ErrorCode code, const std::string& argument,
                           const std::string& text, const PlanPreference& preference = {}) {
  const auto plan = DynamicRangeQuantizePlan::select(one_thread(), d, preference);
  ASSERT_FALSE(plan) << argument;
  EXPECT_EQ(plan.error().code(), code);
  EXPECT_EQ(plan.error().argument(), argument);
  EXPECT_NE(plan.error().message().find(text), std::string::npos) << plan.error().message();
}

TEST(DynamicRangeRefusals, Descriptor) {
  constexpr auto unsupported = ErrorCode::unsupported;
  constexpr auto invalid = ErrorCode::invalid_problem;
  const Descriptor good{.shape = {2, 8}};
  ASSERT_TRUE(DynamicRangeQuantizePlan::select(one_thread(), good));
  const auto with = [&](auto change) {
    Descriptor d = good;
    change(d);
    return d;
  };
  expect_select_refuses(with([](auto& d) { d.input = DType::s8; }), unsupported, "input", "got s8");
  expect_select_refuses(with([](auto& d) { d.output = DType::f32; }), unsupported, "output",
                        "got f32");
  for (const DType u : {DType::u8, DType::u4})
    expect_select_refuses(with([&](auto& d) { d.output = u; }), unsupported, "output",
                          "expected s8, s4 or s16 in mode symmetric, got " + std::string(name(u)) +
                              "; use mode asymmetric");
  expect_select_refuses(with([](auto& d) { d.mode = static_cast<RangeMode>(9); }), unsupported,
                        "mode", "got 9");
  expect_select_refuses(with([](auto& d) { d.scope = static_cast<Layout>(9); }), unsupported,
                        "scope", "got 9");
  expect_select_refuses(with([](auto& d) { d.profile = static_cast<Profile>(9); }), unsupported,
                        "profile", "got 9");
  expect_select_refuses(with([](auto& d) { d.shape = {2, -8}; }), invalid, "shape", "-8");
  expect_select_refuses(with([](auto& d) { d.shape = {}; }), invalid, "shape", "rank");
  expect_select_refuses(with([](auto& d) { d.shape = {INT64_MAX / 2, 3}; }), invalid, "shape", "");
  expect_select_refuses(with([](auto& d) {
                          d.shape = {INT64_MAX / 2, 3, 0};
                        }),
                        invalid, "shape", "");
  expect_select_refuses(with([](auto& d) {
                          d.shape = {std::int64_t{1} << 61, 0};
                        }),
                        invalid, "shape", "rows");
  for (const Shape& empty : {Shape{0, INT64_MAX / 2, 3, 4}, Shape{INT64_MAX / 2, 3, 0, 4}})
    EXPECT_TRUE(DynamicRangeQuantizePlan::select(one_thread(), {.shape = empty}));
  expect_select_refuses(with([](auto& d) {
                          d.scope = Layout::per_channel;
                          d.axis = 2;
                        }),
                        invalid, "axis", "got 2");
  expect_select_refuses(with([](auto& d) {
                          d.scope = Layout::per_group;
                          d.group_size = 3;
                        }),
                        invalid, "group_size", "got 3");
  expect_select_refuses(with([](auto& d) { d.q_min = -129; }), invalid, "q_min", "got -129");
  expect_select_refuses(with([](auto& d) { d.q_max = 128; }), invalid, "q_max", "got 128");
  expect_select_refuses(with([](auto& d) {
                          d.output = DType::s16;
                          d.q_max = 32768;
                        }),
                        invalid, "q_max", "-32768 to 32767, got 32768");
  expect_select_refuses(with([](auto& d) {
                          d.q_min = 5;
                          d.q_max = 4;
                        }),
                        invalid, "q_max", "q_min 5");
  expect_select_refuses(with([](auto& d) { d.q_max = 0; }), invalid, "q_max", "got 0");
  expect_select_refuses(with([](auto& d) {
                          d.mode = RangeMode::asymmetric;
                          d.q_min = 5;
                          d.q_max = 5;
                        }),
                        invalid, "q_max", "more than q_min");
  expect_select_refuses(with([](auto& d) { d.scope = Layout::per_tensor; }),
                        ErrorCode::workspace_too_small, "max_workspace_bytes", "at least 4",
                        {.max_workspace_bytes = 3});
}

/// Good arguments for [4, 6], asymmetric, per channel of the last axis, to spoil.
struct Call {
  alignas(64) std::array<float, 64> input{};
  std::vector<std::int8_t> output = std::vector<std::int8_t>(64, 77);
  std::vector<float> scales = std::vector<float>(16, 77);
  std::vector<std::int32_t> zero_points = std::vector<std::int32_t>(16, 77);
  alignas(64) std::array<std::byte, 256> workspace{};
  Descriptor descriptor{
      .shape = {4, 6}, .mode = RangeMode::asymmetric, .scope = Layout::per_channel, .axis = 1};
  Args args{.input = TensorRef(input.data(), {4, 6}),
            .output = TensorMut(output.data(), {4, 6}),
            .scales = TensorMut(scales.data(), {6}),
            .zero_points = TensorMut(zero_points.data(), {6})};
  Workspace lent{workspace.data(), workspace.size()};

  void expect_refused(ErrorCode code, const std::string& argument, bool by_run_only = false) {
    const auto plan = DynamicRangeQuantizePlan::select(one_thread(), descriptor);
    ASSERT_TRUE(plan) << plan.error().message();
    EXPECT_EQ(static_cast<bool>(plan->can_implement(args)), by_run_only) << argument;
    const Status status = plan->run(one_thread(), lent, args);
    ASSERT_FALSE(status) << argument;
    EXPECT_EQ(status.error().code(), code) << status.error().message();
    EXPECT_EQ(status.error().argument(), argument) << status.error().message();
    for (const auto q : output) ASSERT_EQ(q, 77);
    for (const auto s : scales) ASSERT_EQ(s, 77);
    for (const auto z : zero_points) ASSERT_EQ(z, 77);
  }
};

TEST(DynamicRangeRefusals, Arguments) {
  constexpr auto unsupported = ErrorCode::unsupported;
  constexpr auto invalid = ErrorCode::invalid_problem;
  {
    Call good;
    const auto plan = DynamicRangeQuantizePlan::select(one_thread(), good.descriptor);
    ASSERT_TRUE(plan);
    ASSERT_TRUE(plan->can_implement(good.args));
    ASSERT_TRUE(plan->run(one_thread(), good.lent, good.args));
  }
  const auto refused = [](ErrorCode code, const char* argument, auto spoil,
                          bool by_run_only = false) {
    Call call;
    spoil(call);
    call.expect_refused(code, argument, by_run_only);
  };
  refused(unsupported, "input", [](Call& c) { c.args.input.dtype = DType::f64; });
  refused(unsupported, "output", [](Call& c) { c.args.output.dtype = DType::u8; });
  refused(unsupported, "scales", [](Call& c) { c.args.scales.dtype = DType::f64; });
  refused(unsupported, "zero_points", [](Call& c) { c.args.zero_points.dtype = DType::s8; });
  refused(invalid, "input", [](Call& c) { c.args.input.data = nullptr; });
  refused(invalid, "output", [](Call& c) { c.args.output.data = nullptr; });
  refused(invalid, "scales", [](Call& c) { c.args.scales.data = nullptr; });
  refused(invalid, "zero_points", [](Call& c) { c.args.zero_points = {}; });
  refused(invalid, "input", [](Call& c) { c.args.input = TensorRef(c.input.data(), {4, 7}); });
  refused(invalid, "output", [](Call& c) { c.args.output = TensorMut(c.output.data(), {6, 4}); });
  refused(invalid, "output", [](Call& c) {
    c.args.output = TensorMut(c.output.data(), {4, 6}, {6, 2});
  });
  refused(invalid, "scales", [](Call& c) { c.args.scales = TensorMut(c.scales.data(), {5}); });
  refused(invalid, "scales", [](Call& c) { c.args.scales = TensorMut(c.scales.data(), {6}, {2}); });
  refused(invalid, "zero_points",
          [](Call& c) { c.args.zero_points = TensorMut(c.zero_points.data(), {7}); });
  refused(ErrorCode::buffer_too_small, "input", [](Call& c) { c.args.input.buffer_bytes = 95; });
  refused(ErrorCode::buffer_too_small, "output", [](Call& c) { c.args.output.buffer_bytes = 23; });
  refused(ErrorCode::buffer_too_small, "scales", [](Call& c) { c.args.scales.buffer_bytes = 23; });
  refused(ErrorCode::misaligned_operand, "scales",
          [](Call& c) { c.args.scales.data = reinterpret_cast<std::byte*>(c.scales.data()) + 2; });
  refused(invalid, "output", [](Call& c) { c.args.output.data = c.input.data(); });
  refused(invalid, "output", [](Call& c) { c.args.output.data = c.scales.data(); });
  refused(invalid, "scales", [](Call& c) { c.args.scales.data = c.input.data() + 3; });
  refused(invalid, "zero_points", [](Call& c) { c.args.zero_points.data = c.input.data(); });
  refused(invalid, "zero_points", [](Call& c) { c.args.zero_points.data = c.scales.data() + 5; });
  refused(
      ErrorCode::workspace_too_small, "workspace", [](Call& c) { c.lent.bytes = 47; }, true);
  refused(
      invalid, "workspace", [](Call& c) { c.lent.data = c.input.data(); }, true);
}

// ---- guard pages -------------------------------------------------------------------------------

TEST(DynamicRangeGuard, NoByteOutside) {
  DynamicGuardPlan guard;
  if (slow_machine()) guard = {.max_length = 70, .step = 7, .offsets = {0, 12}};
  std::string skipped;
  for (const Target target : tested_targets()) {
    if (!no_guard_tests(target).empty()) {
      skipped = no_guard_tests(target);
      continue;
    }
    for (const RangeMode mode : all_modes)
      for (const auto& [element, integer] : mixed_types)
        if (is_offered(mode, integer)) {
          EXPECT_EQ(check_dynamic_guards(target, mode, element, integer, guard), "");
        }
  }
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

}  // namespace
}  // namespace octavo::testing
