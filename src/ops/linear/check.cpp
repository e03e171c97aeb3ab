// The arguments of a linear plan, checked before anything is written or read.
#include "ops/linear/check.hpp"

#include <tuple>

#include "core/check.hpp"
#include "core/fp_environment.hpp"
#include "core/memory_place.hpp"
#include "numerics/linear.hpp"
#include "ops/linear/packed_weight.hpp"
#include "ops/linear/panels.hpp"
#include "ops/linear/problem.hpp"

namespace octavo::detail {
namespace {

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

// (Not inlined, so that no conversion is moved out of the environment.)
__attribute__((noinline)) bool is_output_scale(DType compute, double scale) {
  const FpEnvironment environment;
  return compute == DType::f64 ? numerics::is_divisor(scale)
                               : numerics::is_divisor(static_cast<float>(scale));
}

class Checker {
 public:
  Checker(const LinearProblem& problem, const WeightFormat& format, const LinearOperands& operands,
          Lent& lent)
      : p_(problem),
        format_(format),
        o_(operands),
        lent_(lent) {}

  Status check() {
    if (Status s = check_matrices(); !s) return s;
    if (Status s = check_weights(); !s) return s;
    if (Status s = check_weight_parameters(); !s) return s;
    if (p_.op == Op::quantized_matmul) {
      if (Status s = check_scales("activation_scales", o_.activation_scales, rows_, "row"); !s)
        return s;
      if (Status s = check_zero_points("activation_zero_points", o_.activation_zero_points,
                                       p_.activation_zero_points, rows_, "row");
          !s)
        return s;
    }
    if (Status s = check_bias(); !s) return s;
    if (Status s = check_residual(); !s) return s;
    return check_output_scale();
  }

 private:
  // What is read may not be written; nothing lies in what is lent.
  [[nodiscard]] Status note(const char* argument, const Extent& extent) {
    lent_.overlaps |= extent.overlaps(lent_.extent);
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
    lent_.overlaps |= output_.overlaps(lent_.extent);
    return note("input", input->extent);
  }

  Status check_weights() {
    const WeightRef& w = *o_.weight;
    if (!p_.packed_weight) {
      if (w.is_packed)
        return unsupported("weight",
                           "expected rows, as the plan was made for, got a packed "
                           "weight; set packed_weight in the descriptor");
      if (Status s = check_weight(w.tensor, p_.weight, p_.n, p_.k); !s) return s;
      return note("weight", check_input("weight", w.tensor, p_.weight)->extent);
    }
    if (w.packed.empty())
      return unsupported("weight",
                         fmt::format("expected a packed weight, as the plan was made for, "
                                     "got {}; make one with pack",
                                     w.is_packed ? "an empty one" : "rows"));
    if (w.packed.dtype() != p_.weight)
      return unsupported("weight", fmt::format("expected weights of {}, got {}", name(p_.weight),
                                               name(w.packed.dtype())));
    if (w.packed.format() != format_)
      return unsupported("weight",
                         fmt::format("expected weights packed as {}, as the plan was made for, "
                                     "got {}",
                                     to_string(format_), to_string(w.packed.format())));
    if (w.packed.n() != p_.n || w.packed.k() != p_.k)
      return invalid("weight", fmt::format("expected weights packed from [{}, {}], got [{}, {}]",
                                           p_.n, p_.k, w.packed.n(), w.packed.k()));
    return note("weight", w.packed.impl()->lent);
  }

  Status check_weight_parameters() {
    if (is_float_linear(p_)) return {};
    if (p_.group == 0) {
      if (Status s = check_scales("weight_scales", o_.weight_scales, p_.n, "output channel"); !s)
        return s;
      return check_zero_points("weight_zero_points", o_.weight_zero_points, p_.weight_zero_points,
                               p_.n, "output channel");
    }
    if (Status s = check_groups("weight_scales", o_.weight_scales, true, "scales"); !s) return s;
    return check_groups("weight_zero_points", o_.weight_zero_points, p_.weight_zero_points,
                        "zero points");
  }

  // One for each group of every output channel.
  Status check_groups(const char* argument, const TensorRef* t, bool wanted, const char* what) {
    const std::int64_t groups = groups_of(p_.k, p_.group);
    if (p_.packed_weight) {
      if (!is_given(t)) return {};
      return invalid(argument, fmt::format("expected none (the packed weight holds its {}), got "
                                           "some",
                                           what));
    }
    if (!wanted) return check_zero_points(argument, t, false, 0, "group");
    if (!is_given(t))
      return p_.n == 0 ? Status()
                       : invalid(argument,
                                 fmt::format("expected shape [{}, {}], got none", p_.n, groups));
    const bool scales = t == o_.weight_scales;
    if (scales && !LinearFloats::has(t->dtype)) return check_type<LinearFloats>(argument, t->dtype);
    const Result<Checked> checked =
        check_array(argument, *t, scales ? t->dtype : DType::s32, p_.n * groups);
    if (!checked) return checked.error();
    return note(argument, checked->extent);
  }

  Status check_scales(const char* argument, const TensorRef* t, std::int64_t count,
                      const char* what) {
    if (p_.output == DType::s32) {
      if (!is_given(t)) return {};
      return invalid(argument, "expected none with an output of s32 (it holds the sums), got some");
    }
    if (!is_given(t))
      return count == 0
                 ? Status()
                 : invalid(argument, fmt::format("expected {} scales (one per {}) or one, got none",
                                                 count, what));
    if (!LinearFloats::has(t->dtype)) return check_type<LinearFloats>(argument, t->dtype);
    const Result<Checked> checked = check_one_or(argument, *t, t->dtype, count, what);
    if (!checked) return checked.error();
    return note(argument, checked->extent);
  }

  Status check_zero_points(const char* argument, const TensorRef* t, bool wanted,
                           std::int64_t count, const char* what) {
    if (!wanted) {
      if (!is_given(t)) return {};
      return invalid(argument,
                     fmt::format("expected none, as the plan was made for, got some; set {} in the "
                                 "descriptor",
                                 argument));
    }
    if (!is_given(t))
      return count == 0 ? Status()
                        : invalid(argument, fmt::format("expected {} zero points (one per {}) or "
                                                        "one, got none",
                                                        count, what));
    const Result<Checked> checked = check_one_or(argument, *t, DType::s32, count, what);
    if (!checked) return checked.error();
    return note(argument, checked->extent);
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
    if (!LinearFloats::has(o_.bias->dtype)) return check_type<LinearFloats>("bias", o_.bias->dtype);
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
    if (!is_given(&r))
      return rows_ == 0 || p_.n == 0
                 ? Status()
                 : invalid("residual",
                           fmt::format("expected shape [{}, {}], got none", rows_, p_.n));
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
    if (!is_quantized(p_.output)) {
      if (o_.output_scale == 1.0 && o_.output_zero_point == 0) return {};
      return invalid(o_.output_scale == 1.0 ? "output_zero_point" : "output_scale",
                     fmt::format("expected none (scale 1, zero point 0) with an output of {}, got "
                                 "{} and {}",
                                 name(p_.output), o_.output_scale, o_.output_zero_point));
    }
    if (is_output_scale(compute_type(p_), o_.output_scale)) return {};
    return invalid("output_scale", fmt::format("expected a finite scale above 0 with a finite "
                                               "reciprocal, got {}",
                                               o_.output_scale));
  }

  const LinearProblem& p_;
  const WeightFormat& format_;
  const LinearOperands& o_;
  Lent& lent_;
  std::int64_t rows_ = 0;
  Extent output_;
};

}  // namespace

Error scale_refusal(const char* argument, double value, DType compute, std::int64_t index) {
  const FpEnvironment environment;  // (f64 may be rounded)
  if (compute != DType::f64) value = static_cast<double>(static_cast<float>(value));
  return invalid(argument, fmt::format("expected finite scales, got {} (as {}) at index {}", value,
                                       name(compute), index));
}

Error zero_point_refusal(const char* argument, std::int32_t value, DType type, std::int64_t index) {
  const IntRange range = storage_range(type);
  return invalid(argument, fmt::format("expected {} to {}, the range of {}, got {} at index {}",
                                       range.min, range.max, name(type), value, index));
}

Status check_linear(const LinearProblem& problem, const WeightFormat& format,
                    const LinearOperands& operands, Lent& lent) {
  return Checker(problem, format, operands, lent).check();
}

Status check_linear_memory(const LinearProblem& p, const LinearOperands& o, Backend backend,
                           int device, const void* workspace) {
  if (find_memory_place.load(std::memory_order_acquire) == nullptr) return {};
  const auto data = [](const auto* t) -> const void* {
    if (t == nullptr) return nullptr;
    for (int i = 0; i < t->shape.rank(); ++i)
      if (t->shape[i] == 0) return nullptr;
    return t->data;
  };
  return check_memory(backend, device,
                      {{"input", data(o.input)},
                       {"output", data(o.output)},
                       {"weight", p.packed_weight ? nullptr : data(&o.weight->tensor)},
                       {"weight_scales", data(o.weight_scales)},
                       {"weight_zero_points", data(o.weight_zero_points)},
                       {"activation_scales", data(o.activation_scales)},
                       {"activation_zero_points", data(o.activation_zero_points)},
                       {"bias", data(o.bias)},
                       {"residual", data(o.residual)},
                       {"workspace", workspace}});
}

Status check_weight_sizes(std::int64_t n, std::int64_t k) {
  if (n < 0) return invalid("n", fmt::format("expected 0 or more, got {}", n));
  if (k < 0) return invalid("k", fmt::format("expected 0 or more, got {}", k));
  // Of any layout, a panel at least: those of bytes need one byte for each weight and eight for the
  // sum of a column, and none more than four times as many.
  constexpr std::int64_t most = std::int64_t{1} << 58;
  const auto fits = [&](std::int64_t columns) {
    std::int64_t bytes = 0;
    return !__builtin_mul_overflow(round_up(columns, wide_columns), round_up(k, padded_k) + 8,
                                   &bytes) &&
           bytes <= most;
  };
  for (const auto& [argument, size, columns] : {std::tuple("k", k, std::int64_t{1}), {"n", n, n}})
    if (size > most || !fits(columns))
      return invalid(argument, fmt::format("expected sizes within the address space, got n = {}, "
                                           "k = {}",
                                           n, k));
  return {};
}

Status check_weight(const TensorRef& weight, DType dtype, std::int64_t n, std::int64_t k) {
  const Result<Checked> checked = check_input("weight", weight, dtype);
  if (!checked) return checked.error();
  if (!(weight.shape == Shape{n, k}))
    return invalid("weight", fmt::format("expected shape [{}, {}] (output by input channels), got "
                                         "{}",
                                         n, k, to_string(weight.shape)));
  if (n > 0 && k > 1 && weight.strides[1] != 1)
    return invalid("weight", fmt::format("expected rows of consecutive elements (last stride 1), "
                                         "got strides {}; copy it first",
                                         to_string(weight.strides)));
  return {};
}

}  // namespace octavo::detail
