// All 24 public plans behind one face, and calls whose every argument a test may change.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/elementwise/testing.hpp"

namespace octavo::testing {

/// The arguments of any plan; a plan takes those it has a field for.
struct Call {
  TensorRef input;
  TensorRef grad;
  TensorRef scales;
  TensorRef zero_points;
  double scale = 1.0;
  std::int32_t zero_point = 0;
  TensorMut output;
};

/// A selected plan of any of the 24 classes.
class AnyPlan {
 public:
  virtual ~AnyPlan() = default;
  [[nodiscard]] virtual Status can_implement(const Call& call) const = 0;
  virtual Status run(const Stream& stream, Workspace workspace, const Call& call) const = 0;
  [[nodiscard]] virtual std::size_t workspace_size() const = 0;
  [[nodiscard]] virtual const KernelSku& sku() const = 0;
  [[nodiscard]] virtual const PrecisionGuarantee& precision_guarantee() const = 0;
};

namespace internal {

template <class Descriptor>
Descriptor to_descriptor(const Problem& p) {
  Descriptor d;
  if constexpr (requires { d.numel; }) d.numel = p.shape[0];
  if constexpr (requires { d.shape; }) {
    d.shape = p.shape;
    d.axis = p.axis;
  }
  if constexpr (requires { d.tokens; }) {
    d.tokens = p.shape[0];
    d.hidden = p.shape[1];
  }
  if constexpr (requires { d.rows; }) {
    d.rows = p.shape[0];
    d.cols = p.shape[1];
    d.group_size = p.group_size;
  }
  if constexpr (requires { d.element; }) {
    d.element = p.element;
    d.q_min = p.q_min.value_or(d.q_min);
    d.q_max = p.q_max.value_or(d.q_max);
  } else {
    d.input = p.op == Op::quantize || p.op == Op::quantize_backward ? p.element : p.integer;
    d.output = p.op == Op::quantize || p.op == Op::quantize_backward ? p.integer : p.element;
    if constexpr (requires { d.q_min; }) {
      d.q_min = p.q_min;
      d.q_max = p.q_max;
    }
  }
  if constexpr (requires { d.profile; }) d.profile = p.profile;
  if constexpr (requires { d.scale_type; }) d.scale_type = p.scale_type;
  return d;
}

template <class Args>
Args to_args(const Call& c) {
  Args a;
  if constexpr (requires { a.input; }) a.input = c.input;
  if constexpr (requires { a.grad_output; }) a.grad_output = c.grad;
  if constexpr (requires { a.scale; }) a.scale = c.scale;
  if constexpr (requires { a.scales; }) a.scales = c.scales;
  if constexpr (requires { a.zero_point; }) a.zero_point = c.zero_point;
  if constexpr (requires { a.zero_points; }) a.zero_points = c.zero_points;
  if constexpr (requires { a.output; }) {
    a.output = c.output;
  } else {
    a.grad_input = c.output;
  }
  return a;
}

template <class Plan>
class PlanOf : public AnyPlan {
 public:
  explicit PlanOf(Plan plan) : plan_(std::move(plan)) {}
  [[nodiscard]] Status can_implement(const Call& call) const override {
    return plan_.can_implement(to_args<typename Plan::Args>(call));
  }
  Status run(const Stream& stream, Workspace workspace, const Call& call) const override {
    return plan_.run(stream, workspace, to_args<typename Plan::Args>(call));
  }
  [[nodiscard]] std::size_t workspace_size() const override { return plan_.workspace_size(); }
  [[nodiscard]] const KernelSku& sku() const override { return plan_.sku(); }
  [[nodiscard]] const PrecisionGuarantee& precision_guarantee() const override {
    return plan_.precision_guarantee();
  }

 private:
  Plan plan_;
};

using Selected = Result<std::shared_ptr<const AnyPlan>>;

template <class Plan>
Selected select_as(const Stream& stream, const Problem& p, const PlanPreference& preference) {
  auto plan = Plan::select(stream, to_descriptor<typename Plan::Descriptor>(p), preference);
  if (!plan) return plan.error();
  return std::shared_ptr<const AnyPlan>(std::make_shared<PlanOf<Plan>>(*std::move(plan)));
}

using SelectFunction = Selected (*)(const Stream&, const Problem&, const PlanPreference&);
template <class... Plans>
constexpr std::array<SelectFunction, sizeof...(Plans)> table = {select_as<Plans>...};

// In the order of Op and, within it, of Layout.
inline constexpr auto& selectors =
    table<QuantizePerTensorPlan, QuantizePerChannelPlan, QuantizePerTokenPlan, QuantizePerGroupPlan,
          QuantizePerTensorBackwardPlan, QuantizePerChannelBackwardPlan,
          QuantizePerTokenBackwardPlan, QuantizePerGroupBackwardPlan, DequantizePerTensorPlan,
          DequantizePerChannelPlan, DequantizePerTokenPlan, DequantizePerGroupPlan,
          DequantizePerTensorBackwardPlan, DequantizePerChannelBackwardPlan,
          DequantizePerTokenBackwardPlan, DequantizePerGroupBackwardPlan, FakeQuantizePlan,
          FakeQuantizePerChannelPlan, FakeQuantizePerTokenPlan, FakeQuantizePerGroupPlan,
          FakeQuantizeBackwardPlan, FakeQuantizePerChannelBackwardPlan,
          FakeQuantizePerTokenBackwardPlan, FakeQuantizePerGroupBackwardPlan>;

}  // namespace internal

/// Selects the public plan that the problem's op and layout name.
inline internal::Selected select_plan(const Stream& stream, const Problem& p,
                                      const PlanPreference& preference = {}) {
  const std::size_t index = static_cast<std::size_t>(p.op) * 4 + static_cast<std::size_t>(p.layout);
  return internal::selectors[index](stream, p, preference);
}

/// "quantize_backward.per_group.f32.s8"
[[nodiscard]] inline std::string title(const Problem& p) {
  return std::string(name(p.op)) + "." + std::string(name(p.layout)) + "." +
         std::string(name(p.element)) + "." + std::string(name(p.integer));
}

/// Contiguous arguments over the operands' own memory.
[[nodiscard]] inline Call call_of(const Operands& o, void* output) {
  const Problem& p = o.problem;
  const Shape slices{slice_count(p)};
  Call c;
  c.input = {o.input.data(), input_type(p), p.shape};
  c.grad = {o.grad.data(), p.element, p.shape};
  c.scales = {o.scale_bytes.data(), scale_type(p), slices};
  c.zero_points = {o.zero_points.data(), DType::s32, slices};
  c.scale = o.scales.empty() ? 1.0 : o.scales[0];
  c.zero_point = o.zero_points.empty() ? 0 : o.zero_points[0];
  c.output = {output, output_type(p), p.shape};
  return c;
}

/// A small problem of the op and layout: 24 elements, as [4, 6] where the layout has rows.
[[nodiscard]] inline Problem small_problem(Op op, Layout layout, DType element = DType::f32,
                                           DType integer = DType::s8) {
  const Shape shape = layout == Layout::per_tensor ? Shape{24} : Shape{4, 6};
  return problem_of({op, layout, element, integer, Profile::torch}, shape, 1, 3);
}

/// fn(problem) for each of the 24 plans.
template <class Fn>
void for_each_plan(Fn fn, DType element = DType::f32, DType integer = DType::s8) {
  for (const Op op : all_ops)
    for (const Layout layout : all_layouts) fn(small_problem(op, layout, element, integer));
}

}  // namespace octavo::testing
