// quantize, dequantize, fake_quantize and their gradients: one call behind six names.
#include "functions.hpp"
#include "plan_cache.hpp"

namespace octavo::python {
namespace {

using Problem = detail::ElementwiseProblem;
using Plan = detail::AnyElementwisePlan;

constexpr Renames forward_names{{"input", "x"},      {"output", "out"},
                                {"scales", "scale"}, {"zero_points", "zero_point"},
                                {"numel", "x"},      {"shape", "x"}};
constexpr Renames dequantize_names{{"input", "q"},      {"output", "out"},
                                   {"scales", "scale"}, {"zero_points", "zero_point"},
                                   {"numel", "q"},      {"shape", "q"}};
constexpr Renames backward_names{
    {"input", "x"},      {"grad_output", "dy"},         {"grad_input", "out"}, {"output", "out"},
    {"scales", "scale"}, {"zero_points", "zero_point"}, {"numel", "x"},        {"shape", "x"}};

// What a selection refuses: the output's type is then the dtype that was asked for.
constexpr Renames select_names{{"input", "x"},  {"element", "x"}, {"output", "dtype"},
                               {"numel", "x"},  {"shape", "x"},   {"tokens", "x"},
                               {"hidden", "x"}, {"rows", "x"},    {"cols", "x"}};
constexpr Renames select_dequantize_names{{"input", "q"}, {"output", "dtype"}, {"numel", "q"},
                                          {"shape", "q"}, {"tokens", "q"},     {"hidden", "q"},
                                          {"rows", "q"},  {"cols", "q"}};

std::shared_ptr<const Plan> cached(const Stream& stream, const Problem& p) {
  static auto* cache = new PlanCache<Problem, Plan>();
  return cache->get(stream, p, [&] {
    const Result<Plan> plan = Plan::select(stream, p, {});
    if (!plan)
      refuse(plan.error(), p.op == Op::dequantize ? select_dequantize_names : select_names);
    return *plan;
  });
}

// Sets the problem's sizes and the scales and zero points of its call. What these return lives in
// `scales` and `zero_points`.
struct Parameters {
  Numbers scale;
  Numbers zero_point;
  TensorRef scales;
  TensorRef zero_points;

  Parameters(nb::handle s, nb::handle z, On& on)
      : scale(s, "scale", false, on),
        zero_point(z, "zero_point", true, on) {
    if (!scale.given()) invalid("scale", "expected a number or an array, got None");
  }

  void apply(const Shape& shape, const Granularity& g, Problem& p, detail::ElementwiseArgs& args,
             On& on) {
    std::int64_t numel = 1;
    for (int i = 0; i < shape.rank(); ++i) numel *= shape[i];
    const auto check = [&](const Numbers& n, const char* argument) {
      if (n.one() || n.shape() == g.shape) return;
      if (g.layout == Layout::per_tensor)
        invalid(argument, fmt::format("expected one number (per tensor), got shape {}; name the "
                                      "axis or the group_size that it belongs to",
                                      to_string(n.shape())));
      invalid(argument, fmt::format("expected shape {} or one number, got shape {}",
                                    to_string(g.shape), to_string(n.shape())));
    };
    check(scale, "scale");
    check(zero_point, "zero_point");
    if (scale.single() && zero_point.single()) {
      // One number for all is the same at every granularity.
      p.layout = Layout::per_tensor;
      p.shape = Shape{numel};
      args.scale = scale.value();
      args.zero_point = zero_point.given() ? zero_point.integer() : 0;
      return;
    }
    if (scale.one() && zero_point.one()) {
      // One that nobody reads here: that of the one channel of a dimension more.
      if (shape.rank() == max_rank)
        invalid("scale",
                fmt::format("expected a number, or one on a device for a tensor of at most "
                            "{} dimensions, got one for {}",
                            max_rank - 1, max_rank));
      p.layout = Layout::per_channel;
      p.shape = with_one(shape, 1);
      lifts = true;
      set_arrays(1, p, args, on);
      return;
    }
    const std::int64_t last = shape.rank() > 0 ? shape[shape.rank() - 1] : 1;
    p.layout = g.layout;
    p.axis = g.axis;
    p.group_size = g.group_size;
    if (g.layout == Layout::per_channel) {
      p.shape = shape;
    } else {
      std::int64_t rows = 1;
      for (int i = 0; i < shape.rank() - 1; ++i) rows *= shape[i];
      p.shape = Shape{rows, last};
    }
    set_arrays(g.count, p, args, on);
  }

  // A tensor of the call as the problem has it.
  template <class Tensor>
  [[nodiscard]] Tensor lifted(Tensor t) const {
    if (!lifts) return t;
    t.shape = with_one(t.shape, 1);
    t.strides = with_one(t.strides, 0);
    return t;
  }

 private:
  // A dimension in front.
  static Shape with_one(const Shape& shape, std::int64_t first) {
    std::array<std::int64_t, max_rank> sizes{first};
    for (int i = 0; i < shape.rank(); ++i) sizes[static_cast<std::size_t>(i) + 1] = shape[i];
    return {
        std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(shape.rank()) + 1)};
  }

  void set_arrays(std::int64_t count, Problem& p, detail::ElementwiseArgs& args, On& on) {
    scales = scale.ref(count, on);
    p.scale_type = scales.dtype;
    args.scales = &scales;
    if (!zero_point.given() || !zero_point.matter()) return;
    zero_points = zero_point.ref(count, on);
    args.zero_points = &zero_points;
  }

  bool lifts = false;
};

void set_range(Problem& p, nb::handle q_min, nb::handle q_max, nb::handle profile) {
  p.q_min = parse_int32(q_min, "q_min");
  p.q_max = parse_int32(q_max, "q_max");
  p.profile = parse_profile(profile);
}

nb::object run(On& on, const Problem& p, const detail::ElementwiseArgs& args, Renames names,
               const Output& output) {
  const Status status = run_plan(*cached(on.stream(), p), on, args);
  if (!status) refuse(status.error(), names);
  return output.object();
}

// x (and dy) to out.
nb::object from_float(Op op, nb::handle x, nb::handle dy, nb::handle scale, nb::handle zero_point,
                      Problem p, nb::handle axis, nb::handle group_size, nb::handle out,
                      nb::handle stream) {
  On on(stream);
  const Array input(x, "x", on);
  Parameters parameters(scale, zero_point, on);
  p.op = op;
  p.element = input.dtype();
  const bool backward = op == Op::quantize_backward || op == Op::fake_quantize_backward;
  const Renames names = backward ? backward_names : forward_names;
  if (!is_float(p.element))
    unsupported("x", fmt::format("expected float32, float64, float16 or bfloat16, got {}",
                                 name(input.held)));
  detail::ElementwiseArgs args;
  parameters.apply(input.shape, parse_granularity(input.shape, axis, group_size), p, args, on);
  const TensorRef in = parameters.lifted(input.ref());
  args.input = &in;
  std::optional<Array> grad;
  TensorRef grad_ref;
  if (backward) {
    grad.emplace(dy, "dy", on);
    if (!(grad->shape == input.shape))
      invalid("dy", fmt::format("expected shape {}, that of x, got {}", to_string(input.shape),
                                to_string(grad->shape)));
    grad_ref = parameters.lifted(grad->ref());
    args.grad = &grad_ref;
  }
  const Output output(out, input.maker, input.shape, op == Op::quantize ? p.integer : p.element, on,
                      op == Op::quantize ? "dtype" : "x");
  const TensorMut to = parameters.lifted(output.tensor());
  args.output = &to;
  return run(on, p, args, names, output);
}

}  // namespace

nb::object quantize(nb::handle x, nb::handle scale, nb::handle zero_point, nb::handle dtype,
                    nb::handle axis, nb::handle group_size, nb::handle q_min, nb::handle q_max,
                    nb::handle profile, nb::handle out, nb::handle stream) {
  Problem p;
  p.integer = parse_dtype(dtype, "dtype");
  set_range(p, q_min, q_max, profile);
  return from_float(Op::quantize, x, nb::handle(), scale, zero_point, p, axis, group_size, out,
                    stream);
}

nb::object quantize_backward(nb::handle x, nb::handle dy, nb::handle scale, nb::handle zero_point,
                             nb::handle dtype, nb::handle axis, nb::handle group_size,
                             nb::handle q_min, nb::handle q_max, nb::handle profile, nb::handle out,
                             nb::handle stream) {
  Problem p;
  p.integer = parse_dtype(dtype, "dtype");
  set_range(p, q_min, q_max, profile);
  return from_float(Op::quantize_backward, x, dy, scale, zero_point, p, axis, group_size, out,
                    stream);
}

nb::object fake_quantize(nb::handle x, nb::handle scale, nb::handle zero_point, nb::handle q_min,
                         nb::handle q_max, nb::handle axis, nb::handle group_size,
                         nb::handle profile, nb::handle out, nb::handle stream) {
  Problem p;
  p.has_integer = false;
  set_range(p, q_min, q_max, profile);
  return from_float(Op::fake_quantize, x, nb::handle(), scale, zero_point, p, axis, group_size, out,
                    stream);
}

nb::object fake_quantize_backward(nb::handle x, nb::handle dy, nb::handle scale,
                                  nb::handle zero_point, nb::handle q_min, nb::handle q_max,
                                  nb::handle axis, nb::handle group_size, nb::handle profile,
                                  nb::handle out, nb::handle stream) {
  Problem p;
  p.has_integer = false;
  set_range(p, q_min, q_max, profile);
  return from_float(Op::fake_quantize_backward, x, dy, scale, zero_point, p, axis, group_size, out,
                    stream);
}

nb::object dequantize(nb::handle q, nb::handle scale, nb::handle zero_point, nb::handle dtype,
                      nb::handle q_dtype, nb::handle length, nb::handle axis, nb::handle group_size,
                      nb::handle out, nb::handle stream) {
  On on(stream);
  const Array input(q, "q", on);
  Parameters parameters(scale, zero_point, on);
  Problem p;
  p.op = Op::dequantize;
  p.has_range = false;
  p.element = parse_dtype(dtype, "dtype");
  const TensorRef given = read_as(input.ref(), input, q_dtype, length);
  p.integer = given.dtype;
  detail::ElementwiseArgs args;
  parameters.apply(given.shape, parse_granularity(given.shape, axis, group_size), p, args, on);
  const TensorRef in = parameters.lifted(given);
  args.input = &in;
  const Output output(out, input.maker, given.shape, p.element, on);
  const TensorMut to = parameters.lifted(output.tensor());
  args.output = &to;
  return run(on, p, args, dequantize_names, output);
}

nb::object dequantize_backward(nb::handle dy, nb::handle scale, nb::handle axis,
                               nb::handle group_size, nb::handle out, nb::handle stream) {
  On on(stream);
  const Array grad(dy, "dy", on);
  Parameters parameters(scale, nb::none(), on);
  Problem p;
  p.op = Op::dequantize_backward;
  p.has_range = false;
  p.element = grad.dtype();
  if (!is_float(p.element))
    unsupported("dy", fmt::format("expected float32, float64, float16 or bfloat16, got {}",
                                  name(grad.held)));
  detail::ElementwiseArgs args;
  parameters.apply(grad.shape, parse_granularity(grad.shape, axis, group_size), p, args, on);
  const TensorRef in = parameters.lifted(grad.ref());
  args.grad = &in;
  const Output output(out, grad.maker, grad.shape, p.element, on, "dy");
  const TensorMut to = parameters.lifted(output.tensor());
  args.output = &to;
  return run(on, p, args, backward_names, output);
}

Quantized quantize_dynamic(nb::handle x, nb::handle scope, nb::handle mode, nb::handle dtype,
                           nb::handle axis, nb::handle group_size, nb::handle q_min,
                           nb::handle q_max, nb::handle profile, nb::handle out,
                           nb::handle stream) {
  On on(stream);
  const Array input(x, "x", on);
  DynamicRangeQuantizeDescriptor d;
  d.shape = input.shape;
  d.mode = parse_mode(mode);
  d.output = parse_dtype(dtype, "dtype");
  d.q_min = parse_int32(q_min, "q_min");
  d.q_max = parse_int32(q_max, "q_max");
  d.profile = parse_profile(profile);
  d.input = input.dtype();
  const std::string_view wanted = text_of(scope);
  const auto none = nb::none();
  const auto only = [&](bool is_given, const char* argument, const char* with) {
    if (is_given)
      invalid(argument, fmt::format("expected none with scope '{}' (it belongs to '{}'), got one",
                                    wanted, with));
  };
  if (input.rank() == 0 && (wanted == "token" || wanted == "group"))
    invalid("x", fmt::format("expected at least one dimension with scope '{}', got a scalar; use "
                             "scope 'tensor'",
                             wanted));
  Granularity g;
  if (wanted == "tensor") {
    only(!axis.is_none(), "axis", "channel");
    only(!group_size.is_none(), "group_size", "group");
  } else if (wanted == "token") {
    only(!axis.is_none(), "axis", "channel");
    only(!group_size.is_none(), "group_size", "group");
    g = parse_granularity(input.shape, nb::str("token"), none);
  } else if (wanted == "channel") {
    only(!group_size.is_none(), "group_size", "group");
    if (axis.is_none()) invalid("axis", "expected the axis of the channels, got None");
    g = parse_granularity(input.shape, nb::int_(*parse_integer(axis, "axis")), none);
  } else if (wanted == "group") {
    only(!axis.is_none(), "axis", "channel");
    if (group_size.is_none()) invalid("group_size", "expected the size of a group, got None");
    g = parse_granularity(input.shape, none, group_size);
  } else {
    unsupported("scope", fmt::format("expected 'token', 'tensor', 'channel' or 'group', got {}",
                                     describe(scope)));
  }
  d.scope = g.layout;
  d.axis = g.axis;
  d.group_size = g.group_size;
  static auto* cache = new PlanCache<DynamicRangeQuantizeDescriptor, DynamicRangeQuantizePlan>();
  const auto plan = cache->get(on.stream(), d, [&] {
    const auto selected = DynamicRangeQuantizePlan::select(on.stream(), d);
    if (!selected) refuse(selected.error(), select_names);
    return *selected;
  });
  const bool symmetric = d.mode == RangeMode::symmetric;
  const Output output(out, input.maker, input.shape, d.output, on);
  const Output scales(none, input.maker, g.shape, d.input == DType::f64 ? DType::f64 : DType::f32,
                      on);
  std::optional<Output> zero_points;
  if (!symmetric) zero_points.emplace(none, input.maker, g.shape, DType::s32, on);
  DynamicRangeQuantizeArgs args{
      .input = input.ref(),
      .output = output.tensor(),
      .scales = {scales.tensor().data, scales.tensor().dtype, Shape{g.count}}};
  if (zero_points) args.zero_points = {zero_points->tensor().data, DType::s32, Shape{g.count}};
  const Status status = run_plan(*plan, on, args);
  if (!status) refuse(status.error(), forward_names);
  return nb::make_tuple(output.object(), scales.object(),
                        zero_points ? zero_points->object() : nb::none());
}

}  // namespace octavo::python
