// The last step of a linear layer whose sums, or sums of floats, lie in memory.
#include "cuda/device/device.hpp"
#include "ops/linear/cuda/finish.hpp"

namespace octavo::cuda {
namespace {

template <class F>
OCTAVO_DEVICE void for_each_element(const FinishArgs& a, F&& fn) {
  if (is_refused(a.slot)) return;
  const auto columns = static_cast<std::int64_t>(blocks_x()) * finish_threads;
  for (std::int64_t row = block_y(); row < a.rows; row += blocks_y())
    for (std::int64_t column = static_cast<std::int64_t>(block_x()) * finish_threads + thread_x();
         column < a.n; column += columns)
      fn(row, column);
}

template <class C>
OCTAVO_DEVICE void finish_sums(const FinishArgs& a) {
  for_each_element(a, [&](std::int64_t row, std::int64_t column) {
    const auto* sums =
        static_cast<const std::int32_t*>(a.from) + product_row(row, a.halves) * a.stride + column;
    std::int64_t sum = 0;
    std::int64_t low = 0;
    for (int i = 0; i < a.pieces; ++i, sums += a.piece_stride) {
      sum += sums[0];
      if (a.halves == 2) low += sums[8 * a.stride];
    }
    finish_sum<C>(a, row, column, sum, low);
  });
}

template <class C>
OCTAVO_DEVICE void finish_values(const FinishArgs& a) {
  for_each_element(a, [&](std::int64_t row, std::int64_t column) {
    const C* values = static_cast<const C*>(a.from) + row * a.stride + column;
    finish_value<C>(a, row, column, tree_of(values, a.piece_stride, a.pieces));
  });
}

}  // namespace

extern "C" {
__global__ void linear_finish_sums_f32(const FinishArgs args) { finish_sums<float>(args); }
__global__ void linear_finish_sums_f64(const FinishArgs args) { finish_sums<double>(args); }
__global__ void linear_finish_values_f32(const FinishArgs args) { finish_values<float>(args); }
__global__ void linear_finish_values_f64(const FinishArgs args) { finish_values<double>(args); }
}

}  // namespace octavo::cuda
