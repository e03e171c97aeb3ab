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
#include "ops/linear/pack.hpp"
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

bool is_byte(DType type) { return type == DType::s8 || type == DType::u8; }

Status check_types(const LinearProblem& p) {
  const bool dynamic = p.op == Op::quantized_linear || p.op == Op::quantized_linear_asymmetric;
  if (dynamic ? !is_float(p.activation) : !is_byte(p.activation))
    return unsupported("activation", fmt::format("expected {}, got {}",
                                                 dynamic ? "f32, f64, f16 or bf16" : "s8 or u8",
                                                 name(p.activation)));
  if (p.mode != static_cast<int>(RangeMode::symmetric) &&
      p.mode != static_cast<int>(RangeMode::asymmetric))
    return unsupported("mode", fmt::format("expected symmetric or asymmetric, got {}", p.mode));
  if (dynamic && (p.symmetric ? p.quantized != DType::s8 : !is_byte(p.quantized)))
    return unsupported("quantized", fmt::format("expected {}, got {}",
                                                p.symmetric ? "s8 in mode symmetric" : "s8 or u8",
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

// An array of one for each of `count`, or a single one.
Result<Checked> check_one_or(const char* argument, const TensorRef& t, DType type,
                             std::int64_t count, const char* what) {
  const Result<std::int64_t> numel = count_elements(argument, t.shape);
  if (!numel) return numel.error();
  if (*numel != 1 && *numel != count)
    return invalid(argument, fmt::format("expected {} elements (one per {}) or one, got {} (shape "
                                         "{})",
                                         count, what, *numel, to_string(t.shape)));
  return check_array(argument, t, type, *numel);
}

class Checker {
 public:
  Checker(const LinearProblem& problem, Target vector_target, const LinearOperands& operands)
      : p_(problem),
        vector_target_(vector_target),
        o_(operands) {}

  Status check() {
    const FpEnvironment environment;
    if (Status s = check_matrices(); !s) return s;
    if (Status s = check_weights(); !s) return s;
    if (Status s = check_scales("weight_scales", o_.weight_scales, p_.n, "output channel"); !s)
      return s;
    if (Status s = check_zero_points("weight_zero_points", o_.weight_zero_points,
                                     p_.weight_zero_points, p_.weight, p_.n, "output channel");
        !s)
      return s;
    if (p_.op == Op::quantized_matmul) {
      if (Status s = check_scales("activation_scales", o_.activation_scales, rows_, "row"); !s)
        return s;
      if (Status s = check_zero_points("activation_zero_points", o_.activation_zero_points,
                                       p_.activation_zero_points, p_.activation, rows_, "row");
          !s)
        return s;
    }
    if (Status s = check_bias(); !s) return s;
    if (Status s = check_residual(); !s) return s;
    return check_output_scale();
  }

  Status check_apart(const Workspace& workspace, std::size_t needed) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(workspace.data);
    const Extent extent{begin, begin + needed};
    for (std::size_t i = 0; i < read_count_; ++i)
      if (read_[i].extent.overlaps(extent)) return overlap();
    return output_.overlaps(extent) ? overlap() : Status();
  }

 private:
  static Status overlap() {
    return invalid("workspace", "expected memory apart from every argument, got an overlap");
  }

  // What is read may not be written.
  Status note(const char* argument, const Extent& extent) {
    read_[read_count_++] = {argument, extent};
    if (!extent.overlaps(output_)) return {};
    return invalid("output",
                   fmt::format("expected memory apart from {}, got an overlap", argument));
  }

  static Status check_rows(const char* argument, const TensorRef& t) {
    if (t.shape[0] > 0 && t.shape[1] > 1 && t.strides[1] != 1)
      return invalid(argument, fmt::format("expected rows of consecutive elements (last stride 1), "
                                           "got strides {}; copy it first",
                                           to_string(t.strides)));
    return {};
  }

  Status check_matrices() {
    const TensorRef& in = *o_.input;
    const Result<Checked> input = check_input("input", in, p_.activation);
    if (!input) return input.error();
    if (in.shape.rank() != 2 || in.shape[1] != p_.k)
      return invalid("input",
                     fmt::format("expected shape [rows, {}], got {}", p_.k, to_string(in.shape)));
    rows_ = in.shape[0];
    if (rows_ > p_.m)
      return invalid("input", fmt::format("expected at most {} rows, as the plan was made for, got "
                                          "{}",
                                          p_.m, rows_));
    if (Status s = check_rows("input", in); !s) return s;
    const Result<Checked> output = check_output("output", *o_.output, p_.output);
    if (!output) return output.error();
    if (!(o_.output->shape == Shape{rows_, p_.n}))
      return invalid("output", fmt::format("expected shape [{}, {}], got {}", rows_, p_.n,
                                           to_string(o_.output->shape)));
    output_ = output->extent;
    return note("input", input->extent);
  }

  Status check_weights() {
    const WeightRef& w = *o_.weight;
    if (!p_.packed_weight) {
      if (w.packed != nullptr)
        return unsupported("weight",
                           "expected rows, as the plan was made for, got a packed "
                           "weight; set packed_weight in the descriptor");
      if (Status s = check_weight(w.tensor, p_.weight, p_.n, p_.k); !s) return s;
      return note("weight", check_input("weight", w.tensor, p_.weight)->extent);
    }
    if (w.packed == nullptr || w.packed->empty())
      return unsupported("weight",
                         fmt::format("expected a packed weight, as the plan was made for, "
                                     "got {}; make one with pack",
                                     w.packed == nullptr ? "rows" : "an empty one"));
    if (w.packed->dtype() != p_.weight)
      return unsupported("weight", fmt::format("expected weights of {}, got {}", name(p_.weight),
                                               name(w.packed->dtype())));
    if (w.packed->n() != p_.n || w.packed->k() != p_.k)
      return invalid("weight", fmt::format("expected weights packed from [{}, {}], got [{}, {}]",
                                           p_.n, p_.k, w.packed->n(), w.packed->k()));
    return {};
  }

  Status check_scales(const char* argument, const TensorRef* t, std::int64_t count,
                      const char* what) {
    if (p_.output == DType::s32) {
      if (!is_given(t)) return {};
      return invalid(argument, "expected none with an output of s32 (it holds the sums), got some");
    }
    if (!is_given(t))
      return invalid(argument,
                     fmt::format("expected {} scales (one per {}) or one, got none", count, what));
    if (!is_float(t->dtype))
      return unsupported(argument,
                         fmt::format("expected f32, f64, f16 or bf16, got {}", name(t->dtype)));
    const Result<Checked> checked = check_one_or(argument, *t, t->dtype, count, what);
    if (!checked) return checked.error();
    if (Status s = note(argument, checked->extent); !s) return s;
    return compute_type(p_) == DType::f64 ? check_finite<double>(argument, *t, checked->numel)
                                          : check_finite<float>(argument, *t, checked->numel);
  }

  template <class C>
  Status check_finite(const char* argument, const TensorRef& t, std::int64_t count) const {
    constexpr std::int32_t last = 0x7F7FFFFF;
    if (count == 0) return {};
    if (t.dtype == DType::f32) {
      const auto found = kernels_of(vector_target_).scan(t.data, count, INT32_MAX);
      if (found.most <= last) return {};
    }
    constexpr std::int64_t piece = 256;
    C values[piece];
    for (std::int64_t first = 0; first < count; first += piece) {
      const std::int64_t n = std::min(piece, count - first);
      load_floats(t, false, first, n, values);
      for (std::int64_t i = 0; i < n; ++i)
        if (!numerics::is_finite(values[i]))
          return invalid(argument, fmt::format("expected finite scales, got {} (as {}) at index {}",
                                               static_cast<double>(values[i]),
                                               sizeof(C) == 8 ? "f64" : "f32", first + i));
    }
    return {};
  }

  Status check_zero_points(const char* argument, const TensorRef* t, bool wanted, DType type,
                           std::int64_t count, const char* what) {
    if (!wanted) {
      if (!is_given(t)) return {};
      return invalid(argument,
                     fmt::format("expected none, as the plan was made for, got some; set {} in the "
                                 "descriptor",
                                 argument));
    }
    if (!is_given(t))
      return invalid(argument, fmt::format("expected {} zero points (one per {}) or one, got none",
                                           count, what));
    const Result<Checked> checked = check_one_or(argument, *t, DType::s32, count, what);
    if (!checked) return checked.error();
    if (Status s = note(argument, checked->extent); !s) return s;
    if (checked->numel == 0) return {};
    const auto found = kernels_of(vector_target_).scan(t->data, checked->numel, -1);
    const IntRange range = storage_range(type);
    if (found.least >= range.min && found.most <= range.max) return {};
    const auto* values = static_cast<const std::int32_t*>(t->data);
    std::int64_t i = 0;
    while (values[i] >= range.min && values[i] <= range.max) ++i;
    return invalid(argument, fmt::format("expected {} to {}, the range of {}, got {} at index {}",
                                         range.min, range.max, name(type), values[i], i));
  }

  Status check_bias() {
    if (!contains(p_.epilogue, Epilogue::bias)) {
      if (!is_given(o_.bias)) return {};
      return invalid("bias",
                     "expected none, as the plan was made for, got one; add Epilogue::bias "
                     "to the descriptor");
    }
    if (!is_given(o_.bias))
      return p_.n == 0 ? Status()
                       : invalid("bias", fmt::format("expected {} elements, got none", p_.n));
    if (!is_float(o_.bias->dtype))
      return unsupported(
          "bias", fmt::format("expected f32, f64, f16 or bf16, got {}", name(o_.bias->dtype)));
    const Result<Checked> checked = check_array("bias", *o_.bias, o_.bias->dtype, p_.n);
    if (!checked) return checked.error();
    return note("bias", checked->extent);
  }

  Status check_residual() {
    const TensorRef& r = *o_.residual;
    if (!contains(p_.epilogue, Epilogue::residual)) {
      if (!is_given(&r)) return {};
      return invalid("residual",
                     "expected none, as the plan was made for, got one; add "
                     "Epilogue::residual to the descriptor");
    }
    if (!is_given(&r) && rows_ > 0 && p_.n > 0)
      return invalid("residual", fmt::format("expected shape [{}, {}], got none", rows_, p_.n));
    const DType type = is_float(p_.output) ? p_.output : DType::f32;
    const Result<Checked> checked = check_input("residual", r, type);
    if (!checked) return checked.error();
    if (!(r.shape == Shape{rows_, p_.n}))
      return invalid("residual", fmt::format("expected shape [{}, {}], got {}", rows_, p_.n,
                                             to_string(r.shape)));
    if (Status s = check_rows("residual", r); !s) return s;
    const bool in_place =
        r.data == o_.output->data && type == p_.output && same_strides(r, *o_.output);
    return in_place ? Status() : note("residual", checked->extent);
  }

  Status check_output_scale() const {
    if (!is_byte(p_.output)) {
      if (o_.output_scale == 1.0 && o_.output_zero_point == 0) return {};
      return invalid(o_.output_scale == 1.0 ? "output_zero_point" : "output_scale",
                     fmt::format("expected none (scale 1, zero point 0) with an output of {}, got "
                                 "{} and {}",
                                 name(p_.output), o_.output_scale, o_.output_zero_point));
    }
    const bool good = compute_type(p_) == DType::f64
                          ? numerics::is_divisor(o_.output_scale)
                          : numerics::is_divisor(static_cast<float>(o_.output_scale));
    if (good) return {};
    return invalid("output_scale", fmt::format("expected a finite scale above 0 with a finite "
                                               "reciprocal, got {}",
                                               o_.output_scale));
  }

  struct Read {
    const char* argument = nullptr;
    Extent extent;
  };
  const LinearProblem& p_;
  Target vector_target_;
  const LinearOperands& o_;
  std::int64_t rows_ = 0;
  Extent output_;
  std::array<Read, 8> read_{};
  std::size_t read_count_ = 0;
};

}  // namespace

LinearProblem linear_problem(const QuantizedLinearDescriptor& d) {
  const bool symmetric = d.mode == RangeMode::symmetric;
  LinearProblem p =
      common_problem(symmetric ? Op::quantized_linear : Op::quantized_linear_asymmetric, d);
  p.symmetric = symmetric;
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
  if (stream.options().threads < 0)
    return invalid("threads",
                   fmt::format("expected 0 (all) or more, got {}", stream.options().threads));
  // (Each thread packs a group of panels, with their sums, in the workspace.)
  const Shape packs{stream.threads(), group_columns, problem.k + 2 * padded_k};
  if (!problem.packed_weight && problem.m > 0 && problem.n > 0 && !count_elements("k", packs))
    return invalid("k", fmt::format("expected a workspace within the address space, got k = {} and "
                                    "{} threads that pack weights; pack them beforehand",
                                    problem.k, stream.threads()));
  if (preference.backend && *preference.backend != stream.backend())
    return unsupported("backend", fmt::format("expected {}, the stream's, got {}",
                                              name(stream.backend()), name(*preference.backend)));
  const Result<std::uint32_t> allowed = allowed_targets(stream, preference);
  if (!allowed) return allowed.error();
  const auto best = [&](auto has) {
    for (const Target target : target_order)
      if ((*allowed >> static_cast<unsigned>(target) & 1U) != 0 && has(target)) return target;
    return Target::scalar;
  };

  LinearPlan plan;
  plan.problem_ = problem;
  plan.threads_ = stream.threads();
  plan.vector_target_ = best([](Target t) { return kernels_of(t).find != nullptr; });
  plan.sku_.category = Category::linear;
  plan.sku_.op = problem.op;
  plan.sku_.element = problem.activation;
  plan.sku_.aux_element = problem.weight;
  plan.sku_.output = problem.output;
  plan.sku_.layout = problem.op == Op::smoothquant_linear ? Layout::per_tensor : Layout::per_token;
  plan.sku_.epilogue = problem.epilogue;
  plan.sku_.profile = problem.profile;
  plan.sku_.target = best([](Target t) { return dot_kernel_of(t) != nullptr; });
  plan.sku_.guarantee.math = problem.output == DType::s32 ? DType::s32 : compute_type(problem);
  plan.sku_.guarantee.accumulator = DType::s32;
  if (preference.max_workspace_bytes && plan.workspace_size() > *preference.max_workspace_bytes)
    return Error(ErrorCode::workspace_too_small, "max_workspace_bytes",
                 fmt::format("max_workspace_bytes: expected at least {} (for {} rows of quantized "
                             "activations{}), got {}",
                             plan.workspace_size(), problem.m,
                             problem.packed_weight ? "" : " and weights packed run by run",
                             *preference.max_workspace_bytes),
                 static_cast<std::int64_t>(plan.workspace_size()),
                 static_cast<std::int64_t>(*preference.max_workspace_bytes));
  return plan;
}

std::size_t LinearPlan::workspace_size() const noexcept {
  return static_cast<std::size_t>(LinearLayout(problem_, sku_.target, threads_).total);
}

Status LinearPlan::can_implement(const LinearOperands& operands) const {
  return Checker(problem_, vector_target_, operands).check();
}

Status LinearPlan::run(const Stream& stream, Workspace workspace,
                       const LinearOperands& operands) const {
  Checker checker(problem_, vector_target_, operands);
  if (Status s = checker.check(); !s) return s;
  const std::size_t needed = workspace_size();
  if (Status s = check_workspace(workspace, needed); !s) return s;
  if (needed > 0)
    if (Status s = checker.check_apart(workspace, needed); !s) return s;
  run_linear(stream, problem_, operands, sku_.target, vector_target_, threads_, workspace.data);
  return {};
}

}  // namespace octavo::detail
