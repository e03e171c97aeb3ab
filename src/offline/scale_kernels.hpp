// Columns of weights times their smoothing scales, by vectors.
#pragma once

#include <cstdint>

#include "octavo/dtype.hpp"
#include "octavo/stream.hpp"
#include "simd/vector_targets.hpp"

namespace octavo::offline {

/// to[i] = from[i] * scales[i], i below n, rounded to the type once; NaN becomes the canonical one
/// in 16 bits. `from` and `to` may be the same, and lie anywhere.
using ScaleRow = void (*)(const void* from, const float* scales, std::int64_t n, void* to);

/// The kernel of a float type, or null where the target has none of its own. On the scalar target
/// it is the specification as a loop.
template <Target target>
ScaleRow find_scale_row(DType type);

#define OCTAVO_DECLARE(target) \
  template <>                  \
  ScaleRow find_scale_row<target>(DType type)
OCTAVO_VECTOR_TARGETS(OCTAVO_DECLARE);
#undef OCTAVO_DECLARE

/// The kernel of a float type on the best target that the stream allows.
ScaleRow choose_scale_row(const Stream& stream, DType type);

}  // namespace octavo::offline
