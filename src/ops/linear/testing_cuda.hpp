// Linear plans on a CUDA device, in tests: what a call refers to is copied there, and its output
// back.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "cuda/stream.hpp"
#include "octavo/octavo.hpp"

namespace octavo::testing {

/// One for all tests of a program; or why there is none. (It is never given back: at exit the driver may
/// be gone before it.)
[[nodiscard]] inline const Result<Stream>& cuda_stream() {
  static const auto& stream = *new Result<Stream>(Stream::cuda());
  return stream;
}

/// Copies on a stream's device, for as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(const Stream& stream) : stream_(octavo::cuda::cuda_of(stream)) {}
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    for (void* memory : held_) stream_.context().free(memory);
  }

  /// The same bytes there.
  void* up(const void* from, std::size_t bytes) {
    const Result<void*> memory = stream_.context().allocate(bytes);
    EXPECT_TRUE(memory) << memory.error().message();
    if (!memory) return nullptr;
    held_.push_back(*memory);
    const octavo::cuda::Enqueue alone(stream_);
    const auto& driver = stream_.driver();
    if (bytes > 0) {
      EXPECT_EQ(driver.copy_to_device(address(*memory), from, bytes, stream_.handle()), 0);
    }
    EXPECT_EQ(driver.stream_synchronize(stream_.handle()), 0);
    return *memory;
  }
  /// And back, when all that was enqueued is done.
  void down(void* to, const void* from, std::size_t bytes) {
    const octavo::cuda::Enqueue alone(stream_);
    const auto& driver = stream_.driver();
    if (bytes > 0) {
      EXPECT_EQ(driver.copy_to_host(to, address(from), bytes, stream_.handle()), 0);
    }
    EXPECT_EQ(driver.stream_synchronize(stream_.handle()), 0);
  }
  /// Moves what a tensor refers to.
  void move(TensorRef& t) {
    if (t.data == nullptr) return;
    std::int64_t elements = 1;
    for (int i = 0; i < t.shape.rank(); ++i) {
      if (t.shape[i] == 0) return;
      elements += (t.shape[i] - 1) * t.strides[i];
    }
    t.data = up(t.data, static_cast<std::size_t>(bytes_for(t.dtype, elements)));
  }
  /// The arguments of a linear, moved; the output has so many bytes.
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
    args.output.data = up(args.output.data, output_bytes);
    return args;
  }

 private:
  static octavo::cuda::DevicePointer address(const void* memory) {
    return reinterpret_cast<octavo::cuda::DevicePointer>(memory);
  }
  octavo::cuda::CudaStream& stream_;
  std::vector<void*> held_;
};

}  // namespace octavo::testing
