// The same bits through C as through C++: all 24 elementwise plans, and dynamic ranges.
#include "c/testing.hpp"
#include "ops/dynamic_range/testing.hpp"
#include "ops/elementwise/testing_plans.hpp"

namespace octavo::testing {
namespace {

const Parameters parameters{{0.05, 1.5, 0.25}, {0, 3, -7}};

octavo_elementwise_desc c_descriptor(const Problem& p, const Shape& shape) {
  const bool dequantizes = p.op == Op::dequantize || p.op == Op::dequantize_backward;
  const DType integer = p.has_integer ? p.integer : p.element;
  octavo_elementwise_desc d{};
  d.struct_size = sizeof d;
  d.op = static_cast<octavo_op>(p.op);
  d.layout = static_cast<octavo_layout>(p.layout);
  d.rank = shape.rank();
  d.axis = p.axis;
  d.shape = sizes_of(shape);
  d.group_size = p.group_size;
  d.input = static_cast<octavo_dtype>(dequantizes ? integer : p.element);
  d.output = static_cast<octavo_dtype>(dequantizes ? p.element : integer);
  d.q_min = to_c(p.q_min);
  d.q_max = to_c(p.q_max);
  d.profile = static_cast<octavo_profile>(p.profile);
  d.scale_type = to_c(p.scale_type);
  return d;
}

octavo_elementwise_args c_arguments(CTensors& c, const Problem& p, const Call& call) {
  octavo_elementwise_args a{};
  a.struct_size = sizeof a;
  if (has_input(p.op)) a.input = c(call.input);
  if (has_grad(p.op)) a.grad_output = c(call.grad);
  (has_grad(p.op) ? a.grad_input : a.output) = c(call.output);
  if (p.layout == Layout::per_tensor) {
    a.scale = call.scale;
    a.zero_point = call.zero_point;
  } else {
    a.scales = c(call.scales);
    if (has_input(p.op)) a.zero_points = c(call.zero_points);
  }
  return a;
}

// Both give the same bytes, name the same kernel, and need the same workspace. `shape` is that of
// the tensors in C, where a descriptor has the whole of it.
void expect_same(const Problem& p, const Shape& shape) {
  SCOPED_TRACE(title(p));
  const Operands o = make_operands(p, parameters, 7);
  const auto bytes = static_cast<std::size_t>(output_bytes(p));
  Bytes want(bytes);
  const Stream stream = Stream::cpu();
  const auto plan = select_plan(stream, p);
  ASSERT_TRUE(plan) << plan.error().message();
  const WorkspaceBuffer scratch((*plan)->workspace_size());
  const Status ran = (*plan)->run(stream, scratch, call_of(o, want.data()));
  ASSERT_TRUE(ran) << ran.error().message();

  Bytes got(bytes);
  const auto cpu = c_stream();
  const octavo_elementwise_desc d = c_descriptor(p, shape);
  const auto c_plan = made<octavo_plan>(
      [&](auto out) { return octavo_elementwise_select(cpu.get(), &d, nullptr, out); });
  ASSERT_NE(c_plan, nullptr);
  EXPECT_EQ(octavo_plan_sku(c_plan.get()), to_string((*plan)->sku()));
  EXPECT_EQ(octavo_plan_workspace_size(c_plan.get()), (*plan)->workspace_size());
  EXPECT_EQ(octavo_plan_slices(c_plan.get()), slice_count(p));
  octavo_guarantee guarantee{};
  guarantee.struct_size = sizeof guarantee;
  ASSERT_EQ(octavo_plan_guarantee(c_plan.get(), &guarantee), OCTAVO_OK);
  EXPECT_EQ(guarantee.math, static_cast<int>((*plan)->precision_guarantee().math));
  EXPECT_EQ(guarantee.accumulator.is_set, 0);
  EXPECT_EQ(guarantee.bit_stable_everywhere, 1);

  Call call = call_of(o, got.data());
  call.input = {call.input.data, call.input.dtype, shape};
  call.grad = {call.grad.data, call.grad.dtype, shape};
  call.output = {call.output.data, call.output.dtype, shape};
  CTensors tensors;
  const octavo_elementwise_args args = c_arguments(tensors, p, call);
  const CWorkspace workspace(c_plan.get());
  EXPECT_EQ(octavo_elementwise_can_implement(c_plan.get(), &args), OCTAVO_OK);
  ASSERT_EQ(octavo_elementwise_run(c_plan.get(), cpu.get(), workspace.data, workspace.bytes, &args),
            OCTAVO_OK)
      << octavo_last_error()->message;
  EXPECT_EQ(got, want);
}

TEST(CElementwise, GivesTheBitsOfCxx) {
  for (const Op op : all_ops)
    for (const Layout layout : all_layouts)
      for (const Kind& kind : kinds_of(op, layout)) {
        const Shape shape = layout == Layout::per_tensor ? Shape{40} : Shape{5, 8};
        expect_same(problem_of(kind, shape, -1, 4), shape);
      }
}

TEST(CElementwise, HasTheWholeShape) {
  for (const Op op : all_ops)
    for (const Layout layout : {Layout::per_tensor, Layout::per_token, Layout::per_group}) {
      const Shape collapsed = layout == Layout::per_tensor ? Shape{48} : Shape{6, 8};
      expect_same(problem_of({op, layout}, collapsed, 0, 2), {2, 3, 8});
    }
}

TEST(CElementwise, TakesRangesAndScaleTypes) {
  for (const Op op : all_ops)
    for (const Layout layout : {Layout::per_channel, Layout::per_token, Layout::per_group}) {
      Problem p = problem_of({op, layout}, {5, 8}, 0, 4);
      p.scale_type = DType::f16;
      for (const IntRange range : {IntRange{-100, 99}, IntRange{0, 99}, IntRange{-100, 0}}) {
        if (p.has_range) p.q_min = range.min, p.q_max = range.max;
        expect_same(p, p.shape);
      }
    }
}

TEST(CElementwise, FakeQuantizesToS8Unless) {
  Problem p = problem_of({Op::fake_quantize}, {40});
  const Shape shape = p.shape;
  octavo_elementwise_desc d = c_descriptor(p, shape);
  d.q_min = d.q_max = {0, 0};
  const auto cpu = c_stream();
  const auto plan = made<octavo_plan>(
      [&](auto out) { return octavo_elementwise_select(cpu.get(), &d, nullptr, out); });
  float x[40];
  for (float& value : x) value = 1000;
  x[1] = -1000;
  CTensors tensors;
  octavo_elementwise_args a{};
  a.struct_size = sizeof a;
  a.input = a.output = tensors(TensorMut(x));
  a.scale = 1;
  ASSERT_EQ(octavo_elementwise_run(plan.get(), cpu.get(), nullptr, 0, &a), OCTAVO_OK);
  EXPECT_EQ(x[0], 127);
  EXPECT_EQ(x[1], -128);
}

// ---- dynamic ranges -----------------------------------------------------------------------------

void expect_same(const DynamicCall& call) {
  std::ostringstream text;
  describe(text, call.problem);
  SCOPED_TRACE(text.str());
  const Problem& p = call.problem;
  DynamicResult want;
  ASSERT_EQ(run(Stream::cpu(), call, want), "");

  const DynamicRangeQuantizeDescriptor cpp = descriptor_of(call);
  octavo_dynamic_range_desc d{};
  d.struct_size = sizeof d;
  d.mode = static_cast<octavo_range_mode>(cpp.mode);
  d.scope = static_cast<octavo_layout>(cpp.scope);
  d.rank = cpp.shape.rank();
  d.axis = cpp.axis;
  d.shape = sizes_of(cpp.shape);
  d.group_size = cpp.group_size;
  d.input = static_cast<octavo_dtype>(cpp.input);
  d.output = static_cast<octavo_dtype>(cpp.output);
  d.q_min = to_c(cpp.q_min);
  d.q_max = to_c(cpp.q_max);
  d.profile = static_cast<octavo_profile>(cpp.profile);
  const auto cpu = c_stream();
  const auto plan = made<octavo_plan>(
      [&](auto out) { return octavo_dynamic_range_select(cpu.get(), &d, nullptr, out); });
  ASSERT_NE(plan, nullptr);
  const Shape slices{octavo_plan_slices(plan.get())};
  EXPECT_EQ(slices[0], slice_count(p));

  DynamicResult got{Bytes(want.output.size()), Bytes(want.scales.size()),
                    std::vector<std::int32_t>(want.zero_points.size(), 99)};
  CTensors tensors;
  octavo_dynamic_range_args a{};
  a.struct_size = sizeof a;
  a.input = tensors(TensorRef(call.input.data(), p.element, p.shape));
  a.output = tensors(TensorMut(got.output.data(), p.integer, p.shape));
  a.scales = tensors(TensorMut(got.scales.data(), compute_type(p.element), slices));
  a.zero_points = tensors(TensorMut(got.zero_points.data(), DType::s32, slices));
  const CWorkspace workspace(plan.get());
  EXPECT_EQ(octavo_dynamic_range_can_implement(plan.get(), &a), OCTAVO_OK);
  ASSERT_EQ(octavo_dynamic_range_run(plan.get(), cpu.get(), workspace.data, workspace.bytes, &a),
            OCTAVO_OK)
      << octavo_last_error()->message;
  EXPECT_TRUE(got == want);
}

TEST(CDynamicRange, GivesTheBitsOfCxx) {
  for (const RangeMode mode : all_modes)
    for (const Layout layout : all_layouts)
      for (const Kind& kind : kinds_of(Op::quantize, layout))
        if (is_offered(mode, kind.integer))
          expect_same(make_dynamic(problem_of(kind, {5, 8}, -1, 4), mode, 11));
}

TEST(CDynamicRange, TakesRanges) {
  Problem p = problem_of({Op::quantize, Layout::per_token}, {5, 8});
  p.q_min = -7;
  p.q_max = 7;
  expect_same(make_dynamic(p, RangeMode::symmetric, 3));
}

}  // namespace
}  // namespace octavo::testing
