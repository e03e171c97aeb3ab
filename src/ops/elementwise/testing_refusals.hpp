// A good call for a test to spoil, and the proof that it was refused by name and wrote nothing.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ops/elementwise/testing_plans.hpp"

namespace octavo::testing {

enum class Operand : std::uint8_t { input, grad, output, scales, zero_points };

[[nodiscard]] inline std::string argument_name(Operand operand, Op op) {
  switch (operand) {
    case Operand::input:
      return "input";
    case Operand::grad:
      return "grad_output";
    case Operand::output:
      return has_grad(op) ? "grad_input" : "output";
    case Operand::scales:
      return "scales";
    default:
      return "zero_points";
  }
}
/// The fields of a descriptor that hold the float and the integer type.
[[nodiscard]] inline std::string element_field(Op op) {
  if (!has_integer(op)) return "element";
  return has_range(op) ? "input" : "output";
}
[[nodiscard]] inline std::string integer_field(Op op) { return has_range(op) ? "output" : "input"; }

/// What a refusal must say. `mentions` are parts of its message.
struct Refusal {
  ErrorCode code = ErrorCode::invalid_problem;
  std::vector<std::string> arguments;  // any one of them
  std::vector<std::string> mentions;
  std::int64_t needed = 0;
  std::int64_t got = 0;
};

inline void expect_error(const Error& error, const Refusal& expected) {
  using ::testing::HasSubstr;
  EXPECT_EQ(name(error.code()), name(expected.code)) << error.message();
  EXPECT_THAT(expected.arguments, ::testing::Contains(error.argument())) << error.message();
  EXPECT_THAT(error.message(), HasSubstr(error.argument()));
  if (expected.needed == 0) {  // sizes are in `mentions`
    EXPECT_THAT(error.message(), HasSubstr("expected"));
    EXPECT_THAT(error.message(), HasSubstr("got"));
  }
  for (const std::string& part : expected.mentions) EXPECT_THAT(error.message(), HasSubstr(part));
  EXPECT_EQ(error.needed(), expected.needed) << error.message();
  EXPECT_EQ(error.got(), expected.got) << error.message();
}

/// A problem of 24 elements with arguments that fit it: tensors of [4, 6], each in 1 KiB of its
/// own.
class Attempt {
 public:
  explicit Attempt(const Problem& p) : problem(p) {
    fill();
    workspace = {workspace_.data(), sizeof(workspace_)};
    const Shape slices{slice_count(p)};
    at(Operand::input) = {region(Operand::input), input_type(p), {4, 6}};
    at(Operand::grad) = {region(Operand::grad), p.element, {4, 6}};
    at(Operand::output) = {region(Operand::output), output_type(p), {4, 6}};
    at(Operand::scales) = {region(Operand::scales), scale_type(p), slices};
    at(Operand::zero_points) = {region(Operand::zero_points), DType::s32, slices};
    for (std::int64_t i = 0; i < slices[0]; ++i) set_scale(i, 0.5);
  }

  Problem problem;
  CpuOptions options{.threads = 1};
  PlanPreference preference;
  double scale = 0.5;
  std::int32_t zero_point = 3;
  Workspace workspace;

  [[nodiscard]] TensorRef& at(Operand operand) {
    return tensors_[static_cast<std::size_t>(operand)];
  }
  [[nodiscard]] std::byte* region(Operand operand) {
    return memory_.data() + static_cast<std::size_t>(operand) * region_bytes;
  }
  void set_scale(std::int64_t i, double value) {
    const DType type = scale_type(problem);
    store_bits(region(Operand::scales), bits(type) / 8, i, encode(type, value));
    if (problem.layout == Layout::per_tensor) scale = value;
  }

  [[nodiscard]] internal::Selected select() const {
    return select_plan(Stream::cpu(options), problem, preference);
  }

  void expect_select_refused(const Refusal& expected) const {
    SCOPED_TRACE(title(problem));
    const auto plan = select();
    ASSERT_FALSE(plan) << "selected " << to_string((*plan)->sku());
    expect_error(plan.error(), expected);
  }
  /// Both can_implement and run refuse, in the same words, and no byte of any operand changes.
  void expect_refused(const Refusal& expected) {
    SCOPED_TRACE(title(problem));
    const auto plan = select();
    ASSERT_TRUE(plan) << plan.error().message();
    const auto before = memory_;
    const Status asked = (*plan)->can_implement(call());
    EXPECT_FALSE(asked) << "accepted";
    if (!asked) expect_error(asked.error(), expected);
    const Status ran = (*plan)->run(Stream::cpu(options), workspace, call());
    EXPECT_FALSE(ran) << "ran";
    EXPECT_EQ(memory_, before) << "something was written";
    if (asked || ran) return;
    EXPECT_EQ(ran.error().code(), asked.error().code());
    EXPECT_EQ(ran.error().argument(), asked.error().argument());
    EXPECT_EQ(ran.error().message(), asked.error().message());
  }
  /// The same for what only run can know: the workspace.
  void expect_run_refused(const Refusal& expected) {
    SCOPED_TRACE(title(problem));
    const auto plan = select();
    ASSERT_TRUE(plan) << plan.error().message();
    const auto before = memory_;
    const Status ran = (*plan)->run(Stream::cpu(options), workspace, call());
    ASSERT_FALSE(ran) << "ran";
    expect_error(ran.error(), expected);
    EXPECT_EQ(memory_, before) << "something was written";
  }
  void expect_accepted() {
    SCOPED_TRACE(title(problem));
    const auto plan = select();
    ASSERT_TRUE(plan) << plan.error().message();
    const Status asked = (*plan)->can_implement(call());
    EXPECT_TRUE(asked) << asked.error().message();
    const Status ran = (*plan)->run(Stream::cpu(options), workspace, call());
    EXPECT_TRUE(ran) << ran.error().message();
  }

 private:
  static constexpr std::size_t region_bytes = 1024;

  [[nodiscard]] Call call() const {
    const auto& [input, grad, output, scales, zero_points] = tensors_;
    Call c;
    c.input = input;
    c.grad = grad;
    c.scales = scales;
    c.zero_points = zero_points;
    c.scale = scale;
    c.zero_point = zero_point;
    c.output = {const_cast<void*>(output.data), output.dtype, output.shape, output.strides,
                output.buffer_bytes};
    return c;
  }
  // 0x3e3e...: an ordinary number in every type. The output holds something else.
  void fill() {
    memory_.fill(std::byte{0x3e});
    std::memset(region(Operand::zero_points), 0, region_bytes);
    std::memset(region(Operand::output), 0xa5, region_bytes);
  }

  alignas(64) std::array<std::byte, 5 * region_bytes> memory_{};
  alignas(64) std::array<std::byte, 1024> workspace_{};
  std::array<TensorRef, 5> tensors_;
};

/// The tensors of the problem's shape, and the parameter arrays, that a plan of it takes.
[[nodiscard]] inline std::vector<Operand> tensors_of(const Problem& p) {
  std::vector<Operand> operands{Operand::output};
  if (has_input(p.op)) operands.push_back(Operand::input);
  if (has_grad(p.op)) operands.push_back(Operand::grad);
  return operands;
}
[[nodiscard]] inline std::vector<Operand> parameters_of(const Problem& p) {
  if (p.layout == Layout::per_tensor) return {};
  if (!has_input(p.op)) return {Operand::scales};
  return {Operand::scales, Operand::zero_points};
}

}  // namespace octavo::testing
