// Some rows of a weight, brought to where plans can read them, smoothed, quantized and multiplied.
// Everything that works on a checkpoint goes slab by slab, each in one thread, so memory is bounded
// and no result depends on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "octavo/result.hpp"
#include "octavo/smooth.hpp"
#include "octavo/stream.hpp"
#include "octavo/tensor.hpp"

namespace octavo::offline {

/// Rows of a slab: about a mebibyte of f32.
[[nodiscard]] std::int64_t rows_per_slab(std::int64_t channels);
/// The same of a weight [n, k] that is to have this form; of one that is stored by columns, enough
/// rows that its strips in a file are not too short. Zero points are stored eight rows to a word:
/// with them, slabs begin at multiples of eight.
[[nodiscard]] std::int64_t rows_per_slab(const TensorRef& weight, const LayerForm& form = {});

/// Whether plans can read it where it is; data in a file may lie anywhere.
[[nodiscard]] bool is_aligned(const TensorRef& tensor);

/// Rows [first, first + count) of a weight [n, k] of any strides and alignment, contiguous in `to`.
void gather_rows(const TensorRef& weight, std::int64_t first, std::int64_t count,
                 std::vector<std::byte>& to);

/// [rows, columns] of elements of so many bytes, of any strides and alignment, to contiguous
/// [columns, rows].
void transpose(const std::byte* from, Shape shape, Shape strides, std::int64_t bytes,
               std::byte* to);

/// Contiguous [rows, k] with each column multiplied by its scale, in the compute type, and rounded
/// once. `to` may be `from`.
void scale_columns(const Stream& stream, DType type, const void* from, std::int64_t rows,
                   std::span<const float> scales, void* to);

/// What a weight is held as.
[[nodiscard]] inline DType code_of(Scheme scheme) {
  return weight_bits(scheme) == 4 ? DType::s4 : DType::s8;
}
/// Whether a layer is stored as P.weight_packed, in words of 32 bits.
[[nodiscard]] bool is_packed(Scheme scheme);
/// The type that the scales of a layer are stored in.
[[nodiscard]] DType scale_type(Scheme scheme, DType weight);

/// Weights as a form has them: a scale, and perhaps a zero point, per row or per group of a row.
struct QuantizedSlab {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  LayerForm form = {};
  DType compute = DType::f32;  // the type of the scales here
  std::vector<std::byte> q;    // s8, or s4 with each row in whole bytes
  std::vector<std::byte> scales;
  std::vector<std::int32_t> zero_points;  // as many; empty: all 0

  [[nodiscard]] DType code() const { return code_of(form.scheme); }
  [[nodiscard]] std::int64_t group() const {
    return form.group_size > 0 ? form.group_size : channels;
  }
};
Status quantize_slab(const Stream& stream, const void* data, DType type, std::int64_t rows,
                     std::int64_t channels, const LayerForm& form, QuantizedSlab& out);
/// The scales of a slab in the type that they are stored in, which holds them exactly.
void store_scales(const QuantizedSlab& slab, DType type, std::vector<std::byte>& to);

/// Rows of activations as a layer meets them, in float.
struct Activations {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  std::vector<float> values;
  double scale = 1.0;  // of w8a8_static
};

/// y[r, n] = sum over k of x[r, k] * w[n, k] in f64, k by k: what a float layer gives.
void multiply(const Activations& x, const void* weights, DType type, std::int64_t n,
              std::vector<double>& y);
/// What the quantized layer gives, in f32.
Status multiply(const Stream& stream, const Activations& x, const QuantizedSlab& weights,
                std::vector<float>& y);

/// Calls body(stream of one thread, i) for all i below `count`, over the threads of `stream`. Of
/// several errors the one of the lowest i is returned; none is started after an error is known.
Status for_each_slab(const Stream& stream, std::size_t count,
                     const std::function<Status(const Stream&, std::size_t)>& body);

}  // namespace octavo::offline
