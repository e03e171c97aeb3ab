// Splits checked work over threads and hands runs to a kernel.
#pragma once

#include "ops/elementwise/iteration.hpp"
#include "ops/elementwise/kernels.hpp"

namespace octavo::detail {

struct Work {
  Iteration iteration;
  KernelFunction kernel = nullptr;
  KernelCall call;  // pointers and parameters of the whole; offsets are filled in per call
  DType input_type = DType::f32;
  DType grad_type = DType::f32;
  DType output_type = DType::f32;
};

void execute(const Stream& stream, const Work& work);

/// Up to this many elements one thread does all, and stores stay in the caches.
inline constexpr std::int64_t max_small = (std::int64_t{1} << 17) - 1;

/// From here on the output does not fit the caches, and reading it before overwriting it is waste.
inline constexpr std::int64_t stream_bytes = std::int64_t{24} << 20;

}  // namespace octavo::detail
