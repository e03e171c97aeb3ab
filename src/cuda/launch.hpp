// Launching a kernel: one parameter, a struct that host and device know.
#pragma once

#include <type_traits>

#include "cuda/stream.hpp"

namespace octavo::cuda {

struct Size {
  unsigned x = 1, y = 1, z = 1;
};

inline constexpr unsigned warp_threads = 32;

Status launch_bytes(CudaStream& stream, const Kernel& kernel, Size blocks, Size threads,
                    unsigned shared_bytes, const void* args);

/// Enqueues a kernel; `shared_bytes` are those it declares as of no size. Blocks of none are none.
template <class Args>
Status launch(CudaStream& stream, const Kernel& kernel, Size blocks, Size threads,
              unsigned shared_bytes, const Args& args) {
  static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= 4096);
  return launch_bytes(stream, kernel, blocks, threads, shared_bytes, &args);
}

}  // namespace octavo::cuda
