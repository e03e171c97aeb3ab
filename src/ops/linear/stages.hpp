// A linear in steps, for those inside the library who do something in between: where k is shared
// out among machines, the ranges of rows are put together after `range`, and the sums after `dot`.
// Composed, they give the bits of `run`. The callers have checked everything.
#pragma once

#include <cstdint>

#include "octavo/linear.hpp"

namespace octavo::detail {

/// Of each row its extremes, in the compute type of the activations: numerics::Range.
struct RowRanges {
  void* low = nullptr;  // null if symmetric
  void* high = nullptr;
};

/// Rows that were quantized here.
struct QuantizedRows {
  TensorMut values;                     // [rows, k] of the problem's `quantized`
  void* scales = nullptr;               // one for each row, in the compute type of the activations
  std::int32_t* zero_points = nullptr;  // likewise; null if symmetric
};

/// Exact sums [rows, n] of products, what zero points add to them taken off. Those of 32 bits are
/// modulo 2^32: right if the last one fits.
struct Sums {
  int bits = 32;  // or 64 (which no DType has), always with activations of 16 bits
  void* data = nullptr;
  std::int64_t stride = 0;  // elements between rows
};

class LinearStages {
 public:
  virtual ~LinearStages() = default;

  /// The ranges of the rows of `input`, [rows, k] of floats; `widen`: together with what is there.
  [[nodiscard]] virtual Status range(const Stream& stream, const TensorRef& input,
                                     const RowRanges& ranges, bool widen) const = 0;
  /// The same rows, quantized by the scales and zero points that the ranges give.
  [[nodiscard]] virtual Status rows(const Stream& stream, const TensorRef& input,
                                    const RowRanges& ranges, const QuantizedRows& to) const = 0;
  /// sums[m,n] = (accumulate ? sums[m,n] : 0) + sum over k of (a - zp_a[m]) * (w - zp_w[n]). Of the
  /// operands it takes the input, [rows, k] of `quantized`, the weights and the zero points of
  /// both. The workspace is that of `run`.
  [[nodiscard]] virtual Status dot(const Stream& stream, void* workspace,
                                   const LinearOperands& operands, const Sums& sums,
                                   bool accumulate) const = 0;
  /// All that follows. Of the operands it takes what `run` has besides those, and the scales of the
  /// activations also where they were found here.
  [[nodiscard]] virtual Status epilogue(const Stream& stream, const LinearOperands& operands,
                                        const Sums& sums) const = 0;
};

}  // namespace octavo::detail
