// The last step of a linear layer whose sums, or sums of floats, lie in memory.
#include "cuda/device/device.hpp"
#include "ops/linear/cuda/finish.hpp"

namespace octavo::cuda {
namespace {

// fn(finish, row and its terms, column and its terms)
template <class C, class F>
OCTAVO_DEVICE void for_each_element(const FinishArgs& a, F&& fn) {
  if (is_refused(a.slot)) return;
  const Finish<C> finish(a);
  const auto columns = static_cast<std::int64_t>(blocks_x()) * finish_threads;
  for (std::int64_t column = static_cast<std::int64_t>(block_x()) * finish_threads + thread_x();
       column < a.n; column += columns) {
    const ColumnTerms<C> c = finish.column(column);
    for (std::int64_t row = block_y(); row < a.rows; row += blocks_y())
      fn(finish, row, finish.row(row), column, c);
  }
}

template <class C>
OCTAVO_DEVICE void finish_sums(const FinishArgs& a) {
  for_each_element<C>(a, [&](const Finish<C>& finish, std::int64_t row, const RowTerms<C>& r,
                             std::int64_t column, const ColumnTerms<C>& c) {
    const auto* sums =
        static_cast<const std::int32_t*>(a.from) + product_row(row, a.halves) * a.stride + column;
    std::int64_t sum = 0;
    std::int64_t low = 0;
    for (int i = 0; i < a.pieces; ++i, sums += a.piece_stride) {
      sum += sums[0];
      if (a.halves == 2) low += sums[8 * a.stride];
    }
    finish.put_sum(r, c, row, column, sum, low);
  });
}

template <class C>
OCTAVO_DEVICE void finish_values(const FinishArgs& a) {
  for_each_element<C>(a, [&](const Finish<C>& finish, std::int64_t row, const RowTerms<C>& r,
                             std::int64_t column, const ColumnTerms<C>& c) {
    const C* values = static_cast<const C*>(a.from) + row * a.stride + column;
    finish.put(r, c, row, column, tree_of(values, a.piece_stride, a.pieces));
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
