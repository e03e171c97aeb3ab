#include "offline/slab.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>

#include "core/fp_environment.hpp"
#include "core/parallel.hpp"
#include "core/parts.hpp"
#include "numerics/stored_scale.hpp"
#include "octavo/dequantize.hpp"
#include "octavo/dynamic_range_quantize.hpp"
#include "octavo/quantize.hpp"
#include "octavo/quantized_linear.hpp"
#include "octavo/smoothquant_linear.hpp"
#include "offline/convert.hpp"
#include "offline/files.hpp"
#include "offline/scale_kernels.hpp"

namespace octavo::offline {
namespace {

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

// In tiles, so that what is read and what is written stay in the caches.
template <class Bits>
void transpose_elements(const std::byte* from, Shape shape, Shape strides, std::byte* to) {
  constexpr std::int64_t tile = 32, bytes = sizeof(Bits);
  for (std::int64_t r = 0; r < shape[0]; r += tile)
    for (std::int64_t c = 0; c < shape[1]; c += tile)
      for (std::int64_t i = r; i < std::min(r + tile, shape[0]); ++i)
        for (std::int64_t j = c; j < std::min(c + tile, shape[1]); ++j)
          std::memcpy(to + (j * shape[0] + i) * bytes,
                      from + (i * strides[0] + j * strides[1]) * bytes, sizeof(Bits));
}

template <class T>
void multiply_rows(const Activations& x, const T* w, std::int64_t n, double* y) {
  // Activations by columns, so that the inner loop runs over rows and keeps the order of sums.
  const std::size_t rows = size(x.rows), channels = size(x.channels);
  std::vector<double> columns(rows * channels);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t k = 0; k < channels; ++k) columns[k * rows + r] = x.values[r * channels + k];
  std::vector<double> sums(rows);
  for (std::size_t i = 0; i < size(n); ++i) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::size_t k = 0; k < channels; ++k) {
      const double weight = widen(w[i * channels + k]);
      for (std::size_t r = 0; r < rows; ++r) sums[r] += columns[k * rows + r] * weight;
    }
    for (std::size_t r = 0; r < rows; ++r) y[r * size(n) + i] = sums[r];
  }
}

Status multiply_dynamic(const Stream& stream, const Activations& x, const QuantizedSlab& w,
                        TensorMut y) {
  const auto plan =
      QuantizedLinearPlan::select(stream, {.m = x.rows, .n = w.rows, .k = x.channels});
  if (!plan) return plan.error();
  const WorkspaceBuffer workspace(plan->workspace_size());
  return plan->run(stream, workspace,
                   {.input = TensorRef(x.values, {x.rows, x.channels}),
                    .weight = TensorRef(w.q.data(), DType::s8, {w.rows, w.channels}),
                    .weight_scales = TensorRef(w.scales.data(), w.compute, {w.rows}),
                    .output = y});
}

Status multiply_static(const Stream& stream, const Activations& x, const QuantizedSlab& w,
                       TensorMut y) {
  std::vector<std::int8_t> q(x.values.size());
  const auto quantize = QuantizePerTensorPlan::select(stream, {.numel = x.rows * x.channels});
  if (!quantize) return quantize.error();
  if (Status s = quantize->run(stream, {}, {.input = x.values, .scale = x.scale, .output = q}); !s)
    return s;
  const auto plan = SmoothQuantLinearPlan::select(
      stream, {.m = x.rows, .n = w.rows, .k = x.channels, .act_scale = x.scale});
  if (!plan) return plan.error();
  const WorkspaceBuffer workspace(plan->workspace_size());
  return plan->run(stream, workspace,
                   {.input = TensorRef(q, {x.rows, x.channels}),
                    .weight = TensorRef(w.q.data(), DType::s8, {w.rows, w.channels}),
                    .weight_scales = TensorRef(w.scales.data(), w.compute, {w.rows}),
                    .output = y});
}

// int8 activations, int4 weights: one scale per row of activations, one per group of weights.
Status multiply_int4(const Stream& stream, const Activations& x, const QuantizedSlab& w,
                     TensorMut y) {
  const auto plan = QuantizedLinearPlan::select(stream, {.m = x.rows,
                                                         .n = w.rows,
                                                         .k = x.channels,
                                                         .weight = DType::s4,
                                                         .weight_zero_points = w.form.asymmetric,
                                                         .group_size = w.form.group_size});
  if (!plan) return plan.error();
  const WorkspaceBuffer workspace(plan->workspace_size());
  const Shape scales{w.rows, w.channels / w.group()};
  return plan->run(
      stream, workspace,
      {.input = TensorRef(x.values, {x.rows, x.channels}),
       .weight = TensorRef(w.q.data(), DType::s4, {w.rows, w.channels}),
       .weight_scales = TensorRef(w.scales.data(), w.compute, scales),
       .weight_zero_points = w.form.asymmetric ? TensorRef(w.zero_points, scales) : TensorRef(),
       .output = y});
}

// Float activations: the weights are restored, and multiplied as floats.
Status multiply_float(const Stream& stream, const Activations& x, const QuantizedSlab& w,
                      std::vector<float>& y) {
  std::vector<float> weights(size(w.rows * w.channels));
  const auto plan = DequantizePerGroupPlan::select(stream, {.rows = w.rows,
                                                            .cols = w.channels,
                                                            .group_size = w.group(),
                                                            .input = w.code(),
                                                            .output = DType::f32,
                                                            .scale_type = w.compute});
  if (!plan) return plan.error();
  const WorkspaceBuffer workspace(plan->workspace_size());
  const Shape scales{w.rows, w.channels / w.group()};
  if (Status s = plan->run(
          stream, workspace,
          {.input = TensorRef(w.q.data(), w.code(), {w.rows, w.channels}),
           .scales = TensorRef(w.scales.data(), w.compute, scales),
           .zero_points = w.zero_points.empty() ? TensorRef() : TensorRef(w.zero_points, scales),
           .output = TensorMut(weights, {w.rows, w.channels})});
      !s)
    return s;
  std::vector<double> wide;
  multiply(x, weights.data(), DType::f32, w.rows, wide);
  std::transform(wide.begin(), wide.end(), y.begin(),
                 [](double v) { return static_cast<float>(v); });
  return {};
}

// Scales to the 16 bits that they are stored in, here as f32.
void round_scales(DType type, std::vector<std::byte>& scales) {
  const detail::FpEnvironment environment;
  for (std::size_t at = 0; at < scales.size(); at += sizeof(float)) {
    float scale = 0;
    std::memcpy(&scale, &scales[at], sizeof(scale));
    scale = type == DType::f16 ? widen(numerics::stored_scale_f16(scale))
                               : widen(numerics::stored_scale_bf16(scale));
    std::memcpy(&scales[at], &scale, sizeof(scale));
  }
}

}  // namespace

std::int64_t rows_per_slab(std::int64_t channels) {
  return std::max<std::int64_t>(1, (std::int64_t{1} << 18) / std::max<std::int64_t>(1, channels));
}

std::int64_t rows_per_slab(const TensorRef& weight, const LayerForm& form) {
  const std::int64_t least = weight.strides[1] == 1 ? 1 : 512;
  const std::int64_t rows = std::max(least, rows_per_slab(weight.shape[1]));
  return form.asymmetric ? (rows + 7) / 8 * 8 : rows;
}

bool is_packed(Scheme scheme) {
  return scheme != Scheme::w8a8_dynamic && scheme != Scheme::w8a8_static;
}

DType scale_type(Scheme scheme, DType weight) {
  return is_packed(scheme) ? weight : compute_type(weight);
}

bool is_aligned(const TensorRef& tensor) {
  const auto bytes = static_cast<std::uintptr_t>(bits(tensor.dtype) / 8);
  return reinterpret_cast<std::uintptr_t>(tensor.data) % bytes == 0;
}

void gather_rows(const TensorRef& weight, std::int64_t first, std::int64_t count,
                 std::vector<std::byte>& to) {
  const std::int64_t bytes = bits(weight.dtype) / 8;
  const std::int64_t k = weight.shape[1];
  to.resize(size(count * k * bytes));
  if (to.empty()) return;
  if (weight.strides[1] == 1) {
    for (std::int64_t row = 0; row < count; ++row)
      std::memcpy(
          to.data() + row * k * bytes,
          static_cast<const std::byte*>(weight.data) + (first + row) * weight.strides[0] * bytes,
          size(k * bytes));
    return;
  }
  transpose(static_cast<const std::byte*>(weight.data) + first * weight.strides[0] * bytes,
            {k, count}, {weight.strides[1], weight.strides[0]}, bytes, to.data());
}

void transpose(const std::byte* from, Shape shape, Shape strides, std::int64_t bytes,
               std::byte* to) {
  if (bytes == 8) return transpose_elements<std::uint64_t>(from, shape, strides, to);
  if (bytes == 4) return transpose_elements<std::uint32_t>(from, shape, strides, to);
  if (bytes == 2) return transpose_elements<std::uint16_t>(from, shape, strides, to);
  transpose_elements<std::uint8_t>(from, shape, strides, to);
}

void scale_columns(const Stream& stream, DType type, const void* from, std::int64_t rows,
                   std::span<const float> scales, void* to) {
  const detail::FpEnvironment environment;
  const ScaleRow scale_row = choose_scale_row(stream, type);
  const auto k = static_cast<std::int64_t>(scales.size());
  const std::int64_t row_bytes = k * (bits(type) / 8);
  for (std::int64_t row = 0; row < rows; ++row)
    scale_row(static_cast<const std::byte*>(from) + row * row_bytes, scales.data(), k,
              static_cast<std::byte*>(to) + row * row_bytes);
}

Status quantize_slab(const Stream& stream, const void* data, DType type, std::int64_t rows,
                     std::int64_t channels, const LayerForm& form, QuantizedSlab& out) {
  out.rows = rows;
  out.channels = channels;
  out.form = form;
  out.compute = compute_type(type);
  const DType to = out.code();
  const Shape shape{rows, channels};
  const auto plan = DynamicRangeQuantizePlan::select(
      stream, {.shape = shape,
               .mode = form.asymmetric ? RangeMode::asymmetric : RangeMode::symmetric,
               .scope = form.group_size > 0 ? Layout::per_group : Layout::per_token,
               .group_size = form.group_size,
               .input = type,
               .output = to});
  if (!plan) return plan.error();
  const Shape slices{plan->slices()};
  out.q.resize(size(rows * bytes_for(to, channels)));
  out.scales.resize(size(plan->slices() * (bits(out.compute) / 8)));
  out.zero_points.resize(form.asymmetric ? size(plan->slices()) : 0);
  const WorkspaceBuffer workspace(plan->workspace_size());
  if (Status s = plan->run(
          stream, workspace,
          {.input = TensorRef(data, type, shape),
           .output = TensorMut(out.q.data(), to, shape),
           .scales = TensorMut(out.scales.data(), out.compute, slices),
           .zero_points = form.asymmetric ? TensorMut(out.zero_points, slices) : TensorMut()});
      !s)
    return s;
  const DType stored = scale_type(form.scheme, type);
  if (stored == out.compute) return {};
  // Once more with the scales that are stored; zero points stay those of the range.
  round_scales(stored, out.scales);
  const auto again = QuantizePerGroupPlan::select(
      stream,
      {.rows = rows, .cols = channels, .group_size = out.group(), .input = type, .output = to});
  if (!again) return again.error();
  return again->run(
      stream, {},
      {.input = TensorRef(data, type, shape),
       .scales = TensorRef(out.scales.data(), out.compute, slices),
       .zero_points = form.asymmetric ? TensorRef(out.zero_points, slices) : TensorRef(),
       .output = TensorMut(out.q.data(), to, shape)});
}

void store_scales(const QuantizedSlab& slab, DType type, std::vector<std::byte>& to) {
  if (type == slab.compute) {
    to = slab.scales;
    return;
  }
  with_float_type(type, [&]<class T>() {
    const std::size_t count = slab.scales.size() / sizeof(float);
    to.resize(count * sizeof(T));
    for (std::size_t i = 0; i < count; ++i) {
      float scale = 0;
      std::memcpy(&scale, &slab.scales[i * sizeof(float)], sizeof(scale));
      const T narrowed = narrow<T>(Compute<T>{scale});
      std::memcpy(&to[i * sizeof(T)], &narrowed, sizeof(T));
    }
  });
}

void multiply(const Activations& x, const void* weights, DType type, std::int64_t n,
              std::vector<double>& y) {
  const detail::FpEnvironment environment;
  y.assign(size(x.rows * n), 0.0);
  with_float_type(
      type, [&]<class T>() { multiply_rows(x, static_cast<const T*>(weights), n, y.data()); });
}

Status multiply(const Stream& stream, const Activations& x, const QuantizedSlab& weights,
                std::vector<float>& y) {
  y.assign(size(x.rows * weights.rows), 0.0F);
  const TensorMut out(y, {x.rows, weights.rows});
  switch (weights.form.scheme) {
    case Scheme::w8a8_dynamic:
      return multiply_dynamic(stream, x, weights, out);
    case Scheme::w8a8_static:
      return multiply_static(stream, x, weights, out);
    case Scheme::w4a8_group:
      return multiply_int4(stream, x, weights, out);
    case Scheme::w4a16_group:
    case Scheme::w8a16:
      break;
  }
  return multiply_float(stream, x, weights, y);
}

Status for_each_slab(const Stream& stream, std::size_t count,
                     const std::function<Status(const Stream&, std::size_t)>& body) {
  const Stream one = Stream::cpu({.threads = 1, .cap = stream.options().cap});
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::size_t failed_at = count;
  Status failure;
  const int parts = detail::parts_of(static_cast<std::int64_t>(count), 1, stream.threads());
  detail::parallel(stream, parts, [&](int) {
    for (std::size_t i = next++; i < count && !failed; i = next++) {
      Status status = guarded("memory", [&] { return body(one, i); });
      if (status) continue;
      const std::lock_guard lock(mutex);
      failed = true;
      if (i < failed_at) {
        failed_at = i;
        failure = std::move(status);
      }
    }
  });
  return failure;
}

}  // namespace octavo::offline
