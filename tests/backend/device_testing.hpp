// What the tests of the backend share: operands on the device.
#pragma once

#include <gtest/gtest.h>

#include "octavo/octavo.hpp"
#include "ops/linear/testing.hpp"
#include "tests/backend/device_plans.hpp"

namespace octavo::testing {

/// What outputs hold before they are written; as scales it is NaN.
inline constexpr std::byte device_paint{0xFF};

class Device : public ::testing::Test {
 protected:
  Device() {
    install_device();
    device_memory().clear();
  }
  [[nodiscard]] static void* up(const Bytes& bytes) {
    return device_memory().upload(bytes.data(), bytes.size());
  }
  [[nodiscard]] static Bytes down(const void* from, std::size_t bytes) {
    Bytes to(bytes);
    device_memory().download(from, bytes, to.data());
    return to;
  }
  [[nodiscard]] static Bytes painted(std::size_t bytes) { return Bytes(bytes, device_paint); }
  [[nodiscard]] static Workspace workspace(std::size_t bytes) {
    return {device_memory().allocate(bytes), bytes};
  }
  Stream stream_ = device_stream();
};

/// Moves what a tensor refers to onto the device.
inline void move(TensorRef& t) {
  if (t.data == nullptr) return;
  std::int64_t elements = 1;
  for (int i = 0; i < t.shape.rank(); ++i) elements += (t.shape[i] - 1) * t.strides[i];
  t.data = device_memory().upload(t.data, static_cast<std::size_t>(bytes_for(t.dtype, elements)));
}

/// The arguments of a linear, moved to the device.
template <class Args>
Args moved(Args args, std::size_t output_bytes) {
  move(args.input);
  if (!args.weight.is_packed) move(args.weight.tensor);
  if constexpr (requires { args.weight_scales; }) {
    move(args.weight_scales);
    move(args.weight_zero_points);
  }
  move(args.bias);
  move(args.residual);
  if constexpr (requires { args.activation_scales; }) {
    move(args.activation_scales);
    move(args.activation_zero_points);
  }
  args.output.data = device_memory().upload(args.output.data, output_bytes);
  return args;
}

/// The descriptor of a case, by the plan.
template <class Plan>
typename Plan::Descriptor descriptor_for(const LinearData& d) {
  if constexpr (std::is_same_v<Plan, QuantizedMatmulPlan>) {
    return matmul_descriptor(d.c);
  } else if constexpr (std::is_same_v<Plan, QuantizedLinearPlan>) {
    return dynamic_descriptor(d.c);
  } else if constexpr (std::is_same_v<Plan, FloatLinearPlan>) {
    return float_descriptor(d.c);
  } else {
    return smoothquant_descriptor(d);
  }
}

}  // namespace octavo::testing
