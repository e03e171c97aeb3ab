// Quantize on a CUDA device as a part of other operations, which find the scales themselves.
#pragma once

#include <memory>

#include "cuda/stream.hpp"
#include "ops/elementwise/implementation.hpp"

namespace octavo::detail {

/// Of a problem of quantize, whose scales are in the compute type.
std::shared_ptr<const ElementwiseImpl> found_quantize(const SlicedProblem& problem);
/// Enqueues it, inside an Enqueue of the caller's. The scales are right, and are not looked at
/// before.
Status enqueue_found(const ElementwiseImpl& quantize, cuda::CudaStream& stream,
                     const ElementwiseArgs& args, bool plain);

}  // namespace octavo::detail
