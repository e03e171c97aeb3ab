#include "linear_call.hpp"

#include <bit>

#include "plan_cache.hpp"

namespace octavo::python {
namespace {

using Problem = detail::LinearProblem;
using Plan = detail::AnyLinearPlan;

// The library's names of the arguments, and those of the call.
void refuse_linear(const Error& error, const LinearCall& call, bool selecting) {
  refuse(error, {{"input", call.x_name},
                 {"activation", call.x_name},
                 {"k", call.x_name},
                 {"m", call.x_name},
                 {"weight", call.weight_name},
                 {"weight_scales", "weight_scale"},
                 {"weight_zero_points", "weight_zero_point"},
                 {"activation_scales", "act_scale"},
                 {"activation_zero_points", "act_zero_point"},
                 {"output_scale", "out_scale"},
                 {"output_zero_point", "out_zero_point"},
                 {"output", selecting ? "out_dtype" : "out"}});
}

std::shared_ptr<const Plan> cached(const Stream& stream, const LinearCall& call) {
  static auto* cache = new PlanCache<Problem, Plan>();
  return cache->get(stream, call.problem, [&] {
    const Result<Plan> plan = Plan::select(stream, call.problem, {});
    if (!plan) refuse_linear(plan.error(), call, true);
    return *plan;
  });
}

bool given(nb::handle value) { return value.is_valid() && !value.is_none(); }

Shape without_last(const Shape& shape) {
  std::array<std::int64_t, max_rank> sizes{};
  for (int i = 0; i < shape.rank() - 1; ++i) sizes[static_cast<std::size_t>(i)] = shape[i];
  return {std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(shape.rank() - 1))};
}

// One number, or one for each of `count`.
void check_count(const Numbers& numbers, const char* argument, std::int64_t count,
                 const char* what) {
  const Shape& s = numbers.shape();
  if (numbers.one() || s == Shape{count} || s == Shape{count, 1}) return;
  invalid(argument, fmt::format("expected one number or one per {} (shape ({},)), got shape {}",
                                what, count, to_string(s)));
}

// A call on its way to the library. What its operands point into lives here.
class Running {
 public:
  explicit Running(LinearCall& call)
      : c_(call),
        p_(call.problem),
        on_(call.stream),
        x_(call.x, call.x_name, on_),
        rows_(x_.ref.shape[0]),
        out_shape_(x_.array().shape) {
    o_.input = &x_.ref;
    o_.weight = &weight_;
    o_.weight_scales = o_.weight_zero_points = o_.bias = o_.residual = &none_;
    if (p_.op == Op::quantized_matmul) o_.activation_scales = o_.activation_zero_points = &none_;
  }

  nb::object run() {
    read_types();
    if (nb::isinstance<PyPackedWeight>(c_.weight))
      read_packed_weight();
    else
      read_weight_rows();
    check_weight_type();
    out_shape_[out_shape_.rank() - 1] = p_.n;
    read_scales();
    read_zero_points();
    if (given(c_.bias)) read_bias();
    if (given(c_.residual)) read_residual();
    read_output_parameters();
    const OutputRows out(c_.out, x_.array().maker, out_shape_, p_.output, on_,
                         c_.output_like_x ? c_.x_name : "out_dtype");
    check_apart(out.array);
    o_.output = &out.mut;
    p_.m = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows_)));
    const Status status = run_plan(*cached(on_.stream(), c_), on_, o_);
    if (held_ != nullptr && on_.on_device()) held_->readers->add(on_.queue());
    if (!status) refuse_linear(status.error(), c_, false);
    return out.array.object;
  }

 private:
  void read_types() {
    p_.activation = x_.ref.dtype;
    p_.k = x_.ref.shape[1];
    if (p_.op != Op::quantized_linear && p_.op != Op::quantized_linear_asymmetric)
      p_.quantized = p_.activation;
    if (!c_.output_like_x) return;
    if (!is_float(p_.activation))
      unsupported(c_.x_name, fmt::format("expected float32, float64, float16 or bfloat16, got {}",
                                         name(x_.array().held)));
    p_.output = p_.activation;
  }

  void read_packed_weight() {
    held_ = &nb::cast<const PyPackedWeight&>(c_.weight);
    on_.join(held_->device, c_.weight_name);
    weight_ = held_->packed;
    const WeightFormat format = weight_.packed.format();
    p_.packed_weight = true;
    p_.n = weight_.packed.n();
    p_.weight = format.code;
    p_.group = format.group;
    if (p_.group != 0) {
      if (p_.output == DType::s32)
        invalid(c_.weight_name,
                fmt::format("expected weights with one scale per output channel (sums of groups "
                            "have scales of their own), got groups of {}",
                            p_.group));
      p_.weight_scale = format.scales;
      p_.weight_zero_points = format.zero_points;
    }
    not_with_a_pack(c_.group_size, "group_size");
    not_with_a_pack(c_.q_dtype, "q_dtype");
    not_with_a_pack(c_.length, "length");
    if (weight_.packed.k() != p_.k)
      invalid(c_.x_name,
              fmt::format("expected {} in the last dimension, as the weights have, got {}",
                          weight_.packed.k(), p_.k));
  }

  void read_weight_rows() {
    weight_rows_.emplace(c_.weight, c_.weight_name, on_);
    const TensorRef w = weight_of(*weight_rows_, c_.q_dtype, c_.length);
    if (w.shape[1] != p_.k)
      invalid(c_.weight_name,
              fmt::format("expected {} in the last dimension, as {} has, got {}{}", p_.k, c_.x_name,
                          w.shape[1],
                          is_packed(w.dtype) && c_.length.is_none()
                              ? " (two to a byte, for there is no length)"
                          : w.dtype == DType::u8 && w.shape[1] == (p_.k + 1) / 2
                              ? "; weights of four bits, two to a byte, need a q_dtype, s4 or u4"
                              : ""));
    p_.packed_weight = false;
    p_.n = w.shape[0];
    p_.weight = w.dtype;
    p_.group = parse_weight_group(c_.group_size, p_.k);
    weight_ = w;
  }

  static void not_with_a_pack(nb::handle value, const char* argument) {
    if (!value.is_none())
      invalid(argument,
              fmt::format("expected None (a packed weight has its own), got {}", describe(value)));
  }

  void check_weight_type() const {
    const bool floats = p_.op == Op::float_linear;
    if (is_float(p_.weight) == floats) return;
    unsupported(c_.weight_name,
                fmt::format("expected {}, got {}",
                            floats ? "weights of f32, f16 or bf16"
                                   : "weights of s8, u8, s4 or u4 (float_linear takes floats)",
                            octavo::name(p_.weight)));
  }

  // One number, or one for each row.
  void check_rows(const Numbers& numbers, const char* argument) const {
    if (numbers.one() || numbers.shape() == without_last(x_.array().shape)) return;
    check_count(numbers, argument, rows_, "row");
  }

  // Floats that may not be None.
  Numbers& scale(std::optional<Numbers>& place, nb::handle value, const char* argument) {
    place.emplace(value, argument, false, on_);
    if (!place->given()) invalid(argument, "expected a number or an array, got None");
    return *place;
  }

  // How many numbers there are for weights, where one would not do.
  [[nodiscard]] std::int64_t weight_count() const {
    return p_.group == 0 ? 1 : p_.n * (p_.k / p_.group);
  }

  // Whether the packed weight has what a run would be given, and then nothing may be given.
  static bool held_by_pack(bool held, nb::handle value, const char* argument, const char* what) {
    if (held && given(value))
      invalid(argument,
              fmt::format("expected None (the packed weight holds its {}), got some", what));
    return held;
  }

  void read_weight_scales() {
    if (p_.output == DType::s32 || p_.op == Op::float_linear) return;  // (they have none)
    if (held_by_pack(held_ != nullptr && held_->has_scale(), c_.weight_scale, "weight_scale",
                     "scales")) {
      if (!held_->scale) return;
      weight_scales_ = held_->scale->ref();
    } else {
      Numbers& numbers = scale(weight_scale_, c_.weight_scale, "weight_scale");
      check_weight_numbers(numbers, "weight_scale", p_.n, p_.k, p_.group);
      weight_scales_ = numbers.ref(weight_count(), on_);
    }
    o_.weight_scales = &weight_scales_;
  }

  void read_scales() {
    read_weight_scales();
    if (!c_.act_scale.is_valid()) return;
    Numbers& numbers = scale(act_scale_, c_.act_scale, "act_scale");
    check_rows(numbers, "act_scale");
    act_scales_ = numbers.ref(1, on_);
    o_.activation_scales = &act_scales_;
  }

  // Those that are one 0 are left out, which is faster.
  void read_zero_points() {
    if (p_.op == Op::quantized_matmul && c_.act_zero_point.is_valid()) {
      act_zero_.emplace(c_.act_zero_point, "act_zero_point", true, on_);
      check_rows(*act_zero_, "act_zero_point");
      p_.activation_zero_points = act_zero_->matter();
      if (p_.activation_zero_points) {
        act_zeros_ = act_zero_->ref(1, on_);
        o_.activation_zero_points = &act_zeros_;
      }
    }
    const bool held = held_ != nullptr && (held_->has_zero_point() || p_.group != 0);
    if (held_by_pack(held, c_.weight_zero_point, "weight_zero_point", "zero points, if any")) {
      if (!held_->zero_point) return;
      weight_zeros_ = held_->zero_point->ref();
    } else {
      if (!given(c_.weight_zero_point)) return;
      weight_zero_.emplace(c_.weight_zero_point, "weight_zero_point", true, on_);
      check_weight_numbers(*weight_zero_, "weight_zero_point", p_.n, p_.k, p_.group);
      if (!weight_zero_->matter()) return;
      weight_zeros_ = weight_zero_->ref(weight_count(), on_);
    }
    o_.weight_zero_points = &weight_zeros_;
    p_.weight_zero_points = true;
  }

  void read_bias() {
    bias_.emplace(c_.bias, "bias", false, on_);
    if (bias_->one() ? p_.n != 1 : !(bias_->shape() == Shape{p_.n}))
      invalid("bias", fmt::format("expected shape ({},), got {}", p_.n, to_string(bias_->shape())));
    biases_ = bias_->ref(1, on_);
    o_.bias = &biases_;
    p_.epilogue = p_.epilogue | Epilogue::bias;
  }

  void read_residual() {
    residual_.emplace(c_.residual, "residual", on_);
    if (!(residual_->array().shape == out_shape_))
      invalid("residual", fmt::format("expected shape {}, that of the output, got {}",
                                      to_string(out_shape_), to_string(residual_->array().shape)));
    o_.residual = &residual_->ref;
    p_.epilogue = p_.epilogue | Epilogue::residual;
  }

  void read_output_parameters() {
    if (is_quantized(p_.output)) {
      if (!given(c_.out_scale))
        invalid("out_scale", fmt::format("expected the scale of an output of {}, got None",
                                         octavo::name(p_.output)));
      o_.output_scale = parse_number(c_.out_scale, "out_scale");
    } else if (given(c_.out_scale)) {
      invalid("out_scale",
              fmt::format("expected None with an output of {}, got one", octavo::name(p_.output)));
    }
    if (c_.out_zero_point.is_valid())
      o_.output_zero_point = parse_zero_point(c_.out_zero_point, "out_zero_point");
  }

  void check_apart(const Array& out) const {
    x_.check_apart(out);
    if (weight_rows_) weight_rows_->check_apart(out);
    if (residual_) residual_->check_apart(out);
    for (const auto* const numbers :
         {&weight_scale_, &act_scale_, &act_zero_, &weight_zero_, &bias_})
      if (*numbers) (*numbers)->check_apart(out);
  }

  LinearCall& c_;
  Problem& p_;
  On on_;
  const Rows x_;
  const std::int64_t rows_;
  Shape out_shape_;
  const PyPackedWeight* held_ = nullptr;
  WeightRef weight_;
  std::optional<Rows> weight_rows_, residual_;
  std::optional<Numbers> weight_scale_, act_scale_, act_zero_, weight_zero_, bias_;
  TensorRef weight_scales_, act_scales_, act_zeros_, weight_zeros_, biases_;
  const TensorRef none_;
  detail::LinearOperands o_;
};

}  // namespace

TensorRef weight_of(const Rows& rows, nb::handle q_dtype, nb::handle length) {
  const Array& array = rows.array();
  if (array.rank() != 2)
    invalid(array.argument, fmt::format("expected shape (N, K), got {}", to_string(array.shape)));
  return read_as(rows.ref, array, q_dtype, length);
}

std::int64_t parse_weight_group(nb::handle group_size, std::int64_t k) {
  const std::optional<std::int64_t> size = parse_integer(group_size, "group_size");
  if (!size || (*size > 0 && *size >= k)) return 0;
  if (*size < 1 || *size % 4 != 0 || k % *size != 0)
    invalid("group_size",
            fmt::format("expected a multiple of 4 that divides K = {}, got {}", k, *size));
  return *size;
}

void check_weight_numbers(const Numbers& numbers, const char* argument, std::int64_t n,
                          std::int64_t k, std::int64_t group, const char* what) {
  if (group == 0) {
    check_count(numbers, argument, n, what);
    return;
  }
  const Shape expected{n, k / group};
  if (!numbers.one() && !(numbers.shape() == expected))
    invalid(argument, fmt::format("expected shape {} (groups of {}) or one number, got shape {}",
                                  to_string(expected), group, to_string(numbers.shape())));
}

nb::object run_linear(LinearCall& call) { return Running(call).run(); }

}  // namespace octavo::python
