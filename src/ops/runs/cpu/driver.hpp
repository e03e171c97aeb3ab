// Splits checked work over threads and hands runs to a kernel.
#pragma once

#include <atomic>

#include "core/stream.hpp"
#include "ops/runs/cpu/call.hpp"
#include "ops/runs/iteration.hpp"

namespace octavo::detail {

struct Work {
  const Iteration* iteration = nullptr;
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

/// The caller has set the floating-point environment.
void execute(const Stream& stream, const Work& work);
/// All of it on this thread.
void execute_here(const Stream& stream, const Work& work);
/// One call whose input is gathered piece by piece.
Target run_gathered(const Work& work, const KernelCall& call);

/// All runs of an iteration of up to two dimensions, as one call; pointers, parameters, range and
/// profile are left to be set.
KernelCall whole_call(const Iteration& iteration);
/// Whether rows of an iteration without gaps are better joined to longer ones.
bool joins_rows(const Iteration& iteration);
/// Tells a stream's trace which target ran.
inline void note(const Stream& stream, Target ran) {
  if (std::atomic<std::uint32_t>* trace = stream.impl().options.trace)
    trace->fetch_or(1U << static_cast<unsigned>(ran), std::memory_order_relaxed);
}

/// Up to this many elements one thread does all, and stores stay in the caches.
inline constexpr std::int64_t max_small = (std::int64_t{1} << 17) - 1;

/// From here on what is read and written does not fit the caches, and reading the output before
/// overwriting it is waste.
inline constexpr std::int64_t stream_bytes = std::int64_t{32} << 20;
inline std::atomic<std::int64_t> stream_from{stream_bytes};
/// Whether a call that reads and writes so many bytes stores past the caches.
inline bool go_past_caches(const KernelCall& call, std::int64_t bytes) {
  const bool in_place = call.output == call.input || call.output == call.grad;
  return !in_place && bytes >= stream_from.load(std::memory_order_relaxed);
}
/// The same, for tests: 0 makes every call write past the caches.
std::int64_t set_stream_bytes(std::int64_t bytes);

}  // namespace octavo::detail
