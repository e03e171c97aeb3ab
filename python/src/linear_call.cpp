#include "linear_call.hpp"

#include <bit>

#include "plan_cache.hpp"

namespace octavo::python {
namespace {

using Problem = detail::LinearProblem;
using Plan = detail::AnyLinearPlan;

// The library's names of the arguments; `x` is what the call names its input.
void refuse_linear(const Error& error, const char* x, bool selecting) {
  refuse(error, {{"input", x},
                 {"activation", x},
                 {"k", x},
                 {"m", x},
                 {"weight", "weight_q"},
                 {"weight_scales", "weight_scale"},
                 {"weight_zero_points", "weight_zero_point"},
                 {"activation_scales", "act_scale"},
                 {"activation_zero_points", "act_zero_point"},
                 {"output_scale", "out_scale"},
                 {"output_zero_point", "out_zero_point"},
                 {"output", selecting ? "out_dtype" : "out"}});
}

std::shared_ptr<const Plan> cached(const Stream& stream, const Problem& p, const char* x) {
  static auto* cache = new PlanCache<Problem, Plan>();
  return cache->get(stream, p, [&] {
    const Result<Plan> plan = Plan::select(stream, p, {});
    if (!plan) refuse_linear(plan.error(), x, true);
    return *plan;
  });
}

bool given(nb::handle value) { return value.is_valid() && !value.is_none(); }

Shape without_last(const Shape& shape) {
  std::array<std::int64_t, max_rank> sizes{};
  for (int i = 0; i < shape.rank() - 1; ++i) sizes[static_cast<std::size_t>(i)] = shape[i];
  return {std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(shape.rank() - 1))};
}

// A call on its way to the library. What its operands point into lives here.
class Running {
 public:
  explicit Running(LinearCall& call)
      : c_(call),
        p_(call.problem),
        x_(call.x, call.x_name),
        rows_(x_.ref.shape[0]),
        out_shape_(x_.array().shape) {
    o_.input = &x_.ref;
    o_.weight = &weight_;
    o_.weight_scales = o_.weight_zero_points = o_.bias = o_.residual = &none_;
    if (p_.op == Op::quantized_matmul) o_.activation_scales = o_.activation_zero_points = &none_;
  }

  nb::object run() {
    read_types();
    const Stream& stream = parse_stream(c_.stream);
    if (nb::isinstance<PackedWeight>(c_.weight))
      read_packed_weight();
    else
      read_weight_rows();
    out_shape_[out_shape_.rank() - 1] = p_.n;
    read_scales();
    read_zero_points();
    if (given(c_.bias)) read_bias();
    if (given(c_.residual)) read_residual();
    read_output_parameters();
    const Array out = make_output();
    p_.m = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows_)));
    const Status status = run_plan(*cached(stream, p_, c_.x_name), stream, o_);
    if (!status) refuse_linear(status.error(), c_.x_name, false);
    return out.object;
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
    weight_ = nb::cast<const PackedWeight&>(c_.weight);
    p_.packed_weight = true;
    p_.n = weight_.packed.n();
    p_.weight = weight_.packed.dtype();
    if (weight_.packed.k() != p_.k)
      invalid(c_.x_name,
              fmt::format("expected {} in the last dimension, as the weights have, got {}",
                          weight_.packed.k(), p_.k));
  }

  void read_weight_rows() {
    weight_rows_.emplace(c_.weight, "weight_q");
    const TensorRef& w = weight_rows_->ref;
    if (weight_rows_->array().rank() != 2)
      invalid("weight_q",
              fmt::format("expected shape (N, K), got {}", to_string(weight_rows_->array().shape)));
    if (w.shape[1] != p_.k)
      invalid("weight_q", fmt::format("expected {} in the last dimension, as {} has, got {}", p_.k,
                                      c_.x_name, w.shape[1]));
    p_.packed_weight = false;
    p_.n = w.shape[0];
    p_.weight = w.dtype;
    weight_ = w;
  }

  // One number, or one for each row.
  void check_rows(const Numbers& numbers, const char* argument) const {
    if (numbers.single() || numbers.shape() == without_last(x_.array().shape)) return;
    check_count(numbers, argument, rows_, "row");
  }
  static void check_count(const Numbers& numbers, const char* argument, std::int64_t count,
                          const char* what) {
    const Shape& s = numbers.shape();
    if (numbers.single() || s == Shape{count} || s == Shape{count, 1}) return;
    invalid(argument, fmt::format("expected one number or one per {} (shape ({},)), got shape {}",
                                  what, count, to_string(s)));
  }

  // Floats that may not be None.
  static Numbers& scale(std::optional<Numbers>& place, nb::handle value, const char* argument) {
    place.emplace(value, argument, false);
    if (!place->given()) invalid(argument, "expected a number or an array, got None");
    return *place;
  }

  void read_scales() {
    if (p_.output != DType::s32) {  // (raw sums have none)
      Numbers& numbers = scale(weight_scale_, c_.weight_scale, "weight_scale");
      check_count(numbers, "weight_scale", p_.n, "output channel");
      weight_scales_ = numbers.ref(1);
      o_.weight_scales = &weight_scales_;
    }
    if (!c_.act_scale.is_valid()) return;
    Numbers& numbers = scale(act_scale_, c_.act_scale, "act_scale");
    check_rows(numbers, "act_scale");
    act_scales_ = numbers.ref(1);
    o_.activation_scales = &act_scales_;
  }

  // Those that are one 0 are left out, which is faster.
  static bool matter(const Numbers& numbers) { return !numbers.single() || numbers.integer() != 0; }

  void read_zero_points() {
    if (p_.op == Op::quantized_matmul && c_.act_zero_point.is_valid()) {
      act_zero_.emplace(c_.act_zero_point, "act_zero_point", true);
      check_rows(*act_zero_, "act_zero_point");
      p_.activation_zero_points = matter(*act_zero_);
      if (p_.activation_zero_points) {
        act_zeros_ = act_zero_->ref(1);
        o_.activation_zero_points = &act_zeros_;
      }
    }
    if (!c_.weight_zero_point.is_valid()) return;
    weight_zero_.emplace(c_.weight_zero_point, "weight_zero_point", true);
    check_count(*weight_zero_, "weight_zero_point", p_.n, "output channel");
    if (!matter(*weight_zero_)) return;
    weight_zeros_ = weight_zero_->ref(1);
    o_.weight_zero_points = &weight_zeros_;
    p_.weight_zero_points = true;
  }

  void read_bias() {
    bias_.emplace(c_.bias, "bias", false);
    if (bias_->single() ? p_.n != 1 : !(bias_->shape() == Shape{p_.n}))
      invalid("bias", fmt::format("expected shape ({},), got {}", p_.n, to_string(bias_->shape())));
    biases_ = bias_->ref(1);
    o_.bias = &biases_;
    p_.epilogue = p_.epilogue | Epilogue::bias;
  }

  void read_residual() {
    residual_.emplace(c_.residual, "residual");
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

  Array make_output() {
    Array out = c_.out.is_none() ? Array::make(x_.array().maker, out_shape_, p_.output,
                                               c_.output_like_x ? c_.x_name : "out_dtype")
                                 : Array(c_.out, "out", true);
    if (!(out.shape == out_shape_))
      invalid("out", fmt::format("expected shape {}, got {}", to_string(out_shape_),
                                 to_string(out.shape)));
    const std::optional<TensorMut> matrix = as_matrix<TensorMut>(out);
    if (!matrix)
      invalid("out",
              "expected rows of consecutive elements with one stride between them, got others");
    x_.check_apart(out);
    if (weight_rows_) weight_rows_->check_apart(out);
    if (residual_) residual_->check_apart(out);
    for (const auto* const numbers :
         {&weight_scale_, &act_scale_, &act_zero_, &weight_zero_, &bias_})
      if (*numbers) (*numbers)->check_apart(out);
    output_ = *matrix;
    o_.output = &output_;
    return out;
  }

  LinearCall& c_;
  Problem& p_;
  const Rows x_;
  const std::int64_t rows_;
  Shape out_shape_;
  WeightRef weight_;
  std::optional<Rows> weight_rows_, residual_;
  std::optional<Numbers> weight_scale_, act_scale_, act_zero_, weight_zero_, bias_;
  TensorRef weight_scales_, act_scales_, act_zeros_, weight_zeros_, biases_;
  const TensorRef none_;
  TensorMut output_;
  detail::LinearOperands o_;
};

}  // namespace

nb::object run_linear(LinearCall& call) { return Running(call).run(); }

}  // namespace octavo::python
