// Cases of the linear plans, and their operands.
#pragma once

#include <cmath>

#include "octavo/octavo.hpp"
#include "ops/dynamic_range/testing.hpp"

namespace octavo::testing {

enum class LinearKind { matmul, dynamic, smoothquant, floats };

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
  std::int64_t group = 0;        // weights that share a scale; 0: all of a row
  std::uint64_t seed = 1;

  [[nodiscard]] std::int64_t groups() const { return group == 0 ? 1 : k / group; }
  [[nodiscard]] std::string text() const {
    return std::string(kind == LinearKind::matmul        ? "matmul"
                       : kind == LinearKind::dynamic     ? "dynamic"
                       : kind == LinearKind::smoothquant ? "smoothquant"
                                                         : "floats") +
           (group == 0 ? "" : " group=" + std::to_string(group)) +
           (quantized ? " " + std::string(name(*quantized)) : "") + " m=" + std::to_string(m) +
           " n=" + std::to_string(n) + " k=" + std::to_string(k) + " " +
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
        stride(is_packed(t) ? (c + padding + 1) / 2 * 2 : c + padding),
        bytes(static_cast<std::size_t>(r == 0 ? 0 : bytes_for(t, (r - 1) * stride + c))) {}
  [[nodiscard]] std::uint64_t get(std::int64_t r, std::int64_t c) const {
    const std::int64_t i = r * stride + c;
    if (is_packed(type))
      return std::to_integer<std::uint64_t>(bytes[static_cast<std::size_t>(i / 2)]) >> (i % 2 * 4) &
             0xF;
    return load_bits(bytes.data(), bits(type) / 8, i);
  }
  /// Of integers.
  [[nodiscard]] std::int64_t integer(std::int64_t r, std::int64_t c) const {
    const auto value = static_cast<std::int64_t>(get(r, c));
    const std::int64_t half = std::int64_t{1} << (bits(type) - 1);
    return storage_range(type).min < 0 ? (value ^ half) - half : value;
  }
  void set(std::int64_t r, std::int64_t c, std::uint64_t value) {
    const std::int64_t i = r * stride + c;
    if (is_packed(type)) {
      auto& byte = bytes[static_cast<std::size_t>(i / 2)];
      byte = (byte & std::byte(i % 2 == 0 ? 0xF0 : 0x0F)) |
             static_cast<std::byte>((value & 0xF) << (i % 2 * 4));
      return;
    }
    store_bits(bytes.data(), bits(type) / 8, i, value);
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

[[nodiscard]] inline LinearData make_linear(LinearCase c) {
  if (c.group >= c.k) c.group = 0;  // that is one scale per channel
  LinearData d;
  d.c = c;
  Random random(c.seed);
  const auto fill = [&](Matrix& matrix, auto value) {
    for (std::int64_t r = 0; r < matrix.rows; ++r)
      for (std::int64_t i = 0; i < matrix.columns; ++i) matrix.set(r, i, value(r, i));
  };
  const auto integers = [&](Matrix& matrix) {
    const std::uint64_t kind = random.below(3);  // all at one end, all at the other, in turn
    const IntRange range = storage_range(matrix.type);
    for (std::int64_t r = 0; r < matrix.rows; ++r)
      for (std::int64_t i = 0; i < matrix.columns; ++i)
        matrix.set(r, i,
                   !c.extreme
                       ? random.below(256)
                       : static_cast<std::uint64_t>(
                             kind == 0 || (kind == 2 && i % 2 == 0) ? range.min : range.max));
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
  if (is_float(c.weight)) {
    fill(d.weight, [&](std::int64_t, std::int64_t) { return encode(c.weight, tame(random, 0.5)); });
  } else {
    integers(d.weight);
  }
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
    if (c.kind != LinearKind::floats)
      floats(d.weight_scales, c.parameter, 1,
             c.group == 0 && c.one_weight_scale ? 1 : c.n * c.groups(), 0, 0.125);
    if (contains(c.epilogue, Epilogue::bias)) floats(d.bias, c.parameter, 1, c.n, 0, 64, c.special);
    if (contains(c.epilogue, Epilogue::residual))
      floats(d.residual, is_float(c.output) ? c.output : DType::f32, c.m, c.n, c.padding, 64,
             c.special);
  }
  const auto zeros = [&](std::vector<std::int32_t>& zero_points, DType type, std::int64_t count) {
    const IntRange range = storage_range(type);
    const auto values = static_cast<std::uint64_t>(range.max - range.min) + 1;
    for (std::int64_t i = 0; i < count; ++i)
      zero_points.push_back(
          c.extreme ? range.max : range.min + static_cast<std::int32_t>(random.below(values)));
  };
  if (c.kind == LinearKind::matmul && c.activation_zero_points)
    zeros(d.activation_zero_points, c.activation, c.one_activation_scale ? 1 : c.m);
  if (c.weight_zero_points)
    zeros(d.weight_zero_points, c.weight,
          c.group == 0 && c.one_weight_scale ? 1 : c.n * c.groups());
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

}  // namespace octavo::testing
