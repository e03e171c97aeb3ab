// From sums to the output, on the device: numerics/linear.hpp with types that are known at run
// time. Only .cu files include it, after cuda/device/device.hpp. (Everything that is a choice
// stands here once; kernels call it in a loop that is not unrolled, so that their code stays
// small.)
#pragma once

#include "cuda/device/refusals.hpp"
#include "numerics/narrow_f64.hpp"
#include "ops/linear/cuda/args.hpp"

namespace octavo::cuda {

/// A float of any type in the compute type. f64 is rounded to f32 without an f64 instruction.
template <class C>
OCTAVO_DEVICE C load_float(const void* from, DType type, std::int64_t i) {
  if (type == DType::f32) return static_cast<C>(static_cast<const float*>(from)[i]);
  if (type == DType::f16) return static_cast<C>(numerics::widen(static_cast<const f16*>(from)[i]));
  if (type == DType::bf16)
    return static_cast<C>(numerics::widen(static_cast<const bf16*>(from)[i]));
  if constexpr (sizeof(C) == 8) {
    return static_cast<const double*>(from)[i];
  } else {
    return numerics::narrow_f64(static_cast<const std::uint64_t*>(from)[i]);
  }
}
template <class C>
OCTAVO_DEVICE C load_float(const Floats& from, std::int64_t i) {
  return load_float<C>(from.data, from.type, from.single ? 0 : i);
}

/// A zero point as codes are held.
OCTAVO_DEVICE std::int32_t load_zero(const Zeros& from, std::int64_t i) {
  const std::int32_t shift = from.shift;
  return from.data == nullptr ? shift : from.data[from.single ? 0 : i] + shift;
}

template <class C>
OCTAVO_DEVICE C given_row_scale(const FinishArgs& a) {
  if constexpr (sizeof(C) == 8) {
    return a.row_scale;
  } else {
    return a.row_scale_f32;
  }
}
template <class C>
OCTAVO_DEVICE C given_output_scale(const FinishArgs& a) {
  if constexpr (sizeof(C) == 8) {
    return a.output_scale;
  } else {
    return a.output_scale_f32;
  }
}

/// One element of the output.
template <class C>
OCTAVO_DEVICE void finish_value(const FinishArgs& a, std::int64_t row, std::int64_t column, C acc) {
  C scale = a.row_scales.data == nullptr ? given_row_scale<C>(a) : load_float<C>(a.row_scales, row);
  if (a.column_scales.data != nullptr) scale = scale * load_float<C>(a.column_scales, column);
  // (numerics::finished in parts: pointers that may be null would put what they point to in
  // memory.)
  constexpr const C* none = nullptr;
  C y;
  if (a.bias.data == nullptr) {
    y = numerics::finished(acc, scale, none, none, false);
  } else {
    const C bias = load_float<C>(a.bias, column);
    y = numerics::finished(acc, scale, &bias, none, false);
  }
  if (a.residual != nullptr)
    y = y + load_float<C>(a.residual, a.residual_type, row * a.residual_stride + column);
  // (numerics::relu, but for the compiler, which would make a maximum of it: that takes -0 for less
  // than +0.)
  if (a.relu && opaque(y) < 0) y = 0;
  const std::int64_t at = row * a.output_stride + column;
  switch (a.output_type) {
    case DType::f32:
      static_cast<float*>(a.output)[at] = numerics::stored<float>(y);
      return;
    case DType::f16:
      static_cast<f16*>(a.output)[at] = numerics::stored<f16>(y);
      return;
    case DType::bf16:
      static_cast<bf16*>(a.output)[at] = numerics::stored<bf16>(y);
      return;
    case DType::f64:
      if constexpr (sizeof(C) == 8)
        static_cast<double*>(a.output)[at] = numerics::stored<double>(y);
      return;
    default: {
      const bool is_signed = a.output_type == DType::s8;
      const IntRange range{is_signed ? -128 : 0, is_signed ? 127 : 255};
      const typename numerics::AffineOf<C>::type affine(given_output_scale<C>(a),
                                                        a.output_zero_point, range, a.profile);
      static_cast<std::uint8_t*>(a.output)[at] =
          static_cast<std::uint8_t>(numerics::quantize(y, affine));
    }
  }
}

/// Where the sums of a row of activations are: of 16 bits, those of its upper half.
OCTAVO_DEVICE std::int64_t product_row(std::int64_t row, int halves) {
  return halves == 1 ? row : row / 8 * 16 + row % 8;
}

/// One element of the output, from the sum of its products as held (of 16 bits, `low` is that of
/// the lower halves). Zero points are taken off here: modulo 2^32 where the true sum fits.
template <class C>
OCTAVO_DEVICE void finish_sum(const FinishArgs& a, std::int64_t row, std::int64_t column,
                              std::int64_t sum, std::int64_t low) {
  const std::int64_t at = product_row(row, a.halves);
  const bool has_halves = a.halves == 2;
  if (has_halves) sum = sum * 256 + low;
  const std::int64_t zero = load_zero(a.row_zeros, row);
  if (a.row_sums != nullptr) {
    std::int64_t row_sum = a.row_sums[at];
    if (has_halves) row_sum = row_sum * 256 + a.row_sums[at + 8];
    sum -= load_zero(a.column_zeros, column) * (row_sum - a.k * zero);
  }
  if (a.column_sums != nullptr) sum -= zero * a.column_sums[column];
  if (a.output_type == DType::s32) {
    static_cast<std::int32_t*>(a.output)[row * a.output_stride + column] =
        static_cast<std::int32_t>(sum);
    return;
  }
  // (The first is one instruction, the second several.)
  const C acc =
      a.wide || has_halves ? static_cast<C>(sum) : static_cast<C>(static_cast<std::int32_t>(sum));
  finish_value<C>(a, row, column, acc);
}

/// The sum of up to eight segments, `step` apart.
template <class C>
OCTAVO_DEVICE C tree_of(const C* y, std::int64_t step, int count) {
  C sum = y[0];
  if (count >= 2) sum = sum + y[step];
  if (count >= 4) sum = sum + (y[2 * step] + y[3 * step]);
  if (count >= 8) sum = sum + ((y[4 * step] + y[5 * step]) + (y[6 * step] + y[7 * step]));
  return sum;
}

}  // namespace octavo::cuda
