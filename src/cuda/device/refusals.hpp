// Writing down what is refused; ../refusal.hpp has how that works. For kernels that check values.
#pragma once

#include "cuda/device/device.hpp"
#include "cuda/refusal.hpp"

namespace octavo::cuda {

/// Makes `latest` good again, and what was there `first`. By one thread, before a run is checked.
OCTAVO_DEVICE void fold(RefusalState& state) {
  if (state.latest.key != nothing_wrong && state.first.key == nothing_wrong)
    state.first = state.latest;
  state.latest.key = nothing_wrong;
  state.blocks_done = 0;
}

/// The least key of a block of `threads`, in thread 0; in all it is another's or their own.
template <unsigned threads>
static OCTAVO_DEVICE std::uint64_t least_of_block(std::uint64_t key) {
  static_assert(threads % warp_size == 0);
  __shared__ std::uint64_t of_warp[threads / warp_size];
  for (unsigned mask = warp_size / 2; mask > 0; mask /= 2)
    key = std::min(key, shuffle_xor(key, mask));
  if (thread_x() % warp_size == 0) of_warp[thread_x() / warp_size] = key;
  barrier();
  if (thread_x() == 0)
    for (unsigned w = 0; w < threads / warp_size; ++w) key = std::min(key, of_warp[w]);
  return key;
}

/// By thread 0 of each block: the least key of all blocks, in the last block that asks;
/// nothing_wrong in the others. Of several blocks, `fold` was launched before them.
OCTAVO_DEVICE std::uint64_t least_of_grid(RefusalState& state, std::uint64_t key) {
  if (blocks_x() == 1) return key;
  atomic_min(&state.latest.key, key);
  device_fence();
  if (atomic_add(reinterpret_cast<unsigned*>(&state.blocks_done), 1) + 1 != blocks_x())
    return nothing_wrong;
  return atomic_min(&state.latest.key, nothing_wrong);
}

/// What every kernel of a checked run asks first (of a run without checks: null).
OCTAVO_DEVICE bool is_refused(const Refusal* latest) {
  return latest != nullptr && latest->key != nothing_wrong;
}

}  // namespace octavo::cuda
