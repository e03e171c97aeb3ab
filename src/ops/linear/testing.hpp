// What the tests of the linear plans share: any plan behind one call, and the oracle's answer to
// it, written independently of the library.
#pragma once

#include <cmath>

#include "octavo/octavo.hpp"
#include "ops/dynamic_range/testing.hpp"

namespace octavo::testing {

enum class LinearKind { matmul, dynamic, smoothquant };

/// One call: what the descriptors have, how the operands lie, and what is in them.
struct LinearCase {
  LinearKind kind = LinearKind::matmul;
  std::int64_t m = 1, n = 1, k = 1;
  DType activation = DType::s8;
  DType weight = DType::s8;
  DType output = DType::f32;
  RangeMode mode = RangeMode::symmetric;
  std::optional<DType> quantized = {};
  bool activation_zero_points = false;
  bool weight_zero_points = false;
  bool packed = false;
  Epilogue epilogue = Epilogue::none;
  Profile profile = Profile::torch;
  bool one_activation_scale = false;
  bool one_weight_scale = false;
  DType parameter = DType::f32;  // of scales and bias
  std::int64_t padding = 0;      // elements between the rows of every matrix
  bool extreme = false;          // integers at the ends of their range
  bool special = false;          // bias and residual full of NaN, infinities, zeros, subnormals
  std::uint64_t seed = 1;

  [[nodiscard]] std::string text() const {
    return std::string(kind == LinearKind::matmul    ? "matmul"
                       : kind == LinearKind::dynamic ? "dynamic"
                                                     : "smoothquant") +
           " m=" + std::to_string(m) + " n=" + std::to_string(n) + " k=" + std::to_string(k) + " " +
           std::string(name(activation)) + "." + std::string(name(weight)) + "." +
           std::string(name(output)) + " " + std::string(name(epilogue)) + " " +
           std::string(name(profile)) + (packed ? " packed" : "") +
           (activation_zero_points || mode == RangeMode::asymmetric ? " za" : "") +
           (weight_zero_points ? " zw" : "") + " padding=" + std::to_string(padding) +
           " parameters=" + std::string(name(parameter)) + " seed=" + std::to_string(seed);
  }
};

/// A matrix whose rows may lie apart.
struct Matrix {
  DType type = DType::s8;
  std::int64_t rows = 0, columns = 0, stride = 0;
  Bytes bytes;

  Matrix() = default;
  Matrix(DType t, std::int64_t r, std::int64_t c, std::int64_t padding)
      : type(t),
        rows(r),
        columns(c),
        stride(c + padding),
        bytes(static_cast<std::size_t>(r == 0 ? 0 : bytes_for(t, (r - 1) * (c + padding) + c))) {}
  [[nodiscard]] std::uint64_t get(std::int64_t r, std::int64_t c) const {
    return load_bits(bytes.data(), bits(type) / 8, r * stride + c);
  }
  void set(std::int64_t r, std::int64_t c, std::uint64_t value) {
    store_bits(bytes.data(), bits(type) / 8, r * stride + c, value);
  }
  [[nodiscard]] TensorRef ref() const {
    return {
        bytes.data(), type, {rows, columns}, {stride, 1}, static_cast<std::int64_t>(bytes.size())};
  }
  [[nodiscard]] TensorMut mut() {
    return {
        bytes.data(), type, {rows, columns}, {stride, 1}, static_cast<std::int64_t>(bytes.size())};
  }
};

struct LinearData {
  LinearCase c;
  Matrix input, weight, residual;
  Matrix activation_scales, weight_scales, bias;  // one row each
  std::vector<std::int32_t> activation_zero_points, weight_zero_points;
  double output_scale = 1;
  std::int32_t output_zero_point = 0;
  double act_scale = 1;  // of smoothquant
  std::int32_t act_zero_point = 0;
};

[[nodiscard]] inline DType linear_compute(const LinearCase& c) {
  return c.activation == DType::f64 || c.output == DType::f64 ? DType::f64 : DType::f32;
}

/// A float around `size`, of either sign, exact in f16.
[[nodiscard]] inline double tame(Random& random, double size) {
  const auto steps = static_cast<double>(random.below(2047)) - 1023;
  return size * steps / 1024;
}

[[nodiscard]] inline LinearData make_linear(const LinearCase& c) {
  LinearData d;
  d.c = c;
  Random random(c.seed);
  const auto fill = [&](Matrix& matrix, auto value) {
    for (std::int64_t r = 0; r < matrix.rows; ++r)
      for (std::int64_t i = 0; i < matrix.columns; ++i) matrix.set(r, i, value(r, i));
  };
  const auto integers = [&](Matrix& matrix) {
    const std::uint64_t kind = random.below(3);  // all at one end, all at the other, in turn
    const std::uint64_t low = matrix.type == DType::s8 ? 0x80 : 0;
    const std::uint64_t high = matrix.type == DType::s8 ? 0x7F : 0xFF;
    for (std::int64_t r = 0; r < matrix.rows; ++r)
      for (std::int64_t i = 0; i < matrix.columns; ++i)
        matrix.bytes[static_cast<std::size_t>(r * matrix.stride + i)] =
            static_cast<std::byte>(!c.extreme                               ? random.below(256)
                                   : kind == 0 || (kind == 2 && i % 2 == 0) ? low
                                                                            : high);
  };
  d.input = Matrix(c.activation, c.m, c.k, c.padding);
  if (is_float(c.activation)) {
    std::uint64_t style = 8;
    fill(d.input, [&](std::int64_t /*r*/, std::int64_t i) {
      if (i == 0) style = random.below(24);
      return dynamic_bits(c.activation, style, random);
    });
  } else {
    integers(d.input);
  }
  d.weight = Matrix(c.weight, c.n, c.k, c.padding);
  integers(d.weight);
  const auto floats = [&](Matrix& matrix, DType type, std::int64_t rows, std::int64_t columns,
                          std::int64_t padding, double size, bool special = false) {
    matrix = Matrix(type, rows, columns, padding);
    fill(matrix, [&](std::int64_t, std::int64_t) {
      return special && random.below(4) != 0 ? special_bits(type, random)
                                             : encode(type, tame(random, size));
    });
  };
  if (c.output != DType::s32) {
    if (c.kind == LinearKind::matmul)
      floats(d.activation_scales, c.parameter, 1, c.one_activation_scale ? 1 : c.m, 0, 0.25);
    floats(d.weight_scales, c.parameter, 1, c.one_weight_scale ? 1 : c.n, 0, 0.125);
    if (contains(c.epilogue, Epilogue::bias)) floats(d.bias, c.parameter, 1, c.n, 0, 64, c.special);
    if (contains(c.epilogue, Epilogue::residual))
      floats(d.residual, is_float(c.output) ? c.output : DType::f32, c.m, c.n, c.padding, 64,
             c.special);
  }
  const auto zeros = [&](std::vector<std::int32_t>& zero_points, DType type, std::int64_t count) {
    const IntRange range = storage_range(type);
    for (std::int64_t i = 0; i < count; ++i)
      zero_points.push_back(c.extreme ? range.max
                                      : range.min + static_cast<std::int32_t>(random.below(256)));
  };
  if (c.kind == LinearKind::matmul && c.activation_zero_points)
    zeros(d.activation_zero_points, c.activation, c.one_activation_scale ? 1 : c.m);
  if (c.weight_zero_points) zeros(d.weight_zero_points, c.weight, c.one_weight_scale ? 1 : c.n);
  if (is_quantized(c.output)) {
    d.output_scale = 0.5 + static_cast<double>(random.below(1000));
    d.output_zero_point = static_cast<std::int32_t>(random.below(41)) - 20;
  }
  if (c.kind == LinearKind::smoothquant) {
    d.act_scale = tame(random, 0.1);
    if (c.activation_zero_points) {
      std::vector<std::int32_t> one;
      zeros(one, c.activation, 1);
      d.act_zero_point = one[0];
    }
  }
  return d;
}

// ---- The oracle ---------------------------------------------------------------------------------

template <class C>
struct LinearOracle {
  const LinearData& d;
  const LinearCase& c = d.c;
  Matrix quantized;  // the activations
  std::vector<C> activation_scale;
  std::vector<std::int64_t> activation_zero;

  explicit LinearOracle(const LinearData& data) : d(data) {
    quantized = d.input;
    for (std::int64_t r = 0; r < c.m; ++r) {
      const bool one = c.one_activation_scale;
      switch (c.kind) {
        case LinearKind::matmul:
          activation_scale.push_back(
              c.output == DType::s32 ? C(1) : value(d.activation_scales, 0, one ? 0 : r));
          activation_zero.push_back(
              c.activation_zero_points
                  ? d.activation_zero_points[static_cast<std::size_t>(one ? 0 : r)]
                  : 0);
          break;
        case LinearKind::smoothquant:
          activation_scale.push_back(static_cast<C>(d.act_scale));
          activation_zero.push_back(d.act_zero_point);
          break;
        case LinearKind::dynamic:
          break;
      }
    }
    if (c.kind == LinearKind::dynamic) quantize_rows();
  }

  static C value(const Matrix& m, std::int64_t r, std::int64_t i) {
    return static_cast<C>(decode(m.type, m.get(r, i)));
  }

  // Each row's range, by the oracle of dynamic ranges, in the activations' own compute type.
  template <class A>
  void quantize_rows_as() {
    const DType to = c.quantized.value_or(c.mode == RangeMode::symmetric ? DType::s8 : DType::u8);
    const IntRange range = storage_range(to);
    quantized = Matrix(to, c.m, c.k, 0);
    for (std::int64_t r = 0; r < c.m; ++r) {
      DynamicOracle<A> oracle;
      const auto x = [&](std::int64_t i) {
        return static_cast<A>(decode(c.activation, d.input.get(r, i)));
      };
      for (std::int64_t i = 0; i < c.k; ++i) oracle.see(x(i));
      const A scale = oracle.scale(c.mode, range);
      const std::int32_t zero = oracle.zero_point(c.mode, range);
      activation_scale.push_back(static_cast<C>(scale));
      activation_zero.push_back(zero);
      const Oracle<A> quantize{scale, zero, range.min, range.max, c.profile};
      for (std::int64_t i = 0; i < c.k; ++i)
        quantized.set(r, i, static_cast<std::uint64_t>(quantize.quantize(x(i))) & 0xFF);
    }
  }
  void quantize_rows() {
    if (c.activation == DType::f64) {
      quantize_rows_as<double>();
    } else {
      quantize_rows_as<float>();
    }
  }

  [[nodiscard]] std::int64_t weight_zero(std::int64_t n) const {
    if (!c.weight_zero_points) return 0;
    return d.weight_zero_points[static_cast<std::size_t>(c.one_weight_scale ? 0 : n)];
  }
  template <class A, class W>
  [[nodiscard]] std::int64_t sum_as(std::int64_t m, std::int64_t n) const {
    std::int64_t total = 0;
    const auto za = static_cast<std::int32_t>(activation_zero[static_cast<std::size_t>(m)]);
    const auto zw = static_cast<std::int32_t>(weight_zero(n));
    const auto* a = reinterpret_cast<const A*>(quantized.bytes.data()) + m * quantized.stride;
    const auto* w = reinterpret_cast<const W*>(d.weight.bytes.data()) + n * d.weight.stride;
    for (std::int64_t k = 0; k < c.k; ++k) total += (a[k] - za) * (w[k] - zw);
    return total;
  }
  [[nodiscard]] std::int64_t sum(std::int64_t m, std::int64_t n) const {
    if (quantized.type == DType::u8)
      return c.weight == DType::u8 ? sum_as<std::uint8_t, std::uint8_t>(m, n)
                                   : sum_as<std::uint8_t, std::int8_t>(m, n);
    return c.weight == DType::u8 ? sum_as<std::int8_t, std::uint8_t>(m, n)
                                 : sum_as<std::int8_t, std::int8_t>(m, n);
  }
  [[nodiscard]] std::uint64_t result(std::int64_t m, std::int64_t n) const {
    const std::int64_t acc = sum(m, n);
    if (c.output == DType::s32) return static_cast<std::uint32_t>(acc);
    const C scale = activation_scale[static_cast<std::size_t>(m)] *
                    value(d.weight_scales, 0, c.one_weight_scale ? 0 : n);
    C y = static_cast<C>(acc) * scale;
    if (contains(c.epilogue, Epilogue::bias))
      y = std::fma(static_cast<C>(acc), scale, value(d.bias, 0, n));
    if (contains(c.epilogue, Epilogue::residual)) y = y + value(d.residual, m, n);
    if (contains(c.epilogue, Epilogue::relu) && y < 0) y = 0;
    if (is_float(c.output)) return encode(c.output, static_cast<double>(y));
    const IntRange range = storage_range(c.output);
    const Oracle<C> oracle{static_cast<C>(d.output_scale), d.output_zero_point, range.min,
                           range.max, c.profile};
    return static_cast<std::uint64_t>(oracle.quantize(y)) & 0xFF;
  }
};

/// The output as the oracle has it; what lies between its rows is painted.
inline constexpr std::byte linear_paint{0xCD};

[[nodiscard]] inline Matrix blank_output(const LinearCase& c) {
  Matrix out(c.output, c.m, c.n, c.padding);
  std::fill(out.bytes.begin(), out.bytes.end(), linear_paint);
  return out;
}
template <class C>
Matrix linear_answer(const LinearData& d) {
  const LinearOracle<C> oracle(d);
  Matrix out = blank_output(d.c);
  for (std::int64_t m = 0; m < d.c.m; ++m)
    for (std::int64_t n = 0; n < d.c.n; ++n) out.set(m, n, oracle.result(m, n));
  return out;
}
[[nodiscard]] inline Matrix expected(const LinearData& d) {
  return linear_compute(d.c) == DType::f64 ? linear_answer<double>(d) : linear_answer<float>(d);
}

// ---- The plans ----------------------------------------------------------------------------------

template <class D>
void fill_descriptor(D& to, const LinearCase& c) {
  to.m = c.m;
  to.n = c.n;
  to.k = c.k;
  to.activation = c.activation;
  to.weight = c.weight;
  to.output = c.output;
  to.weight_zero_points = c.weight_zero_points;
  to.packed_weight = c.packed;
  to.epilogue = c.epilogue;
  to.profile = c.profile;
}

/// The arguments of a call.
template <class Args>
Args linear_args(const LinearData& d, const PackedWeight& packed, Matrix& out) {
  Args args;
  args.input = d.input.ref();
  args.weight = d.c.packed ? WeightRef(packed) : WeightRef(d.weight.ref());
  const auto array = [](const Matrix& m) { return TensorRef(m.bytes.data(), m.type, {m.columns}); };
  const auto zeros = [](const std::vector<std::int32_t>& z) { return TensorRef(z); };
  if (d.c.output != DType::s32) args.weight_scales = array(d.weight_scales);
  if (d.c.weight_zero_points) args.weight_zero_points = zeros(d.weight_zero_points);
  if (contains(d.c.epilogue, Epilogue::bias)) args.bias = array(d.bias);
  if (contains(d.c.epilogue, Epilogue::residual)) args.residual = d.residual.ref();
  args.output_scale = d.output_scale;
  args.output_zero_point = d.output_zero_point;
  args.output = out.mut();
  if constexpr (requires { args.activation_scales; }) {
    if (d.c.output != DType::s32) args.activation_scales = array(d.activation_scales);
    if (d.c.activation_zero_points) args.activation_zero_points = zeros(d.activation_zero_points);
  }
  return args;
}

template <class Plan>
std::string run_plan(const Stream& stream, const typename Plan::Descriptor& descriptor,
                     const LinearData& d, Matrix& out) {
  const auto plan = Plan::select(stream, descriptor);
  if (!plan) return plan.error().message();
  PackedWeight packed;
  if (d.c.packed) {
    auto made = pack(stream, d.weight.ref());
    if (!made) return made.error().message();
    packed = *made;
  }
  const WorkspaceBuffer workspace(plan->workspace_size());
  out = blank_output(d.c);
  const Status s = plan->run(stream, workspace, linear_args<typename Plan::Args>(d, packed, out));
  return s ? std::string() : s.error().message();
}

[[nodiscard]] inline QuantizedMatmulDescriptor matmul_descriptor(const LinearCase& c) {
  QuantizedMatmulDescriptor to;
  fill_descriptor(to, c);
  to.activation_zero_points = c.activation_zero_points;
  return to;
}
[[nodiscard]] inline QuantizedLinearDescriptor dynamic_descriptor(const LinearCase& c) {
  QuantizedLinearDescriptor to;
  fill_descriptor(to, c);
  to.mode = c.mode;
  to.quantized = c.quantized;
  return to;
}
[[nodiscard]] inline SmoothQuantLinearDescriptor smoothquant_descriptor(const LinearData& d) {
  SmoothQuantLinearDescriptor to;
  fill_descriptor(to, d.c);
  to.act_scale = d.act_scale;
  to.act_zero_point = d.act_zero_point;
  return to;
}

/// Runs the case's plan; the error's message, or empty.
[[nodiscard]] inline std::string run(const Stream& stream, const LinearData& d, Matrix& out) {
  switch (d.c.kind) {
    case LinearKind::matmul:
      return run_plan<QuantizedMatmulPlan>(stream, matmul_descriptor(d.c), d, out);
    case LinearKind::dynamic:
      return run_plan<QuantizedLinearPlan>(stream, dynamic_descriptor(d.c), d, out);
    case LinearKind::smoothquant:
      return run_plan<SmoothQuantLinearPlan>(stream, smoothquant_descriptor(d), d, out);
  }
  return "unknown kind";
}

/// Empty if the plan's output is the oracle's, to the byte, what lies between the rows included.
[[nodiscard]] inline std::string compare(const Stream& stream, const LinearData& d,
                                         const Matrix& answer) {
  Matrix out;
  if (std::string error = run(stream, d, out); !error.empty()) return d.c.text() + ": " + error;
  if (out.bytes == answer.bytes) return {};
  for (std::int64_t m = 0; m < d.c.m; ++m)
    for (std::int64_t n = 0; n < d.c.n; ++n)
      if (out.get(m, n) != answer.get(m, n))
        return d.c.text() + ": at [" + std::to_string(m) + ", " + std::to_string(n) +
               "] expected bits " + std::to_string(answer.get(m, n)) + ", got " +
               std::to_string(out.get(m, n));
  return d.c.text() + ": bytes between the rows changed";
}

}  // namespace octavo::testing
