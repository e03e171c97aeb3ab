// What the linear plans must answer, written independently of the library.
#pragma once

#include <cmath>

#include "ops/linear/testing_data.hpp"

namespace octavo::testing {

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
        case LinearKind::floats:
          activation_scale.push_back(1);
          activation_zero.push_back(0);
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
    const IntRange range = to == DType::s16 ? IntRange{-32639, 32639} : storage_range(to);
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
        quantized.set(r, i, static_cast<std::uint64_t>(quantize.quantize(x(i))));
    }
  }
  void quantize_rows() {
    if (c.activation == DType::f64) {
      quantize_rows_as<double>();
    } else {
      quantize_rows_as<float>();
    }
  }

  // Of a group, or of all of a row.
  [[nodiscard]] std::int64_t weight_zero(std::int64_t n, std::int64_t g) const {
    if (!c.weight_zero_points) return 0;
    if (c.group != 0) return d.weight_zero_points[static_cast<std::size_t>(n * c.groups() + g)];
    return d.weight_zero_points[static_cast<std::size_t>(c.one_weight_scale ? 0 : n)];
  }
  [[nodiscard]] std::int64_t sum(std::int64_t m, std::int64_t n, std::int64_t g) const {
    const std::int64_t za = activation_zero[static_cast<std::size_t>(m)];
    const std::int64_t zw = weight_zero(n, g);
    const std::int64_t length = c.group == 0 ? c.k : c.group;
    std::int64_t total = 0;
    for (std::int64_t k = g * length; k < (g + 1) * length; ++k)
      total += (quantized.integer(m, k) - za) * (d.weight.integer(n, k) - zw);
    return total;
  }

  // Sums of floats: term(i, y) adds term i to y.
  template <class F>
  [[nodiscard]] C segments(std::int64_t terms, F&& term) const {
    std::int64_t count = c.k / 512;
    count = count >= 8 ? 8 : count >= 4 ? 4 : count >= 2 ? 2 : 1;
    const auto tree = [&](auto&& self, std::int64_t first, std::int64_t last) -> C {
      if (last - first > 1) {
        const std::int64_t middle = (first + last) / 2;
        const C left = self(self, first, middle);
        return left + self(self, middle, last);
      }
      C y = 0;
      for (std::int64_t i = terms * first / count; i < terms * last / count; ++i) y = term(i, y);
      return y;
    };
    return tree(tree, 0, count);
  }
  [[nodiscard]] C accumulated(std::int64_t m, std::int64_t n) const {
    if (c.kind == LinearKind::floats)
      return segments(c.k, [&](std::int64_t k, C y) {
        return std::fma(value(d.input, m, k), value(d.weight, n, k), y);
      });
    return segments(c.groups(), [&](std::int64_t g, C y) {
      return std::fma(static_cast<C>(sum(m, n, g)), value(d.weight_scales, 0, n * c.groups() + g),
                      y);
    });
  }

  [[nodiscard]] std::uint64_t result(std::int64_t m, std::int64_t n) const {
    if (c.output == DType::s32) return static_cast<std::uint32_t>(sum(m, n, 0));
    const bool floats = c.group != 0 || c.kind == LinearKind::floats;
    const C acc = floats ? accumulated(m, n) : static_cast<C>(sum(m, n, 0));
    C scale = activation_scale[static_cast<std::size_t>(m)];
    if (!floats) scale = scale * value(d.weight_scales, 0, c.one_weight_scale ? 0 : n);
    C y = acc * scale;
    if (contains(c.epilogue, Epilogue::bias)) y = std::fma(acc, scale, value(d.bias, 0, n));
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

}  // namespace octavo::testing
