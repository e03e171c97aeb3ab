// Scales of slices on a CUDA device: their checks, and refusals in the words of the CPU.
#pragma once

#include "cuda/stream.hpp"
#include "ops/runs/scales.hpp"

namespace octavo::cuda {

/// Of an array; the run's kernels come after it.
Check check_of_scales(const detail::ScaleRule& rule, DType type, const void* scales,
                      std::int64_t count);
/// Of the one that was given by value.
Refusal refused_scale(const detail::ScaleRule& rule, double scale);

}  // namespace octavo::cuda
