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

// Four elements of a row, from 4 * word on; 0 past its end. Those of a row that is `aligned` in one
// access.
template <class T>
struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) Quad {
  T x[4];
};
template <class T>
OCTAVO_DEVICE bool is_aligned(const T* row) {
  return reinterpret_cast<std::uintptr_t>(row) % alignof(Quad<T>) == 0;
}
template <class T>
OCTAVO_DEVICE Quad<T> load_quad(const T* row, std::int64_t word, std::int64_t k, bool aligned) {
  const std::int64_t first = 4 * word;
  if (aligned && first + 4 <= k) {
    if constexpr (sizeof(T) == 1) {
      return std::bit_cast<Quad<T>>(*reinterpret_cast<const std::uint32_t*>(row + first));
    } else if constexpr (sizeof(T) == 2) {
      return std::bit_cast<Quad<T>>(load_global8(row + first));
    } else if constexpr (sizeof(T) == 4) {
      return std::bit_cast<Quad<T>>(load_global16(row + first));
    } else {
      struct Two {
        Vector16 half[2];
      };
      return std::bit_cast<Quad<T>>(
          Two{{load_global16(row + first), load_global16(row + first + 2)}});
    }
  }
  Quad<T> quad{};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (first + i < k) quad.x[i] = row[first + i];
  return quad;
}

// Puts the codes of a row, four at a time, and sums them: word_of(word, low) gives those of upper
// halves, where there are two, and of lower ones.
template <class F>
OCTAVO_DEVICE void bring(const RowsArgs& a, std::int64_t row, std::uint64_t* shared, F&& word_of) {
  const std::int64_t at = product_row(row, a.halves);
  std::int64_t sum = 0;
  std::int64_t low_sum = 0;
  const std::int64_t words = a.stride / 4;
  for (std::int64_t word = thread_x(); word < words; word += rows_threads) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    if (4 * word < a.k) high = word_of(word, low);
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

// Of a word's bytes those of the row, from `word` on.
OCTAVO_DEVICE std::uint32_t bytes_there(std::int64_t word, std::int64_t k) {
  const std::int64_t left = k - 4 * word;
  return left >= 4 ? 0xFFFFFFFFU : 0xFFFFFFFFU >> static_cast<unsigned>(8 * (4 - left));
}

extern "C" {
// Declared as of no size: a row as it came, if it has room.
alignas(16) extern __shared__ unsigned char shared_row[];
}

template <class T>
OCTAVO_DEVICE void quantize_rows(const RowsArgs& a) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  __shared__ C shared_range[warps];
  __shared__ std::uint64_t shared_sum[warps];
  if (is_refused(a.slot)) return;
  const auto widened = [](T x) -> C {
    if constexpr (std::is_same_v<T, C>) {
      return x;
    } else {
      return numerics::widen(x);
    }
  };
  // Each thread finds again what it has put there itself.
  auto* kept = reinterpret_cast<Quad<T>*>(shared_row);
  for (std::int64_t row = block_x(); row < a.rows; row += blocks_x()) {
    const T* input = static_cast<const T*>(a.input) + row * a.input_stride;
    const bool aligned = is_aligned(input);
    numerics::Range<C> range;
    for (std::int64_t word = thread_x(); 4 * word < a.k; word += rows_threads) {
      const Quad<T> quad = load_quad(input, word, a.k, aligned);
      if (a.keeps_rows) kept[word] = quad;
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // (0 is in every range)
        if (a.symmetric) {
          range.add_symmetric(widened(quad.x[i]));
        } else {
          range.add_asymmetric(widened(quad.x[i]));
        }
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
    bring(a, row, shared_sum, [&](std::int64_t word, std::uint32_t& low) {
      const Quad<T> quad = a.keeps_rows ? kept[word] : load_quad(input, word, a.k, aligned);
      std::uint32_t high = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int32_t q = numerics::quantize(widened(quad.x[i]), affine);
        // (Of 8 bits the lower half is all.)
        const std::int32_t upper = a.halves == 1 ? q : numerics::halves_of(q).high;
        high |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(upper)) << (8 * i);
        low |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(q)) << (8 * i);
      }
      const std::uint32_t there = bytes_there(word, a.k);
      low = a.halves == 1 ? 0 : low & there;
      return (high ^ a.flip) & there;
    });
  }
}

OCTAVO_DEVICE void bring_rows(const RowsArgs& a) {
  __shared__ std::uint64_t shared_sum[warps];
  if (is_refused(a.slot)) return;
  for (std::int64_t row = block_x(); row < a.rows; row += blocks_x()) {
    const auto* input = static_cast<const std::uint8_t*>(a.input) + row * a.input_stride;
    const bool aligned = is_aligned(input);
    bring(a, row, shared_sum, [&](std::int64_t word, std::uint32_t& /*low*/) {
      const auto codes = std::bit_cast<std::uint32_t>(load_quad(input, word, a.k, aligned));
      return (codes ^ a.flip) & bytes_there(word, a.k);
    });
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
