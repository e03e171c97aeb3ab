// Columns of weights times their smoothing scales, by vectors.
#pragma once

#include <cstdint>

#include "octavo/dtype.hpp"
#include "octavo/stream.hpp"

namespace octavo::offline {

/// to[i] = from[i] * scales[i], i below n, rounded to the type once; NaN becomes the canonical one
/// in 16 bits. `from` and `to` may be the same, and lie anywhere.
using ScaleRow = void (*)(const void* from, const float* scales, std::int64_t n, void* to);

struct ScaleKernels {
  ScaleRow f32 = nullptr, f64 = nullptr, f16 = nullptr, bf16 = nullptr;
};
template <Target target>
ScaleKernels scale_kernels();
/// The specification as a loop.
template <>
ScaleKernels scale_kernels<Target::scalar>();

/// The kernel of a float type on the best target that the stream allows.
ScaleRow choose_scale_row(const Stream& stream, DType type);

}  // namespace octavo::offline
