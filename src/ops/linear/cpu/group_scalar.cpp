// Products by weights in groups as they are defined.
#include <cmath>

#include "numerics/segments.hpp"
#include "numerics/types.hpp"
#include "ops/linear/cpu/group.hpp"
#include "ops/linear/problem.hpp"

namespace octavo::detail {
namespace {

// The code of a column at k of a group.
std::uint32_t code_at(const unsigned char* codes, std::int64_t column, std::int64_t k,
                      bool nibbles) {
  const std::int64_t in_step = column % panel_columns * step_k + k % step_k;
  const bool second = column >= panel_columns;
  if (!nibbles) return codes[k / step_k * 128 + (second ? panel_columns * step_k : 0) + in_step];
  return codes[k / step_k * 64 + in_step] >> (second ? 4 : 0) & 0xFU;
}

// sum over `steps` of a * w, modulo 2^32; `row` counts halves.
std::uint32_t add_products(const std::int8_t* activations, std::int64_t rows, std::int64_t row,
                           const unsigned char* codes, std::int64_t column, std::int64_t steps,
                           bool nibbles) {
  std::uint32_t sum = 0;
  for (std::int64_t k = 0; k < steps * step_k; ++k)
    sum +=
        static_cast<std::uint32_t>(activations[(k / step_k * rows + row) * step_k + k % step_k]) *
        code_at(codes, column, k, nibbles);
  return sum;
}

Target sums(const GroupSumsCall& call, bool nibbles) {
  const std::int64_t rows = std::int64_t{call.rows} * call.parts;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < call.panels * wide_columns; ++c)
      call.sums[r * group_columns + c] = static_cast<std::int32_t>(
          add_products(call.activations, rows, r, call.codes[c / wide_columns], c % wide_columns,
                       call.steps, nibbles));
  return Target::scalar;
}

float scale_at(const GroupCall& call, const unsigned char* group, std::int64_t column) {
  float scale = 0;
  numerics::with_type(LinearFloats(), call.scale_type, [&]<DType type>() {
    scale = static_cast<float>(numerics::Type<type>::read(group, column));
  });
  return scale;
}

float value_at(const GroupCall& call, std::int64_t row, std::int64_t panel, std::int64_t column,
               bool nibbles) {
  const std::int64_t rows = std::int64_t{call.rows} * call.parts;
  const std::int64_t scale_bytes = wide_columns * bits(call.scale_type) / 8;
  const std::int64_t group_bytes = scale_bytes + call.steps * (nibbles ? 64 : 128);
  numerics::SegmentTree<float> tree;
  std::int64_t g = 0;
  for (int j = 0; j < call.segments; ++j) {
    float y = 0;
    for (; g < call.segment[j].end; ++g) {
      const unsigned char* group = call.weights[panel] + g * group_bytes;
      const auto zero = static_cast<std::uint32_t>(
          call.zero_points[panel] == nullptr ? call.zero
                                             : call.zero_points[panel][g * wide_columns + column]);
      std::uint32_t d = 0;
      for (int part = 0; part < call.parts; ++part) {
        const std::int64_t r = row * call.parts + part;
        std::uint32_t sum = add_products(call.activations + g * call.steps * step_k * rows, rows, r,
                                         group + scale_bytes, column, call.steps, nibbles);
        sum -= zero * static_cast<std::uint32_t>(call.row_sums[g * rows + r]);
        if (call.row_zeros != nullptr)
          sum -= static_cast<std::uint32_t>(call.row_zeros[r]) *
                 static_cast<std::uint32_t>(call.column_sums[panel][g * wide_columns + column]);
        d = d * 256 + sum;
      }
      y = std::fma(static_cast<float>(static_cast<std::int32_t>(d)), scale_at(call, group, column),
                   y);
    }
    tree.add(y);
  }
  return tree.result();
}

Target run(const GroupCall& call, bool nibbles) {
  for (std::int64_t r = 0; r < call.rows; ++r)
    for (std::int64_t c = 0; c < call.panels * wide_columns; ++c)
      call.values[r * group_columns + c] =
          value_at(call, r, c / wide_columns, c % wide_columns, nibbles);
  return Target::scalar;
}

}  // namespace

const GroupKernel group_scalar{.rows = 4, .run = run, .sums = sums};

}  // namespace octavo::detail
