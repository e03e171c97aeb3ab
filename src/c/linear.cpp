// All linear plans, through the one form that the C++ names share.
#include "octavo/linear.hpp"

#include "c/boundary.hpp"
#include "octavo/float_linear.hpp"
#include "octavo/quantized_linear.hpp"
#include "octavo/quantized_matmul.hpp"
#include "octavo/smoothquant_linear.hpp"

namespace octavo::c {
namespace {

using detail::AnyLinearPlan;
using detail::LinearProblem;

// What the descriptors have in common, and then the problem of this one.
template <class Descriptor>
LinearProblem problem_from(Reader& reader, const octavo_linear_desc& given, Descriptor d) {
  d.m = given.m;
  d.n = given.n;
  d.k = given.k;
  d.activation = reader.dtype("activation", given.activation);
  d.weight = reader.dtype("weight", given.weight);
  d.output = reader.dtype("output", given.output);
  if constexpr (requires { d.weight_zero_points; }) {
    d.weight_zero_points = given.weight_zero_points != 0;
    d.group_size = given.group_size;
    d.weight_scale = reader.dtype("weight_scale", given.weight_scale).value_or(DType::f32);
  } else {
    const auto none = [&](const char* argument, std::int64_t value) {
      if (value != 0)
        reader.refuse(detail::invalid(
            argument,
            fmt::format("expected 0 (weights of OCTAVO_FLOAT_LINEAR have no scales), got {}",
                        value)));
    };
    none("weight_zero_points", given.weight_zero_points);
    none("group_size", given.group_size);
    if (const auto type = reader.dtype("weight_scale", given.weight_scale))
      reader.refuse(detail::invalid(
          "weight_scale",
          fmt::format("expected none (weights of OCTAVO_FLOAT_LINEAR have no scales), got {}",
                      name(*type))));
  }
  d.packed_weight = given.packed_weight != 0;
  d.epilogue = reader.enumerator<Epilogue>("epilogue", given.epilogue, 8);
  d.profile = reader.profile(given.profile);
  return detail::linear_problem(d);
}

LinearProblem problem_of(Reader& reader, const octavo_linear_desc* desc) {
  const octavo_linear_desc given = reader.need("desc", desc);
  switch (given.op) {
    case OCTAVO_QUANTIZED_LINEAR: {
      QuantizedLinearDescriptor d;
      d.mode = reader.enumerator<RangeMode>("mode", given.mode, 2);
      d.quantized = reader.dtype("quantized", given.quantized);
      return problem_from(reader, given, d);
    }
    case OCTAVO_SMOOTHQUANT_LINEAR: {
      SmoothQuantLinearDescriptor d;
      d.act_scale = given.act_scale;
      d.act_zero_point = given.act_zero_point;
      return problem_from(reader, given, d);
    }
    case OCTAVO_QUANTIZED_MATMUL: {
      QuantizedMatmulDescriptor d;
      d.activation_zero_points = given.activation_zero_points != 0;
      return problem_from(reader, given, d);
    }
    case OCTAVO_FLOAT_LINEAR:
      return problem_from(reader, given, FloatLinearDescriptor());
    default:
      reader.refuse(detail::unsupported(
          "op", fmt::format("expected OCTAVO_QUANTIZED_LINEAR ({}), OCTAVO_SMOOTHQUANT_LINEAR "
                            "({}), OCTAVO_QUANTIZED_MATMUL ({}) or OCTAVO_FLOAT_LINEAR ({}), got "
                            "{}",
                            OCTAVO_QUANTIZED_LINEAR, OCTAVO_SMOOTHQUANT_LINEAR,
                            OCTAVO_QUANTIZED_MATMUL, OCTAVO_FLOAT_LINEAR, given.op)));
      return {};
  }
}

// Operands as C++ wants them. They point into this object.
class Arguments {
 public:
  using Plan = AnyLinearPlan;
  static constexpr const char* select = "octavo_linear_select";

  Arguments(Reader& reader, const Plan& plan, const octavo_linear_args* given) {
    const octavo_linear_args a = reader.need("args", given);
    if (!reader.ok()) return;
    input_ = reader.tensor("input", a.input);
    if (a.packed != nullptr) {
      reader.absent("weight", a.weight, "there is `packed` already");
      weight_ = a.packed->packed;
    } else {
      weight_ = WeightRef(TensorRef(reader.tensor("weight", a.weight)));
    }
    if (plan.sku().op == Op::float_linear) {
      constexpr const char* floats = "weights of OCTAVO_FLOAT_LINEAR have none";
      reader.absent("weight_scales", a.weight_scales, floats);
      reader.absent("weight_zero_points", a.weight_zero_points, floats);
    }
    weight_scales_ = reader.maybe_tensor("weight_scales", a.weight_scales);
    weight_zero_points_ = reader.maybe_tensor("weight_zero_points", a.weight_zero_points);
    bias_ = reader.maybe_tensor("bias", a.bias);
    residual_ = reader.maybe_tensor("residual", a.residual);
    output_ = reader.tensor("output", a.output);
    // Left out, it is 1, as in C++; but a quantized output needs one.
    const bool scaled = a.output_scale != 0 || is_quantized(*plan.sku().output);
    operands_ = {&input_,
                 &weight_,
                 &weight_scales_,
                 &weight_zero_points_,
                 &bias_,
                 &residual_,
                 scaled ? a.output_scale : 1.0,
                 a.output_zero_point,
                 &output_};
    if (plan.sku().op == Op::quantized_matmul) {
      activation_scales_ = reader.maybe_tensor("activation_scales", a.activation_scales);
      activation_zero_points_ =
          reader.maybe_tensor("activation_zero_points", a.activation_zero_points);
      operands_.activation_scales = &activation_scales_;
      operands_.activation_zero_points = &activation_zero_points_;
      return;
    }
    constexpr const char* why = "only OCTAVO_QUANTIZED_MATMUL takes them";
    reader.absent("activation_scales", a.activation_scales, why);
    reader.absent("activation_zero_points", a.activation_zero_points, why);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  [[nodiscard]] const detail::LinearOperands& get() const { return operands_; }

 private:
  TensorRef input_, weight_scales_, weight_zero_points_, bias_, residual_;
  TensorRef activation_scales_, activation_zero_points_;
  WeightRef weight_;
  TensorMut output_;
  detail::LinearOperands operands_;
};

}  // namespace
}  // namespace octavo::c

namespace c = octavo::c;

octavo_status octavo_linear_select(const octavo_stream* stream, const octavo_linear_desc* desc,
                                   const octavo_preference* preference, octavo_plan** out) {
  return c::guarded([&] {
    return c::select<c::AnyLinearPlan>(
        stream, preference, out, [&](c::Reader& reader) { return c::problem_of(reader, desc); });
  });
}
octavo_status octavo_linear_can_implement(const octavo_plan* plan, const octavo_linear_args* args) {
  return c::guarded([&] { return c::can_implement<c::Arguments>(plan, args); });
}
octavo_status octavo_linear_run(const octavo_plan* plan, const octavo_stream* stream,
                                void* workspace, size_t workspace_bytes,
                                const octavo_linear_args* args) {
  return c::guarded([&] {
    return c::run<c::Arguments>(plan, stream, {workspace, workspace_bytes}, args);
  });
}
