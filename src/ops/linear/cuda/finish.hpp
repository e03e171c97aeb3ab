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

/// Where the sums of a row of activations are: of 16 bits, those of its upper half.
OCTAVO_DEVICE std::int64_t product_row(std::int64_t row, int halves) {
  return halves == 1 ? row : row / 8 * 16 + row % 8;
}

/// What an element takes from its row and from its column.
template <class C>
struct RowTerms {
  C scale;
  std::int32_t zero;
  std::int64_t sum;  // of the row, less its zero point
};
template <class C>
struct ColumnTerms {
  C scale;
  C bias;
  std::int32_t zero;
  std::int64_t sum;
};

/// Elements of the output. Zero points are taken off sums here: modulo 2^32 where the true ones
/// fit.
template <class C>
class Finish {
 public:
  OCTAVO_DEVICE explicit Finish(const FinishArgs& a)
      : a_(a),
        affine_(output_scale(a), a.output_zero_point,
                a.output_type == DType::s8 ? IntRange{-128, 127} : IntRange{0, 255}, a.profile) {}

  [[nodiscard]] OCTAVO_DEVICE RowTerms<C> row(std::int64_t row) const {
    RowTerms<C> r{row_scale(a_), 0, 0};
    if (a_.row_scales.data != nullptr) r.scale = load_float<C>(a_.row_scales, row);
    if (a_.row_sums == nullptr && a_.column_sums == nullptr) return r;
    r.zero = load_zero(a_.row_zeros, row);
    if (a_.row_sums == nullptr) return r;
    const std::int64_t at = product_row(row, a_.halves);
    r.sum = a_.row_sums[at];
    if (a_.halves == 2) r.sum = r.sum * 256 + a_.row_sums[at + 8];
    r.sum -= a_.k * r.zero;
    return r;
  }
  [[nodiscard]] OCTAVO_DEVICE ColumnTerms<C> column(std::int64_t column) const {
    ColumnTerms<C> c{C(1), C(0), 0, 0};
    if (a_.column_scales.data != nullptr) c.scale = load_float<C>(a_.column_scales, column);
    if (a_.bias.data != nullptr) c.bias = load_float<C>(a_.bias, column);
    if (a_.row_sums != nullptr) c.zero = load_zero(a_.column_zeros, column);
    if (a_.column_sums != nullptr) c.sum = a_.column_sums[column];
    return c;
  }

  /// From the sum of its products as held; of 16 bits `low` is that of the lower halves.
  OCTAVO_DEVICE void put_sum(const RowTerms<C>& r, const ColumnTerms<C>& c, std::int64_t row,
                             std::int64_t column, std::int64_t sum, std::int64_t low) const {
    const bool has_halves = a_.halves == 2;
    C acc;
    if (a_.wide || has_halves) {
      if (has_halves) sum = sum * 256 + low;
      sum -= c.zero * r.sum + r.zero * c.sum;
      acc = static_cast<C>(sum);
    } else {
      auto narrow = static_cast<std::uint32_t>(sum);
      narrow -= static_cast<std::uint32_t>(c.zero) * static_cast<std::uint32_t>(r.sum);
      narrow -= static_cast<std::uint32_t>(r.zero) * static_cast<std::uint32_t>(c.sum);
      const auto exact = static_cast<std::int32_t>(narrow);
      if (a_.output_type == DType::s32) {
        static_cast<std::int32_t*>(a_.output)[row * a_.output_stride + column] = exact;
        return;
      }
      acc = static_cast<C>(exact);
    }
    put(r, c, row, column, acc);
  }

  /// From a sum of floats; of products of integers, from theirs.
  OCTAVO_DEVICE void put(const RowTerms<C>& r, const ColumnTerms<C>& c, std::int64_t row,
                         std::int64_t column, C acc) const {
    // (numerics::finished in parts: pointers that may be null would put what they point to in
    // memory. A column without a scale has 1, which changes nothing.)
    constexpr const C* none = nullptr;
    const C scale = r.scale * c.scale;
    C y = a_.bias.data == nullptr ? numerics::finished(acc, scale, none, none, false)
                                  : numerics::finished(acc, scale, &c.bias, none, false);
    if (a_.residual != nullptr)
      y = y + load_float<C>(a_.residual, a_.residual_type, row * a_.residual_stride + column);
    // (numerics::relu, but for the compiler, which would make a maximum of it: that takes -0 for
    // less than +0.)
    if (a_.relu && opaque(y) < 0) y = 0;
    const std::int64_t at = row * a_.output_stride + column;
    switch (a_.output_type) {
      case DType::f32:
        static_cast<float*>(a_.output)[at] = numerics::stored<float>(y);
        return;
      case DType::f16:
        static_cast<f16*>(a_.output)[at] = numerics::stored<f16>(y);
        return;
      case DType::bf16:
        static_cast<bf16*>(a_.output)[at] = numerics::stored<bf16>(y);
        return;
      case DType::f64:
        if constexpr (sizeof(C) == 8)
          static_cast<double*>(a_.output)[at] = numerics::stored<double>(y);
        return;
      default:
        static_cast<std::uint8_t*>(a_.output)[at] =
            static_cast<std::uint8_t>(numerics::quantize(y, affine_));
    }
  }

 private:
  static OCTAVO_DEVICE C row_scale(const FinishArgs& a) {
    if constexpr (sizeof(C) == 8) {
      return a.row_scale;
    } else {
      return a.row_scale_f32;
    }
  }
  static OCTAVO_DEVICE C output_scale(const FinishArgs& a) {
    if constexpr (sizeof(C) == 8) {
      return a.output_scale;
    } else {
      return a.output_scale_f32;
    }
  }

  const FinishArgs& a_;
  const typename numerics::AffineOf<C>::type affine_;
};

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
