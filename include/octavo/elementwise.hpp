// What the elementwise plans share. Users include quantize.hpp, dequantize.hpp, fake_quantize.hpp.
//
// An operation is a plan:
//
//     descriptor --select--> plan --can_implement(args)--> --run(stream, workspace, args)-->
//
// A plan is an immutable, copyable value and may run from many threads at once, each with its own
// workspace. Nothing here throws on bad input; after a refusal no byte of output has changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "octavo/result.hpp"
#include "octavo/sku.hpp"
#include "octavo/stream.hpp"
#include "octavo/tensor.hpp"

namespace octavo {

/// Arguments of a forward plan with one scale.
struct PerTensorArgs {
  TensorRef input;
  double scale = 1.0;  ///< rounded to the compute type before it is used
  std::int32_t zero_point = 0;
  TensorMut output;
};

/// Arguments of a forward plan with many scales: one per channel, token or group.
struct PerSliceArgs {
  TensorRef input;
  TensorRef scales;            ///< contiguous, of the plan's scale type
  TensorRef zero_points = {};  ///< s32, contiguous, as many as scales; left out: all 0
  TensorMut output;
};

/// Arguments of the backward pass of quantize and fake-quantize. `input` is the forward input.
struct PerTensorBackwardArgs {
  TensorRef input;
  TensorRef grad_output;
  double scale = 1.0;
  std::int32_t zero_point = 0;
  TensorMut grad_input;
};
struct PerSliceBackwardArgs {
  TensorRef input;
  TensorRef grad_output;
  TensorRef scales;
  TensorRef zero_points = {};
  TensorMut grad_input;
};

/// Arguments of the backward pass of dequantize: linear, so neither input nor zero point matter.
struct PerTensorLinearBackwardArgs {
  TensorRef grad_output;
  double scale = 1.0;
  TensorMut grad_input;
};
struct PerSliceLinearBackwardArgs {
  TensorRef grad_output;
  TensorRef scales;
  TensorMut grad_input;
};

namespace detail {

// Any descriptor, in one form.
struct ElementwiseProblem {
  Op op = Op::quantize;
  Layout layout = Layout::per_tensor;
  Shape shape;  // tensor: [numel]; channel: as given; token: [tokens, hidden]; group: [rows, cols]
  int axis = 0;
  std::int64_t group_size = 0;
  DType element = DType::f32;  // the float side
  DType integer = DType::s8;   // the integer side, unless has_integer is false
  bool has_integer = true;
  bool has_range = true;  // whether q_min, q_max and the profile take part
  std::optional<std::int32_t> q_min;
  std::optional<std::int32_t> q_max;
  Profile profile = Profile::torch;
  std::optional<DType> scale_type;

  friend bool operator==(const ElementwiseProblem&, const ElementwiseProblem&) = default;
};

// Any arguments, in one form.
struct ElementwiseArgs {
  const TensorRef* input = nullptr;
  const TensorRef* grad = nullptr;
  const TensorMut* output = nullptr;
  const TensorRef* scales = nullptr;  // null: the one scale below
  const TensorRef* zero_points = nullptr;
  double scale = 1.0;
  std::int32_t zero_point = 0;
};

class ElementwiseImpl;

// The plan behind all of the names below: it holds the implementation that was chosen for it.
class OCTAVO_API AnyElementwisePlan {
 public:
  static Result<AnyElementwisePlan> select(const Stream& stream, const ElementwiseProblem& problem,
                                           const PlanPreference& preference);
  AnyElementwisePlan(const AnyElementwisePlan&) = default;  // (and no move, which would leave an
  AnyElementwisePlan& operator=(const AnyElementwisePlan&) = default;  // empty one)
  ~AnyElementwisePlan() = default;

  [[nodiscard]] Status can_implement(const ElementwiseArgs& args) const;
  [[nodiscard]] std::size_t workspace_size() const noexcept;
  Status run(const Stream& stream, Workspace workspace, const ElementwiseArgs& args) const;
  [[nodiscard]] const KernelSku& sku() const noexcept;
  [[nodiscard]] std::int64_t slices() const noexcept;  // scales

 private:
  explicit AnyElementwisePlan(std::shared_ptr<const ElementwiseImpl> impl)
      : impl_(std::move(impl)) {}
  std::shared_ptr<const ElementwiseImpl> impl_;
};

template <Op op, Layout layout, class Descriptor>
ElementwiseProblem to_problem(const Descriptor& d) {
  ElementwiseProblem p;
  p.op = op;
  p.layout = layout;
  if constexpr (layout == Layout::per_tensor) p.shape = {d.numel};
  if constexpr (layout == Layout::per_token) p.shape = {d.tokens, d.hidden};
  if constexpr (layout == Layout::per_group) {
    p.shape = {d.rows, d.cols};
    p.group_size = d.group_size;
  }
  if constexpr (layout == Layout::per_channel) {
    p.shape = d.shape;
    p.axis = d.axis;
  }
  if constexpr (op == Op::quantize || op == Op::quantize_backward) {
    p.element = d.input;
    p.integer = d.output;
  } else if constexpr (op == Op::dequantize || op == Op::dequantize_backward) {
    p.element = d.output;
    p.integer = d.input;
    p.has_range = false;
  } else {
    p.element = d.element;
    p.has_integer = false;
  }
  if constexpr (op != Op::dequantize && op != Op::dequantize_backward) {
    p.q_min = d.q_min;
    p.q_max = d.q_max;
    p.profile = d.profile;
  }
  if constexpr (layout != Layout::per_tensor) p.scale_type = d.scale_type;
  return p;
}

template <class Args>
ElementwiseArgs to_args(const Args& a) {
  ElementwiseArgs e;
  if constexpr (requires { a.input; }) e.input = &a.input;
  if constexpr (requires { a.grad_output; }) e.grad = &a.grad_output;
  if constexpr (requires { a.output; }) {
    e.output = &a.output;
  } else {
    e.output = &a.grad_input;
  }
  if constexpr (requires { a.scales; }) {
    e.scales = &a.scales;
  } else {
    e.scale = a.scale;
  }
  if constexpr (requires { a.zero_points; }) e.zero_points = &a.zero_points;
  if constexpr (requires { a.zero_point; }) e.zero_point = a.zero_point;
  return e;
}

}  // namespace detail

/// One operation at one granularity: the class behind `QuantizePerTensorPlan` and its family.
template <Op op, Layout layout, class DescriptorT, class ArgsT>
class ElementwisePlan {
 public:
  using Descriptor = DescriptorT;
  using Args = ArgsT;

  /// Chooses a kernel, and refuses what no kernel can do.
  static Result<ElementwisePlan> select(const Stream& stream, const Descriptor& descriptor,
                                        const PlanPreference& preference = {}) {
    const auto plan = detail::AnyElementwisePlan::select(
        stream, detail::to_problem<op, layout>(descriptor), preference);
    if (!plan) return plan.error();
    return ElementwisePlan(*plan);
  }

  /// The same, with the types taken from C++: `select<float, std::int8_t>(...)` for quantize,
  /// `select<std::int8_t, float>(...)` for dequantize, `select<float>(...)` for fake-quantize.
  template <Element... Types>
  requires(sizeof...(Types) >
           0) static Result<ElementwisePlan> select(const Stream& stream, Descriptor descriptor,
                                                    const PlanPreference& preference = {}) {
    if constexpr (requires { descriptor.element; }) {
      static_assert(sizeof...(Types) == 1, "fake-quantize has one element type");
      ((descriptor.element = dtype_of<Types>), ...);
    } else {
      static_assert(sizeof...(Types) == 2, "name the input and the output type");
      constexpr DType types[] = {dtype_of<Types>...};
      descriptor.input = types[0];
      descriptor.output = types[1];
    }
    return select(stream, std::as_const(descriptor), preference);
  }

  /// Whether `run` would accept these arguments, and if not, why. On the CPU it reads scales and
  /// zero points; where work is queued, Stream::synchronize tells of them.
  [[nodiscard]] Status can_implement(const Args& args) const {
    return plan_.can_implement(detail::to_args(args));
  }
  /// Bytes of workspace that `run` needs; 0 unless scales are given in another type than the
  /// compute type.
  [[nodiscard]] std::size_t workspace_size() const noexcept { return plan_.workspace_size(); }
  /// Does the work, on a stream of the plan's backend; on the CPU it is done when this returns.
  /// Allocates nothing.
  Status run(const Stream& stream, Workspace workspace, const Args& args) const {
    return plan_.run(stream, workspace, detail::to_args(args));
  }
  [[nodiscard]] const KernelSku& sku() const noexcept { return plan_.sku(); }
  [[nodiscard]] const PrecisionGuarantee& precision_guarantee() const noexcept {
    return plan_.sku().guarantee;
  }

 private:
  explicit ElementwisePlan(const detail::AnyElementwisePlan& plan) : plan_(plan) {}
  detail::AnyElementwisePlan plan_;
};

}  // namespace octavo
