// The linear plans: select and check.
#include <array>
#include <cmath>
#include <utility>

#include "core/check.hpp"
#include "core/fp_environment.hpp"
#include "core/target.hpp"
#include "numerics/linear.hpp"
#include "octavo/quantized_linear.hpp"
#include "octavo/quantized_matmul.hpp"
#include "octavo/smoothquant_linear.hpp"
#include "ops/elementwise/kernels.hpp"
#include "ops/linear/check.hpp"
#include "ops/linear/pack.hpp"
#include "ops/linear/rows.hpp"
#include "ops/linear/run.hpp"

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
  return p;
}

Status check_types(const LinearProblem& p) {
  const bool dynamic = p.op == Op::quantized_linear || p.op == Op::quantized_linear_asymmetric;
  if (dynamic ? !is_float(p.activation) : !is_byte(p.activation))
    return unsupported("activation", fmt::format("expected {}, got {}",
                                                 dynamic ? "f32, f64, f16 or bf16" : "s8 or u8",
                                                 name(p.activation)));
  if (p.mode != static_cast<int>(RangeMode::symmetric) &&
      p.mode != static_cast<int>(RangeMode::asymmetric))
    return unsupported("mode", fmt::format("expected symmetric or asymmetric, got {}", p.mode));
  if (dynamic && (is_symmetric(p) ? p.quantized != DType::s8 : !is_byte(p.quantized)))
    return unsupported(
        "quantized",
        fmt::format("expected {}, got {}", is_symmetric(p) ? "s8 in mode symmetric" : "s8 or u8",
                    name(p.quantized)));
  if (!is_byte(p.weight))
    return unsupported("weight", fmt::format("expected s8 or u8, got {}", name(p.weight)));
  const bool raw = p.output == DType::s32 && p.op == Op::quantized_matmul;
  if (!is_float(p.output) && !is_byte(p.output) && !raw)
    return unsupported("output",
                       fmt::format("expected f32, f64, f16, bf16, s8{} u8{}, got {}",
                                   p.op == Op::quantized_matmul ? "," : " or",
                                   p.op == Op::quantized_matmul ? " or s32" : "", name(p.output)));
  if (static_cast<int>(p.epilogue) > 7)
    return unsupported("epilogue", fmt::format("expected bias, residual and relu only, got {}",
                                               static_cast<int>(p.epilogue)));
  if (raw && p.epilogue != Epilogue::none)
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
  // (Rows are padded, and held as s16 by some kernels.)
  for (const std::int64_t size : {p.n, p.k + 2 * padded_k})
    if (const auto count = count_elements("m", {p.m, size, 2}); !count) return count.error();
  if (p.output == DType::s32 && is_wide(p))
    return invalid(
        "k", fmt::format("expected at most {} for sums of s32 (these types{}), got {}; "
                         "a float output has no limit",
                         numerics::max_exact_k(p.activation_zero_points || p.quantized == DType::u8,
                                               p.weight_zero_points || p.weight == DType::u8),
                         p.activation_zero_points || p.weight_zero_points ? " and zero points" : "",
                         p.k));
  return {};
}

template <class C>
bool fits(double scale) {
  return numerics::is_finite(static_cast<C>(scale));
}
bool fits(DType compute, double scale) {
  return compute == DType::f64 ? fits<double>(scale) : fits<float>(scale);
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
  LinearProblem p =
      common_problem(symmetric ? Op::quantized_linear : Op::quantized_linear_asymmetric, d);
  p.mode = static_cast<int>(d.mode);
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

Result<LinearPlan> LinearPlan::select(const Stream& stream, const LinearProblem& problem,
                                      const PlanPreference& preference) {
  const FpEnvironment environment;
  if (Status s = check_types(problem); !s) return s.error();
  if (Status s = check_sizes(problem); !s) return s.error();
  if (!fits(compute_type(problem), problem.act_scale))
    return invalid("act_scale", fmt::format("expected a scale that is finite (as {}), got {}",
                                            name(compute_type(problem)), problem.act_scale));
  if (problem.op == Op::smoothquant_linear)
    if (Status s = check_zero_point("act_zero_point", problem.act_zero_point, problem.activation);
        !s)
      return s.error();
  // (Each thread packs a group of panels, with their sums, in the workspace.)
  const Shape packs{stream.threads(), group_columns, problem.k + 2 * padded_k};
  if (!problem.packed_weight && problem.m > 0 && problem.n > 0 && !count_elements("k", packs))
    return invalid("k", fmt::format("expected a workspace within the address space, got k = {} and "
                                    "{} threads that pack weights; pack them beforehand",
                                    problem.k, stream.threads()));
  const Result<std::uint32_t> allowed = allowed_targets(stream, preference);
  if (!allowed) return allowed.error();

  LinearPlan plan;
  plan.problem_ = problem;
  plan.threads_ = stream.threads();
  plan.vector_target_ =
      best_target(*allowed, [](Target t) { return kernels_of(t).find != nullptr; });
  plan.sku_.category = Category::linear;
  plan.sku_.op = problem.op;
  plan.sku_.element = problem.activation;
  plan.sku_.aux_element = problem.weight;
  plan.sku_.output = problem.output;
  if (is_float(problem.activation)) plan.sku_.quantized = problem.quantized;
  plan.sku_.packed_weight = problem.packed_weight;
  plan.sku_.layout = problem.op == Op::smoothquant_linear ? Layout::per_tensor : Layout::per_token;
  plan.sku_.epilogue = problem.epilogue;
  plan.sku_.profile = problem.profile;
  plan.sku_.target =
      best_target(*allowed, [](Target t) { return dot_kernel_of(t) != nullptr && may_run(t); });
  plan.sku_.guarantee.math = problem.output == DType::s32 ? DType::s32 : compute_type(problem);
  plan.sku_.guarantee.accumulator = DType::s32;
  plan.workspace_bytes_ =
      static_cast<std::size_t>(LinearLayout(problem, plan.sku_.target, plan.threads_).total);
  if (Status s = check_max_workspace(preference, plan.workspace_size(),
                                     problem.packed_weight
                                         ? "rows of activations"
                                         : "rows of activations, and weights packed run by run");
      !s)
    return s.error();
  return plan;
}

Status LinearPlan::can_implement(const LinearOperands& operands) const {
  return check_linear(problem_, vector_target_, operands);
}

Status LinearPlan::run(const Stream& stream, Workspace workspace,
                       const LinearOperands& operands) const {
  if (Status s = check_linear(problem_, vector_target_, operands); !s) return s;
  const LinearOperands& o = operands;
  const TensorRef output = *o.output;
  const auto given = [](const TensorRef* t) { return is_given(t) ? t : nullptr; };
  if (Status s =
          check_workspace(workspace, workspace_size(),
                          {o.input, given(&o.weight->tensor), given(o.weight_scales),
                           given(o.weight_zero_points), given(o.bias), given(o.residual), &output,
                           given(o.activation_scales), given(o.activation_zero_points)});
      !s)
    return s;
  run_linear(stream, problem_, operands, sku_.target, vector_target_, threads_, workspace.data);
  return {};
}

}  // namespace octavo::detail
