// linear, smoothquant_linear, quantized_matmul, int_matmul and pack: one call behind the first
// four.
#include <bit>

#include "functions.hpp"
#include "octavo/linear.hpp"
#include "octavo/quantized_linear.hpp"
#include "octavo/quantized_matmul.hpp"
#include "octavo/smoothquant_linear.hpp"

namespace octavo::python {
namespace {

using Problem = detail::LinearProblem;
using Plan = detail::LinearPlan;

std::int64_t rows_of(const Shape& shape) {
  std::int64_t rows = 1;
  for (int i = 0; i < shape.rank() - 1; ++i) rows *= shape[i];
  return rows;
}

// [rows, columns] of an array whose leading dimensions are rows, if one stride leads through them.
template <class Tensor>
std::optional<Tensor> as_matrix(const Array& a) {
  const int rank = a.rank();
  const std::int64_t columns = a.shape[rank - 1];
  const std::int64_t rows = rows_of(a.shape);
  if (columns > 1 && a.strides[rank - 1] != 1) return std::nullopt;
  std::int64_t stride = columns;
  std::int64_t below = -1;  // what a step of the next dimension up must be
  for (int i = rank - 2; i >= 0 && rows > 0; --i) {
    if (a.shape[i] == 1) continue;
    if (below < 0) {
      stride = a.strides[i];
    } else if (a.strides[i] != below) {
      return std::nullopt;
    }
    below = a.strides[i] * a.shape[i];
    if (below < 0) return std::nullopt;  // (rows that run backwards are copied)
  }
  return Tensor(a.data, a.dtype(), Shape{rows, columns}, Shape{stride, 1});
}

// An input, copied if its rows are not what the library reads in place.
class Rows {
 public:
  Rows(nb::handle object, const char* argument) : array_(object, argument) {
    if (array_.rank() == 0)
      invalid(argument,
              "expected at least one dimension, the last of them summed over, got a "
              "scalar");
    extent_ = array_.extent();
    std::optional<TensorRef> found = as_matrix<TensorRef>(array_);
    if (!found) {
      array_ = array_.contiguous();
      found = as_matrix<TensorRef>(array_);
    }
    ref = *found;
  }
  [[nodiscard]] const Array& array() const { return array_; }
  /// The library refuses overlaps, but a copy hides them from it.
  void check_apart(const Array& out) const {
    const auto [begin, end] = out.extent();
    if (ref.data != out.data && extent_.first < end && begin < extent_.second)
      invalid("out", fmt::format("expected memory apart from {}, got an overlap", array_.argument));
  }
  TensorRef ref;

 private:
  Array array_;
  std::pair<std::uintptr_t, std::uintptr_t> extent_;  // of what was given
};

struct Call {
  Problem problem;
  nb::handle x, weight;
  // Invalid handles: the call has none.
  nb::handle weight_scale = {};
  nb::handle bias = {};
  nb::handle residual = {};
  nb::handle out, stream;
  nb::handle act_scale = {};
  nb::handle act_zero_point = {};
  nb::handle weight_zero_point = {};
  nb::handle out_scale = {};
  nb::handle out_zero_point = {};
  const char* x_name = "x_q";
};

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
  static auto* cache = new Cache<Plan>();
  Key key;
  key.add(p.op).add(p.m).add(p.n).add(p.k).add(p.activation).add(p.quantized).add(p.weight);
  key.add(p.output).add(p.mode).add(p.activation_zero_points).add(p.weight_zero_points);
  key.add(p.packed_weight).add(p.epilogue).add(p.profile).add(p.act_scale).add(p.act_zero_point);
  key.add(stream);
  return cache->get(key, [&] {
    const Result<Plan> plan = Plan::select(stream, p, {});
    if (!plan) refuse_linear(plan.error(), x, true);
    return *plan;
  });
}

// One number, or one for each of `count` (rows, or output channels).
void check_count(const Numbers& numbers, const char* argument, std::int64_t count,
                 const Shape& own_shape, const char* what) {
  if (numbers.single()) return;
  const Shape& s = numbers.shape();
  if (s == own_shape || s == Shape{count} || s == Shape{count, 1}) return;
  invalid(argument, fmt::format("expected one number or one per {} (shape ({},)), got shape {}",
                                what, count, to_string(s)));
}

// Where a call has zero points: a Numbers that the operands may point into.
const TensorRef* zero_points(std::optional<Numbers>& numbers, nb::handle value,
                             const char* argument, std::int64_t count, const Shape& own_shape,
                             const char* what, TensorRef& ref) {
  if (!value.is_valid()) return nullptr;
  numbers.emplace(value, argument, true);
  check_count(*numbers, argument, count, own_shape, what);
  if (numbers->single() && numbers->integer() == 0) return nullptr;
  ref = numbers->ref(1);
  return &ref;
}

nb::object run(Call& c) {
  Problem& p = c.problem;
  const Rows x(c.x, c.x_name);
  p.activation = x.ref.dtype;
  if (p.op != Op::quantized_linear && p.op != Op::quantized_linear_asymmetric)
    p.quantized = p.activation;
  const std::int64_t rows = x.ref.shape[0];
  p.k = x.ref.shape[1];
  const Shape& shape = x.array().shape;
  const Stream& stream = parse_stream(c.stream);

  WeightRef weight;
  std::optional<Rows> weight_rows;
  p.packed_weight = nb::isinstance<PackedWeight>(c.weight);
  if (p.packed_weight) {
    weight = nb::cast<const PackedWeight&>(c.weight);
    p.n = weight.packed.n();
    p.weight = weight.packed.dtype();
    if (weight.packed.k() != p.k)
      invalid(c.x_name,
              fmt::format("expected {} in the last dimension, as the weights have, got {}",
                          weight.packed.k(), p.k));
  } else {
    weight_rows.emplace(c.weight, "weight_q");
    const TensorRef& w = weight_rows->ref;
    if (weight_rows->array().rank() != 2)
      invalid("weight_q",
              fmt::format("expected shape (N, K), got {}", to_string(weight_rows->array().shape)));
    if (w.shape[1] != p.k)
      invalid("weight_q", fmt::format("expected {} in the last dimension, as {} has, got {}", p.k,
                                      c.x_name, w.shape[1]));
    p.n = w.shape[0];
    p.weight = w.dtype;
    weight = w;
  }

  detail::LinearOperands o;
  o.input = &x.ref;
  o.weight = &weight;
  const TensorRef none;
  o.weight_scales = o.weight_zero_points = o.bias = o.residual = &none;
  const bool raw = p.output == DType::s32;
  std::optional<Numbers> weight_scale, act_scale, act_zero, weight_zero, bias;
  TensorRef weight_scales, act_scales, act_zeros, weight_zeros, bias_ref;
  if (!raw) {
    weight_scale.emplace(c.weight_scale, "weight_scale", false);
    if (!weight_scale->given()) invalid("weight_scale", "expected a number or an array, got None");
    check_count(*weight_scale, "weight_scale", p.n, Shape{p.n}, "output channel");
    weight_scales = weight_scale->ref(1);
    o.weight_scales = &weight_scales;
  }
  if (c.act_scale.is_valid()) {
    act_scale.emplace(c.act_scale, "act_scale", false);
    if (!act_scale->given()) invalid("act_scale", "expected a number or an array, got None");
    Granularity token = parse_granularity(shape, nb::str("token"), nb::none());
    check_count(*act_scale, "act_scale", rows, token.shape, "row");
    act_scales = act_scale->ref(1);
    o.activation_scales = &act_scales;
  }
  if (p.op == Op::quantized_matmul) {
    const Granularity token = parse_granularity(shape, nb::str("token"), nb::none());
    o.activation_zero_points = zero_points(act_zero, c.act_zero_point, "act_zero_point", rows,
                                           token.shape, "row", act_zeros);
    p.activation_zero_points = o.activation_zero_points != nullptr;
    if (o.activation_zero_points == nullptr) o.activation_zero_points = &none;
    if (o.activation_scales == nullptr) o.activation_scales = &none;
  }
  if (const TensorRef* z = zero_points(weight_zero, c.weight_zero_point, "weight_zero_point", p.n,
                                       Shape{p.n}, "output channel", weight_zeros)) {
    o.weight_zero_points = z;
    p.weight_zero_points = true;
  }
  if (c.bias.is_valid() && !c.bias.is_none()) {
    bias.emplace(c.bias, "bias", false);
    if (bias->single() ? p.n != 1 : !(bias->shape() == Shape{p.n}))
      invalid("bias", fmt::format("expected shape ({},), got {}", p.n, to_string(bias->shape())));
    bias_ref = bias->ref(1);
    o.bias = &bias_ref;
    p.epilogue = p.epilogue | Epilogue::bias;
  }
  Shape out_shape = shape;
  out_shape[shape.rank() - 1] = p.n;
  std::optional<Rows> residual;
  if (c.residual.is_valid() && !c.residual.is_none()) {
    residual.emplace(c.residual, "residual");
    if (!(residual->array().shape == out_shape))
      invalid("residual", fmt::format("expected shape {}, that of the output, got {}",
                                      to_string(out_shape), to_string(residual->array().shape)));
    o.residual = &residual->ref;
    p.epilogue = p.epilogue | Epilogue::residual;
  }
  if (is_quantized(p.output)) {
    if (!c.out_scale.is_valid() || c.out_scale.is_none())
      invalid("out_scale", fmt::format("expected the scale of an output of {}, got None",
                                       octavo::name(p.output)));
    o.output_scale = parse_number(c.out_scale, "out_scale");
  } else if (c.out_scale.is_valid() && !c.out_scale.is_none()) {
    invalid("out_scale",
            fmt::format("expected None with an output of {}, got one", octavo::name(p.output)));
  }
  if (c.out_zero_point.is_valid())
    o.output_zero_point = parse_zero_point(c.out_zero_point, "out_zero_point");

  const Array out(
      c.out.is_none() ? make_array(x.array().maker, out_shape, p.output) : nb::borrow(c.out), "out",
      true);
  if (!(out.shape == out_shape))
    invalid("out",
            fmt::format("expected shape {}, got {}", to_string(out_shape), to_string(out.shape)));
  const std::optional<TensorMut> output = as_matrix<TensorMut>(out);
  if (!output)
    invalid("out",
            "expected rows of consecutive elements with one stride between them, got others");
  x.check_apart(out);
  if (weight_rows) weight_rows->check_apart(out);
  if (residual) residual->check_apart(out);
  for (const auto* const numbers : {&weight_scale, &act_scale, &act_zero, &weight_zero, &bias})
    if (*numbers) (*numbers)->check_apart(out);
  o.output = &*output;

  p.m = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
  const Status status = run_plan(*cached(stream, p, c.x_name), stream, o);
  if (!status) refuse_linear(status.error(), c.x_name, false);
  return out.object;
}

DType float_dtype(nb::handle value, nb::handle x) {
  if (value.is_none()) {
    const Array array(x, "x");
    if (array.held <= Held::bf16) return array.dtype();
    unsupported("x", fmt::format("expected float32, float64, float16 or bfloat16, got {}",
                                 name(array.held)));
  }
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
                  nb::handle mode, nb::handle residual, nb::handle relu, nb::handle out_dtype,
                  nb::handle profile, nb::handle out, nb::handle stream) {
  QuantizedLinearDescriptor d;
  d.mode = parse_mode(mode);
  d.output = float_dtype(out_dtype, x);
  d.epilogue = relu_of(relu);
  d.profile = parse_profile(profile);
  Call c{.problem = detail::linear_problem(d),
         .x = x,
         .weight = weight_q,
         .weight_scale = weight_scale,
         .bias = bias,
         .residual = residual,
         .out = out,
         .stream = stream,
         .x_name = "x"};
  return run(c);
}

nb::object smoothquant_linear(nb::handle x_q, nb::handle act_scale, nb::handle weight_q,
                              nb::handle weight_scale, nb::handle bias, nb::handle act_zero_point,
                              nb::handle residual, nb::handle relu, nb::handle out_dtype,
                              nb::handle out_scale, nb::handle out_zero_point, nb::handle profile,
                              nb::handle out, nb::handle stream) {
  const Numbers scale(act_scale, "act_scale", false);
  const Numbers zero_point(act_zero_point, "act_zero_point", true);
  // One for each row is beyond the plan of static scales, but not beyond that of both.
  if (!scale.single() || !zero_point.single())
    return quantized_matmul(x_q, weight_q, act_scale, weight_scale, act_zero_point, nb::handle(),
                            bias, residual, relu, out_dtype, out_scale, out_zero_point, profile,
                            out, stream);
  if (!scale.given()) invalid("act_scale", "expected a number or an array, got None");
  SmoothQuantLinearDescriptor d;
  d.act_scale = scale.value();
  d.act_zero_point = zero_point.integer();
  d.output = output_dtype(out_dtype);
  d.epilogue = relu_of(relu);
  d.profile = parse_profile(profile);
  Call c{.problem = detail::linear_problem(d),
         .x = x_q,
         .weight = weight_q,
         .weight_scale = weight_scale,
         .bias = bias,
         .residual = residual,
         .out = out,
         .stream = stream,
         .out_scale = out_scale,
         .out_zero_point = out_zero_point};
  return run(c);
}

nb::object quantized_matmul(nb::handle x_q, nb::handle weight_q, nb::handle act_scale,
                            nb::handle weight_scale, nb::handle act_zero_point,
                            nb::handle weight_zero_point, nb::handle bias, nb::handle residual,
                            nb::handle relu, nb::handle out_dtype, nb::handle out_scale,
                            nb::handle out_zero_point, nb::handle profile, nb::handle out,
                            nb::handle stream) {
  QuantizedMatmulDescriptor d;
  d.output = output_dtype(out_dtype);
  d.epilogue = relu_of(relu);
  d.profile = parse_profile(profile);
  Call c{.problem = detail::linear_problem(d),
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
         .out_scale = out_scale,
         .out_zero_point = out_zero_point};
  return run(c);
}

nb::object int_matmul(nb::handle x_q, nb::handle weight_q, nb::handle act_zero_point,
                      nb::handle weight_zero_point, nb::handle out, nb::handle stream) {
  QuantizedMatmulDescriptor d;
  d.output = DType::s32;
  Call c{.problem = detail::linear_problem(d),
         .x = x_q,
         .weight = weight_q,
         .out = out,
         .stream = stream,
         .act_zero_point = act_zero_point,
         .weight_zero_point = weight_zero_point};
  return run(c);
}

PackedWeight pack_weight(nb::handle weight_q) {
  const Rows rows(weight_q, "weight_q");
  if (rows.array().rank() != 2)
    invalid("weight_q",
            fmt::format("expected shape (N, K), got {}", to_string(rows.array().shape)));
  const Stream& stream = parse_stream(nb::none());
  std::optional<Result<PackedWeight>> packed;
  {
    const nb::gil_scoped_release release;
    packed.emplace(pack(stream, rows.ref));
  }
  if (!*packed) refuse(packed->error(), {{"weight", "weight_q"}});
  return **packed;
}

}  // namespace octavo::python
