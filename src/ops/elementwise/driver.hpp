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
  // Instead of a kernel that needs all of a row, where the input has to be gathered: for a call of
  // one row, and two kernels for it to use.
  Target (*gathered_row)(const Work& work, const KernelCall& call) = nullptr;
  KernelFunction range = nullptr;
  KernelFunction quantize = nullptr;
  bool whole_rows = false;           // threads part between rows only
  int max_parts = 0;                 // 0: as many as the stream has threads
  std::int64_t ranges_per_part = 0;  // each part has so many low and high of its own

  /// Bytes of a scale.
  [[nodiscard]] std::int64_t scale_bytes() const {
    return output_type == DType::f64 || input_type == DType::f64 ? 8 : 4;
  }
};

void execute(const Stream& stream, const Work& work);
/// All of it on this thread.
void execute_here(const Stream& stream, const Work& work);
/// One call whose input is gathered piece by piece.
Target run_gathered(const Work& work, const KernelCall& call);

/// Up to this many elements one thread does all, and stores stay in the caches.
inline constexpr std::int64_t max_small = (std::int64_t{1} << 17) - 1;

/// From here on what is read and written does not fit the caches, and reading the output before
/// overwriting it is waste.
inline constexpr std::int64_t stream_bytes = std::int64_t{32} << 20;
/// The same, for tests: 0 makes every call write past the caches.
std::int64_t set_stream_bytes(std::int64_t bytes);

}  // namespace octavo::detail
