// Linear problems: of any descriptor, and what is refused of them.
#include "ops/linear/problem.hpp"

#include "core/check.hpp"
#include "core/fp_environment.hpp"
#include "numerics/linear.hpp"
#include "octavo/float_linear.hpp"
#include "octavo/quantized_linear.hpp"
#include "octavo/quantized_matmul.hpp"
#include "octavo/smoothquant_linear.hpp"
#include "ops/linear/check.hpp"
#include "ops/linear/panels.hpp"

namespace octavo::detail {
namespace {

template <class D>
LinearProblem common_problem(Op op, const D& d) {
  LinearProblem p;
  p.op = op;
  p.m = d.m;
  p.n = d.n;
  p.k = d.k;
  p.activation = p.quantized = d.activation;
  p.weight = d.weight;
  p.output = d.output;
  p.weight_zero_points = d.weight_zero_points;
  p.packed_weight = d.packed_weight;
  p.epilogue = d.epilogue;
  p.profile = d.profile;
  p.group = group_of(d.k, d.group_size);
  if (p.group != 0) p.weight_scale = d.weight_scale;
  return p;
}

Status check_float_types(const LinearProblem& p) {
  if (Status s = check_type<FloatLinearTypes>("activation", p.activation); !s) return s;
  if (Status s = check_type<FloatLinearTypes>("weight", p.weight); !s) return s;
  return check_type<FloatLinearOutputs>("output", p.output);
}

Status check_integer_types(const LinearProblem& p) {
  if (Status s = is_dynamic(p) ? check_type<LinearFloats>("activation", p.activation)
                               : check_type<LinearBytes>("activation", p.activation);
      !s)
    return s;
  if (p.mode != RangeMode::symmetric && p.mode != RangeMode::asymmetric)
    return unsupported(
        "mode", fmt::format("expected symmetric or asymmetric, got {}", static_cast<int>(p.mode)));
  if (is_dynamic(p)) {
    if (is_symmetric(p) ? !SymmetricCodes::has(p.quantized) : !LinearBytes::has(p.quantized))
      return unsupported(
          "quantized", fmt::format("expected {} in mode {}, got {}{}",
                                   is_symmetric(p) ? SymmetricCodes::words() : LinearBytes::words(),
                                   name(p.mode), name(p.quantized),
                                   p.quantized == DType::u8 ? "; use mode asymmetric" : ""));
  }
  if (Status s = check_type<LinearWeights>("weight", p.weight); !s) return s;
  if (Status s = check_type<LinearFloats>("weight_scale", p.weight_scale); !s) return s;
  return p.op == Op::quantized_matmul ? check_type<MatmulOutputs>("output", p.output)
                                      : check_type<LinearOutputs>("output", p.output);
}

Status check_types(const LinearProblem& p) {
  if (Status s = is_float_linear(p) ? check_float_types(p) : check_integer_types(p); !s) return s;
  if (static_cast<int>(p.epilogue) > 7)
    return unsupported("epilogue", fmt::format("expected bias, residual and relu only, got {}",
                                               static_cast<int>(p.epilogue)));
  if (p.output == DType::s32 && p.epilogue != Epilogue::none)
    return unsupported(
        "epilogue", fmt::format("expected none with an output of s32, got {}", name(p.epilogue)));
  if (p.profile != Profile::torch && p.profile != Profile::onnx)
    return unsupported("profile",
                       fmt::format("expected torch or onnx, got {}", static_cast<int>(p.profile)));
  return {};
}

Status check_sizes(const LinearProblem& p) {
  if (p.m < 0) return invalid("m", fmt::format("expected 0 or more, got {}", p.m));
  if (Status s = check_weight_sizes(p.n, p.k); !s) return s;
  if (Status s = check_group(p.group, p.k); !s) return s;
  if (p.output == DType::s32 && p.group != 0)
    return invalid("group_size",
                   fmt::format("expected none with an output of s32 (it holds the sums, and those "
                               "of groups have scales of their own), got {}",
                               p.group));
  // (Rows are padded, and held as s16 by some kernels.)
  for (const std::int64_t size : {p.n, p.k + 2 * padded_k})
    if (const auto count = count_elements("m", {p.m, size, 4}); !count) return count.error();
  if (p.output == DType::s32 && is_wide(p))
    return invalid(
        "k", fmt::format("expected at most {} for sums of s32 (these types{}), got {}; "
                         "a float output has no limit",
                         max_narrow_k(p),
                         p.activation_zero_points || p.weight_zero_points ? " and zero points" : "",
                         p.k));
  return {};
}

// (Not inlined, so that no conversion is moved out of the environment.)
__attribute__((noinline)) bool is_finite_in(DType compute, double scale) {
  const FpEnvironment environment;
  return compute == DType::f64 ? numerics::is_finite(scale)
                               : numerics::is_finite(static_cast<float>(scale));
}

Status check_zero_point(const char* argument, std::int64_t value, DType type) {
  const IntRange range = storage_range(type);
  if (value >= range.min && value <= range.max) return {};
  return invalid(argument, fmt::format("expected {} to {}, the range of {}, got {}", range.min,
                                       range.max, name(type), value));
}

}  // namespace

LinearProblem linear_problem(const QuantizedLinearDescriptor& d) {
  const bool symmetric = d.mode == RangeMode::symmetric;
  LinearProblem p = common_problem(Op::quantized_linear, d);
  p.mode = d.mode;
  p.activation_zero_points = !symmetric;
  p.quantized = d.quantized.value_or(symmetric ? DType::s8 : DType::u8);
  return p;
}

LinearProblem linear_problem(const SmoothQuantLinearDescriptor& d) {
  LinearProblem p = common_problem(Op::smoothquant_linear, d);
  p.act_scale = d.act_scale;
  p.act_zero_point = d.act_zero_point;
  p.activation_zero_points = d.act_zero_point != 0;
  return p;
}

LinearProblem linear_problem(const QuantizedMatmulDescriptor& d) {
  LinearProblem p = common_problem(Op::quantized_matmul, d);
  p.activation_zero_points = d.activation_zero_points;
  return p;
}

LinearProblem linear_problem(const FloatLinearDescriptor& d) {
  LinearProblem p;
  p.op = Op::float_linear;
  p.m = d.m;
  p.n = d.n;
  p.k = d.k;
  p.activation = p.quantized = d.activation;
  p.weight = d.weight;
  p.output = d.output;
  p.packed_weight = d.packed_weight;
  p.epilogue = d.epilogue;
  p.profile = d.profile;
  return p;
}

std::int64_t max_narrow_k(const LinearProblem& p) {
  return numerics::max_exact_k(
      numerics::magnitude_of(p.quantized == DType::s16 ? DType::s8 : p.quantized,
                             p.activation_zero_points),
      numerics::magnitude_of(p.weight, p.weight_zero_points));
}

bool has_wide_groups(const LinearProblem& p) {
  return p.group >
         numerics::max_exact_k(numerics::magnitude_of(p.quantized, p.activation_zero_points),
                               numerics::magnitude_of(p.weight, p.weight_zero_points));
}

Status check_group(std::int64_t group, std::int64_t k) {
  if (group < 0 || group % step_k != 0)
    return invalid("group_size", fmt::format("expected a multiple of {}, got {}", step_k, group));
  if (group > 0 && k % group != 0)
    return invalid("group_size", fmt::format("expected a divisor of k = {}, got {}", k, group));
  if (group > max_group)
    return invalid("group_size",
                   fmt::format("expected at most {}, or all of k, got {}", max_group, group));
  return {};
}

Status check_linear_problem(const LinearProblem& p) {
  if (Status s = check_types(p); !s) return s;
  if (Status s = check_sizes(p); !s) return s;
  if (!is_finite_in(compute_type(p), p.act_scale))
    return invalid("act_scale", fmt::format("expected a scale that is finite (as {}), got {}",
                                            name(compute_type(p)), p.act_scale));
  if (p.op == Op::smoothquant_linear)
    return check_zero_point("act_zero_point", p.act_zero_point, p.activation);
  return {};
}

}  // namespace octavo::detail
