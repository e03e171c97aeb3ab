// Rows of activations, brought into the form that is multiplied: a block of threads takes a row.
#include "cuda/device/device.hpp"
#include "ops/linear/cuda/finish.hpp"
#include "ops/linear/cuda/instructions.hpp"

namespace octavo::cuda {
namespace {

constexpr unsigned warps = rows_threads / warp_size;

/// `fn` of two values, over all threads of the block: in every thread.
template <class T, class F>
OCTAVO_DEVICE T over_block(T value, T* shared, F&& fn) {
  for (unsigned mask = warp_size / 2; mask > 0; mask /= 2)
    value = fn(value, shuffle_xor(value, mask));
  barrier();  // (what is there may still be read)
  if (thread_x() % warp_size == 0) shared[thread_x() / warp_size] = value;
  barrier();
  value = shared[0];
  for (unsigned i = 1; i < warps; ++i) value = fn(value, shared[i]);
  return value;
}

OCTAVO_DEVICE std::int64_t sum_over_block(std::int64_t value, std::uint64_t* shared) {
  return static_cast<std::int64_t>(
      over_block(static_cast<std::uint64_t>(value), shared,
                 [](std::uint64_t a, std::uint64_t b) { return a + b; }));
}

OCTAVO_DEVICE std::int32_t byte_sum(std::uint32_t word) {
  return dp4a(static_cast<std::int32_t>(word), 0x01010101, 0);
}

// Four codes at a time, 0 past the end of a row; and the sums of a row.
template <class F>
OCTAVO_DEVICE void bring(const RowsArgs& a, std::int64_t row, std::uint64_t* shared, F&& code) {
  const std::int64_t at = product_row(row, a.halves);
  std::int64_t sum = 0;
  std::int64_t low_sum = 0;
  const std::int64_t words = a.stride / 4;
  for (std::int64_t word = thread_x(); word < words; word += rows_threads) {
    std::uint32_t high = 0;
    std::uint32_t low = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const std::int64_t k = 4 * word + i;
      if (k >= a.k) break;
      const std::int32_t q = code(k);
      if (a.halves == 1) {
        high |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(q)) << (8 * i);
      } else {
        const numerics::Halves halves = numerics::halves_of(q);
        high |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(halves.high)) << (8 * i);
        low |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(halves.low)) << (8 * i);
      }
    }
    if (a.halves == 1 && 4 * word < a.k) {
      const std::int64_t left = a.k - 4 * word;
      high ^= left >= 4 ? a.flip : a.flip >> static_cast<unsigned>(8 * (4 - left));
    }
    if (a.codes != nullptr) {
      *reinterpret_cast<std::uint32_t*>(a.codes + at * a.stride + 4 * word) = high;
      if (a.halves == 2)
        *reinterpret_cast<std::uint32_t*>(a.codes + (at + 8) * a.stride + 4 * word) = low;
    }
    sum += byte_sum(high);
    low_sum += byte_sum(low);
  }
  if (a.sums == nullptr) return;
  sum = sum_over_block(sum, shared);
  if (thread_x() == 0) a.sums[at] = sum;
  if (a.halves == 1) return;
  low_sum = sum_over_block(low_sum, shared);
  if (thread_x() == 0) a.sums[at + 8] = low_sum;
}

template <class T>
OCTAVO_DEVICE void quantize_rows(const RowsArgs& a) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  __shared__ C shared_range[warps];
  __shared__ std::uint64_t shared_sum[warps];
  if (is_refused(a.slot)) return;
  for (std::int64_t row = block_x(); row < a.rows; row += blocks_x()) {
    const T* input = static_cast<const T*>(a.input) + row * a.input_stride;
    const auto value = [&](std::int64_t k) -> C {
      if constexpr (std::is_same_v<T, C>) {
        return input[k];
      } else {
        return numerics::widen(input[k]);
      }
    };
    numerics::Range<C> range;
    for (std::int64_t k = thread_x(); k < a.k; k += rows_threads) {
      if (a.symmetric) {
        range.add_symmetric(value(k));
      } else {
        range.add_asymmetric(value(k));
      }
    }
    range.high = over_block(range.high, shared_range, [](C x, C y) { return std::max(x, y); });
    if (!a.symmetric)
      range.low = over_block(range.low, shared_range, [](C x, C y) { return std::min(x, y); });
    const auto [scale, zero_point] = numerics::range_parameters(range, a.symmetric, a.range);
    if (thread_x() == 0) {
      static_cast<C*>(a.scales)[row] = scale;
      if (a.zero_points != nullptr) a.zero_points[row] = zero_point;
    }
    const typename numerics::AffineOf<C>::type affine(scale, zero_point, a.range, a.profile);
    bring(a, row, shared_sum, [&](std::int64_t k) { return numerics::quantize(value(k), affine); });
  }
}

OCTAVO_DEVICE void bring_rows(const RowsArgs& a) {
  __shared__ std::uint64_t shared_sum[warps];
  if (is_refused(a.slot)) return;
  for (std::int64_t row = block_x(); row < a.rows; row += blocks_x()) {
    const auto* input = static_cast<const std::uint8_t*>(a.input) + row * a.input_stride;
    bring(a, row, shared_sum, [&](std::int64_t k) { return std::int32_t{input[k]}; });
  }
}

}  // namespace

extern "C" {
__global__ void linear_rows_f32(const RowsArgs args) { quantize_rows<float>(args); }
__global__ void linear_rows_f64(const RowsArgs args) { quantize_rows<double>(args); }
__global__ void linear_rows_f16(const RowsArgs args) { quantize_rows<f16>(args); }
__global__ void linear_rows_bf16(const RowsArgs args) { quantize_rows<bf16>(args); }
__global__ void linear_rows_bytes(const RowsArgs args) { bring_rows(args); }
}

}  // namespace octavo::cuda
