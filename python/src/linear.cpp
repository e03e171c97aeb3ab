// linear, smoothquant_linear, quantized_matmul, int_matmul and float_linear: one call behind all.
#include "linear_call.hpp"
#include "octavo/float_linear.hpp"
#include "octavo/quantized_linear.hpp"
#include "octavo/quantized_matmul.hpp"
#include "octavo/smoothquant_linear.hpp"

namespace octavo::python {
namespace {

// Not None.
DType float_dtype(nb::handle value) {
  const DType dtype = parse_dtype(value, "out_dtype");
  if (!is_float(dtype))
    unsupported("out_dtype", fmt::format("expected 'f32', 'f64', 'f16' or 'bf16', got '{}'",
                                         octavo::name(dtype)));
  return dtype;
}

DType output_dtype(nb::handle value) {
  const DType dtype = parse_dtype(value, "out_dtype");
  if (is_packed(dtype))
    unsupported("out_dtype", fmt::format("expected 'f32', 'f64', 'f16', 'bf16', 's8' or 'u8', got "
                                         "'{}'",
                                         octavo::name(dtype)));
  return dtype;
}

Epilogue relu_of(nb::handle relu) {
  return parse_bool(relu, "relu") ? Epilogue::relu : Epilogue::none;
}

}  // namespace

nb::object linear(nb::handle x, nb::handle weight_q, nb::handle weight_scale, nb::handle bias,
                  nb::handle quantized, nb::handle group_size, nb::handle weight_zero_point,
                  nb::handle q_dtype, nb::handle length, nb::handle mode, nb::handle residual,
                  nb::handle relu, nb::handle out_dtype, nb::handle profile, nb::handle out,
                  nb::handle stream) {
  QuantizedLinearDescriptor d;
  d.mode = parse_mode(mode);
  if (!quantized.is_none()) d.quantized = parse_dtype(quantized, "quantized");
  if (!out_dtype.is_none()) d.output = float_dtype(out_dtype);
  d.epilogue = relu_of(relu);
  d.profile = parse_profile(profile);
  LinearCall c{.problem = detail::linear_problem(d),
               .x = x,
               .weight = weight_q,
               .weight_scale = weight_scale,
               .bias = bias,
               .residual = residual,
               .out = out,
               .stream = stream,
               .weight_zero_point = weight_zero_point,
               .group_size = group_size,
               .q_dtype = q_dtype,
               .length = length,
               .x_name = "x",
               .output_like_x = out_dtype.is_none()};
  return run_linear(c);
}

nb::object smoothquant_linear(nb::handle x_q, nb::handle act_scale, nb::handle weight_q,
                              nb::handle weight_scale, nb::handle bias, nb::handle act_zero_point,
                              nb::handle residual, nb::handle relu, nb::handle out_dtype,
                              nb::handle out_scale, nb::handle out_zero_point, nb::handle profile,
                              nb::handle out, nb::handle stream, nb::handle group_size,
                              nb::handle weight_zero_point, nb::handle q_dtype, nb::handle length) {
  On anywhere;
  const Numbers scale(act_scale, "act_scale", false, anywhere);
  const Numbers zero_point(act_zero_point, "act_zero_point", true, anywhere);
  // One for each row is beyond the plan of static scales, but not beyond that of both.
  if (!scale.single() || !zero_point.single())
    return quantized_matmul(x_q, weight_q, act_scale, weight_scale, act_zero_point,
                            weight_zero_point, bias, residual, relu, out_dtype, out_scale,
                            out_zero_point, profile, out, stream, group_size, q_dtype, length);
  if (!scale.given()) invalid("act_scale", "expected a number or an array, got None");
  SmoothQuantLinearDescriptor d;
  d.act_scale = scale.value();
  d.act_zero_point = zero_point.integer();
  d.output = output_dtype(out_dtype);
  d.epilogue = relu_of(relu);
  d.profile = parse_profile(profile);
  LinearCall c{.problem = detail::linear_problem(d),
               .x = x_q,
               .weight = weight_q,
               .weight_scale = weight_scale,
               .bias = bias,
               .residual = residual,
               .out = out,
               .stream = stream,
               .weight_zero_point = weight_zero_point,
               .group_size = group_size,
               .q_dtype = q_dtype,
               .length = length,
               .out_scale = out_scale,
               .out_zero_point = out_zero_point};
  return run_linear(c);
}

nb::object quantized_matmul(nb::handle x_q, nb::handle weight_q, nb::handle act_scale,
                            nb::handle weight_scale, nb::handle act_zero_point,
                            nb::handle weight_zero_point, nb::handle bias, nb::handle residual,
                            nb::handle relu, nb::handle out_dtype, nb::handle out_scale,
                            nb::handle out_zero_point, nb::handle profile, nb::handle out,
                            nb::handle stream, nb::handle group_size, nb::handle q_dtype,
                            nb::handle length) {
  QuantizedMatmulDescriptor d;
  d.output = output_dtype(out_dtype);
  d.epilogue = relu_of(relu);
  d.profile = parse_profile(profile);
  LinearCall c{.problem = detail::linear_problem(d),
               .x = x_q,
               .weight = weight_q,
               .weight_scale = weight_scale,
               .bias = bias,
               .residual = residual,
               .out = out,
               .stream = stream,
               .act_scale = act_scale,
               .act_zero_point = act_zero_point,
               .weight_zero_point = weight_zero_point,
               .group_size = group_size,
               .q_dtype = q_dtype,
               .length = length,
               .out_scale = out_scale,
               .out_zero_point = out_zero_point};
  return run_linear(c);
}

nb::object int_matmul(nb::handle x_q, nb::handle weight_q, nb::handle act_zero_point,
                      nb::handle weight_zero_point, nb::handle out, nb::handle stream) {
  QuantizedMatmulDescriptor d;
  d.output = DType::s32;
  LinearCall c{.problem = detail::linear_problem(d),
               .x = x_q,
               .weight = weight_q,
               .out = out,
               .stream = stream,
               .act_zero_point = act_zero_point,
               .weight_zero_point = weight_zero_point};
  return run_linear(c);
}

nb::object float_linear(nb::handle x, nb::handle weight, nb::handle bias, nb::handle residual,
                        nb::handle relu, nb::handle out_dtype, nb::handle out, nb::handle stream) {
  FloatLinearDescriptor d;
  d.output = parse_dtype(out_dtype, "out_dtype");
  if (!is_float(d.output) || d.output == DType::f64)
    unsupported("out_dtype",
                fmt::format("expected 'f32', 'f16' or 'bf16', got '{}'", octavo::name(d.output)));
  d.epilogue = relu_of(relu);
  LinearCall c{.problem = detail::linear_problem(d),
               .x = x,
               .weight = weight,
               .bias = bias,
               .residual = residual,
               .out = out,
               .stream = stream,
               .x_name = "x",
               .weight_name = "weight"};
  return run_linear(c);
}

}  // namespace octavo::python
