// PyTorch, through the C++ functions that its Python operations call; linear layers are in
// torch_linear.cpp. It allocates its output in
// every call. Its fake-quantize keeps a mask, and its backward pass reads that instead of the
// input.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/CPUAllocator.h>
#include <torch/headeronly/version.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "peers/plugin.hpp"
#include "peers/torch_linear.hpp"
#include "peers/torch_memory.hpp"

namespace octavo::bench {
namespace {

std::optional<at::ScalarType> real_type(DType t) {
  switch (t) {
    case DType::f32:
      return at::kFloat;
    case DType::f64:
      return at::kDouble;
    case DType::f16:
      return at::kHalf;
    case DType::bf16:
      return at::kBFloat16;
    default:
      return std::nullopt;
  }
}

std::optional<at::ScalarType> quantized_type(DType t) {
  switch (t) {
    case DType::s8:
      return at::kQInt8;
    case DType::u8:
      return at::kQUInt8;
    default:
      return std::nullopt;
  }
}

template <class T>
at::Tensor copy_of(const T* data, std::int64_t count, at::ScalarType type) {
  const auto from = c10::CppTypeToScalarType<T>::value;
  return at::from_blob(const_cast<T*>(data), {count}, at::TensorOptions(from)).to(type).clone();
}

// It warns that its quantized types will go.
struct NoWarnings : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Lets go of the previous output first, so that its memory is used again.
template <class F>
Task task_of(F&& compute) {
  return [compute = std::forward<F>(compute), output = at::Tensor()]() mutable -> const void* {
    const c10::InferenceMode guard;
    output = at::Tensor();
    output = compute();
    return output.const_data_ptr();
  };
}

Task quantize(const Elementwise& e, const at::Tensor& x, at::ScalarType integer) {
  if (e.axis < 0) {
    return task_of([=, scale = e.scales[0], zero = e.zero_points[0]] {
      return at::quantize_per_tensor(x, scale, zero, integer);
    });
  }
  return task_of([=, axis = e.axis, scales = copy_of(e.scales, e.scale_count, at::kDouble),
                  zeros = copy_of(e.zero_points, e.scale_count, at::kLong)] {
    return at::quantize_per_channel(x, scales, zeros, axis, integer);
  });
}

Task dequantize(const Elementwise& e, at::IntArrayRef shape, at::ScalarType integer) {
  void* data = const_cast<void*>(e.input);
  const auto keep = [](void*) {};
  const at::Tensor q =
      e.axis < 0
          ? at::from_blob_quantized_per_tensor_affine(
                data, shape, keep, static_cast<float>(e.scales[0]), e.zero_points[0], integer)
          : at::from_blob_quantized_per_channel_affine(
                data, shape, keep, copy_of(e.scales, e.scale_count, at::kDouble),
                copy_of(e.zero_points, e.scale_count, at::kLong), e.axis, integer);
  return task_of([q] { return at::dequantize(q); });
}

Task fake_quantize(const Elementwise& e, const at::Tensor& x) {
  if (e.axis < 0) {
    return task_of([=, scale = e.scales[0], zero = e.zero_points[0], lo = e.q_min, hi = e.q_max] {
      return at::fake_quantize_per_tensor_affine(x, scale, zero, lo, hi);
    });
  }
  return task_of([=, axis = e.axis, lo = e.q_min, hi = e.q_max,
                  scales = copy_of(e.scales, e.scale_count, at::kFloat),
                  zeros = copy_of(e.zero_points, e.scale_count, at::kInt)] {
    return at::fake_quantize_per_channel_affine(x, scales, zeros, axis, lo, hi);
  });
}

Task fake_quantize_backward(const Elementwise& e, const at::Tensor& x, const at::Tensor& grad) {
  if (e.axis < 0) {
    const at::Tensor mask = std::get<1>(at::fake_quantize_per_tensor_affine_cachemask(
        x, e.scales[0], e.zero_points[0], e.q_min, e.q_max));
    return task_of(
        [=] { return at::fake_quantize_per_tensor_affine_cachemask_backward(grad, mask); });
  }
  const at::Tensor mask = std::get<1>(at::fake_quantize_per_channel_affine_cachemask(
      x, copy_of(e.scales, e.scale_count, at::kFloat),
      copy_of(e.zero_points, e.scale_count, at::kInt), e.axis, e.q_min, e.q_max));
  return task_of(
      [=] { return at::fake_quantize_per_channel_affine_cachemask_backward(grad, mask); });
}

// Its operations, one after another, as people write it.
Task dynamic_range_quantize(const Elementwise& e, const at::Tensor& x) {
  return task_of([=, lo = e.q_min, hi = e.q_max] {
    const at::Tensor scale = at::div(at::amax(at::abs(x), -1, true), hi);
    return at::clamp(at::round(at::div(x, scale)), lo, hi).to(at::kChar);
  });
}

Task make(const Elementwise& e) {
  const c10::InferenceMode guard;
  const auto real = real_type(real_of(e));
  if (!real) return {};
  at::set_num_threads(e.threads);
  const std::vector<std::int64_t> shape =
      e.axis < 0 ? std::vector{e.rows * e.cols} : std::vector{e.rows, e.cols};
  const auto tensor = [&](const void* data) {
    return at::from_blob(const_cast<void*>(data), shape, at::TensorOptions(*real));
  };
  const auto integer = quantized_type(integer_of(e));
  switch (op_of(e)) {
    case Op::quantize:
      return integer ? quantize(e, tensor(e.input), *integer) : Task();
    case Op::dequantize:  // to f32 only
      return integer && *real == at::kFloat ? dequantize(e, shape, *integer) : Task();
    case Op::fake_quantize:
      return fake_quantize(e, tensor(e.input));
    case Op::fake_quantize_backward:
      return fake_quantize_backward(e, tensor(e.input), tensor(e.grad));
    case Op::dynamic_range_quantize:
      return dynamic_range_quantize(e, tensor(e.input));
    default:
      return {};
  }
}

}  // namespace
}  // namespace octavo::bench

OCTAVO_PEER_EXPORT const octavo_peer* octavo_peer_entry() {
  c10::SetCPUAllocator(&octavo::bench::KeptMemory::instance(), 1);
  static octavo::bench::NoWarnings no_warnings;
  c10::WarningUtils::set_warning_handler(&no_warnings);
  static const std::string version = "PyTorch " TORCH_VERSION ", " + at::get_cpu_capability();
  static const octavo_peer peer =
      octavo::bench::make_peer<octavo::bench::make, octavo::bench::torch_linear,
                               octavo::bench::torch_groups, octavo::bench::torch_floats>(
          "torch", version.c_str());
  return &peer;
}
