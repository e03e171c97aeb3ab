// Six operations at four granularities, through the one form that the C++ names share.
#include "octavo/elementwise.hpp"
#include "c/boundary.hpp"
#include "octavo/fake_quantize.hpp"
#include "ops/runs/problem.hpp"

namespace octavo::c {
namespace {

using detail::AnyElementwisePlan;
using detail::ElementwiseArgs;
using detail::ElementwiseProblem;
using detail::invalid;

bool is_dequantize(Op op) { return op == Op::dequantize || op == Op::dequantize_backward; }
bool is_fake(Op op) { return op == Op::fake_quantize || op == Op::fake_quantize_backward; }
bool is_backward(Op op) {
  return op == Op::quantize_backward || op == Op::dequantize_backward ||
         op == Op::fake_quantize_backward;
}

// The shape of the tensor, as the plan of its granularity wants it.
Shape collapsed(Reader& reader, Layout layout, const Shape& shape) {
  const Result<std::int64_t> numel = detail::count_elements("shape", shape);
  if (!numel) {
    reader.refuse(numel.error());
    return {};
  }
  if (layout == Layout::per_tensor) return {*numel};
  if (layout == Layout::per_channel) return shape;
  if (shape.rank() == 0) {
    reader.refuse(invalid("shape", "expected rows (a rank of at least 1), got []"));
    return {};
  }
  const std::int64_t rows = detail::leading_rows(shape);
  if (rows < 0)
    reader.refuse(invalid(
        "shape", fmt::format("expected fewer than 2^60 rows, got {}", detail::to_string(shape))));
  return {rows, shape[shape.rank() - 1]};
}

ElementwiseProblem problem_of(Reader& reader, const octavo_elementwise_desc* desc) {
  const octavo_elementwise_desc d = reader.need("desc", desc);
  ElementwiseProblem p;
  p.op = reader.enumerator<Op>("op", d.op, static_cast<int>(Op::fake_quantize_backward) + 1);
  p.layout = reader.layout("layout", d.layout);
  p.shape = collapsed(reader, p.layout, reader.sizes("shape", d.rank, d.shape));
  p.axis = d.axis;
  p.group_size = d.group_size;
  const DType input = reader.dtype("input", d.input);
  const DType output = reader.dtype("output", d.output);
  p.element = is_dequantize(p.op) ? output : input;
  p.integer = is_dequantize(p.op) ? input : output;
  if (is_fake(p.op)) {
    if (input != output)
      reader.refuse(detail::unsupported(
          "output", fmt::format("expected {}, the type of input, got {}; fake-quantize leaves "
                                "floats as they are",
                                name(input), name(output))));
    const FakeQuantizeDescriptor defaults;
    p.has_integer = false;
    p.integer = DType::s8;
    p.q_min = defaults.q_min;
    p.q_max = defaults.q_max;
  }
  p.has_range = !is_dequantize(p.op);
  if (p.has_range) {
    if (d.q_min.is_set != 0) p.q_min = d.q_min.value;
    if (d.q_max.is_set != 0) p.q_max = d.q_max.value;
    p.profile = reader.profile(d.profile);
  }
  if (p.layout != Layout::per_tensor) p.scale_type = reader.dtype("scale_type", d.scale_type);
  return p;
}

// Arguments as C++ wants them. They point into this object.
class Arguments {
 public:
  using Plan = AnyElementwisePlan;
  static constexpr const char* select = "octavo_elementwise_select";

  Arguments(Reader& reader, const Plan& plan, const octavo_elementwise_args* given) {
    const KernelSku& sku = plan.sku();
    const octavo_elementwise_args a = reader.need("args", given);
    const bool backward = is_backward(sku.op);
    if (!reader.ok()) return;
    if (sku.op == Op::dequantize_backward) {
      reader.absent("input", a.input, "the gradient of dequantize does not depend on it");
      reader.absent("zero_points", a.zero_points, "the gradient does not depend on them");
    } else {
      input_ = reader.tensor("input", a.input);
      args_.input = &input_;
    }
    if (backward) {
      grad_ = reader.tensor("grad_output", a.grad_output);
      args_.grad = &grad_;
      reader.absent("output", a.output, "a backward plan writes grad_input");
    } else {
      reader.absent("grad_output", a.grad_output, "this is a forward plan");
      reader.absent("grad_input", a.grad_input, "this is a forward plan");
    }
    output_ =
        backward ? reader.tensor("grad_input", a.grad_input) : reader.tensor("output", a.output);
    args_.output = &output_;
    if (sku.layout == Layout::per_tensor) {
      reader.absent("scales", a.scales, "this plan has one scale, `scale`");
      reader.absent("zero_points", a.zero_points, "this plan has one, `zero_point`");
      args_.scale = a.scale;
      args_.zero_point = a.zero_point;
      return;
    }
    if (a.scale != 0 || a.zero_point != 0)
      reader.refuse(invalid(a.scale != 0 ? "scale" : "zero_point",
                            fmt::format("expected 0, for this plan is {} and takes arrays, got {}",
                                        name(sku.layout), a.scale != 0 ? a.scale : a.zero_point)));
    scales_ = reader.tensor("scales", a.scales);
    zero_points_ = reader.maybe_tensor("zero_points", a.zero_points);
    args_.scales = &scales_;
    args_.zero_points = &zero_points_;
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  [[nodiscard]] const ElementwiseArgs& get() const { return args_; }

 private:
  TensorRef input_, grad_, scales_, zero_points_;
  TensorMut output_;
  ElementwiseArgs args_;
};

}  // namespace
}  // namespace octavo::c

namespace c = octavo::c;

octavo_status octavo_elementwise_select(const octavo_stream* stream,
                                        const octavo_elementwise_desc* desc,
                                        const octavo_preference* preference, octavo_plan** out) {
  return c::guarded([&] {
    return c::select<c::AnyElementwisePlan>(
        stream, preference, out, [&](c::Reader& reader) { return c::problem_of(reader, desc); });
  });
}
octavo_status octavo_elementwise_can_implement(const octavo_plan* plan,
                                               const octavo_elementwise_args* args) {
  return c::guarded([&] { return c::can_implement<c::Arguments>(plan, args); });
}
octavo_status octavo_elementwise_run(const octavo_plan* plan, const octavo_stream* stream,
                                     void* workspace, size_t workspace_bytes,
                                     const octavo_elementwise_args* args) {
  return c::guarded([&] {
    return c::run<c::Arguments>(plan, stream, {workspace, workspace_bytes}, args);
  });
}
