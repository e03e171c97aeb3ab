// How the slices of a tensor are shared out on a GPU, and their ranges found. For observers, too.
#pragma once

#include "cuda/launch.hpp"
#include "ops/dynamic_range/cuda/range_args.hpp"
#include "ops/runs/iteration.hpp"

namespace octavo::detail {

/// Runs and their slices, for kernels: along the innermost dimension, or one to each element of it.
struct Arranged {
  cuda::RangeArgs args;
  DType element = DType::f32;
  bool columns = false;
  bool vector = false;  // 16 bytes are taken at once
};

/// `width` is that of the integers that are written; 0: nothing is.
Arranged arrange(const Iteration& iteration, DType element, const void* input, void* output,
                 int width);

/// Of a kernel's four forms for each type.
struct KernelsOf {
  cuda::Kernel vector;
  cuda::Kernel single;
};
const cuda::Kernel& kernel_of(const KernelsOf (&kernels)[4], const Arranged& arranged);

/// Bytes of the workspace for the ranges of so many slices.
std::size_t range_bytes(std::int64_t slices, DType element);

/// Enqueues both: the ranges of all slices, args.slices of them, are cleared, and widened by all
/// elements.
Status find_ranges(cuda::CudaStream& stream, const Arranged& arranged);

/// Enqueues what follows from them: scales and zero points. Without ranges, of slices without
/// elements.
Status find_parameters(cuda::CudaStream& stream, const cuda::RangeArgs& args, DType element);

}  // namespace octavo::detail
