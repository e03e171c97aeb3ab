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
/// The same of a weight [n, k]; of one that is stored by columns, enough rows that its strips in a
/// file are not too short.
[[nodiscard]] std::int64_t rows_per_slab(const TensorRef& weight);

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

/// Weights as a scheme stores them: one scale per row, or per group of a row.
struct QuantizedSlab {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  std::int64_t group_size = 0;  // 0: per row, s8; else s4
  DType compute = DType::f32;   // the type of the scales
  std::vector<std::byte> q;
  std::vector<std::byte> scales;
};
Status quantize_slab(const Stream& stream, const void* data, DType type, std::int64_t rows,
                     std::int64_t channels, std::int64_t group_size, QuantizedSlab& out);

/// Rows of activations as a layer meets them, in float.
struct Activations {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  std::vector<float> values;
  Scheme scheme = Scheme::w8a8_dynamic;
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
