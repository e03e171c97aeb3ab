// Embeddings: the checks of their values, and rows that are copied, converted or dequantized.
#include "cuda/device/device.hpp"
#include "cuda/device/refusals.hpp"

#include "ops/embedding/cuda/embedding_args.hpp"
#include "ops/runs/cuda/piece.hpp"
#include "ops/runs/cuda/start.hpp"

namespace octavo::cuda {
namespace {

OCTAVO_DEVICE float scale_of(const EmbeddingKernelArgs& a, std::int64_t i) {
  switch (a.scale_type) {
    case DType::f64:
      return static_cast<float>(static_cast<const double*>(a.scales)[i]);
    case DType::f16:
      return number<f16>(load_pattern<f16>(a.scales, i));
    case DType::bf16:
      return number<bf16>(load_pattern<bf16>(a.scales, i));
    default:
      return static_cast<const float*>(a.scales)[i];
  }
}

/// Four neighbouring elements of a table, aligned to their size, or one.
template <DType table, int count>
struct Elements {
  std::conditional_t<is_float(table), float, std::int32_t> values[count];

  OCTAVO_DEVICE void load(const void* from, std::int64_t at) {
    constexpr int bits_of_one = bits(table);
    constexpr int bits_of_all = 4 * bits_of_one;
    if constexpr (count == 1) {
      values[0] = numerics::Type<table>::read(from, at);
    } else if constexpr (bits_of_all == 128) {
      const Vector16 v = load16(static_cast<const float*>(from) + at);
#pragma unroll
      for (int i = 0; i < 4; ++i) values[i] = std::bit_cast<float>(v.words[i]);
    } else {
      using Word =
          std::conditional_t<bits_of_all == 64, std::uint64_t,
                             std::conditional_t<bits_of_all == 32, std::uint32_t, std::uint16_t>>;
      Word word = *reinterpret_cast<const Word*>(static_cast<const std::uint8_t*>(from) +
                                                 at * bits_of_one / 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto one = static_cast<std::uint32_t>(word);
        if constexpr (table == DType::f16) {
          values[i] = number<f16>(one << 16U);
        } else if constexpr (table == DType::bf16) {
          values[i] = number<bf16>(one << 16U);
        } else {
          constexpr int unused = 32 - bits_of_one;
          values[i] = table == DType::s8 || table == DType::s4
                          ? static_cast<std::int32_t>(one << unused) >> unused
                          : static_cast<std::int32_t>(one << unused >> unused);
        }
        word = static_cast<Word>(word >> (bits_of_all / 4));
      }
    }
  }
};

template <DType output, int count>
OCTAVO_DEVICE void store_elements(void* to, std::int64_t at, const float (&y)[count]) {
  using T = typename numerics::Type<output>::Storage;
  auto* out = static_cast<T*>(to) + at;
  if constexpr (count == 1) {
    *out = numerics::stored<T>(y[0]);
  } else if constexpr (sizeof(T) == 4) {
    Vector16 v;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      v.words[i] = std::bit_cast<std::uint32_t>(numerics::stored<T>(y[i]));
    store16(out, v);
  } else {
    std::uint64_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      word |= std::uint64_t{std::bit_cast<std::uint16_t>(numerics::stored<T>(y[i]))} << (16 * i);
    *reinterpret_cast<std::uint64_t*>(out) = word;
  }
}

/// A thread takes `count` columns of a row, which divide them and lie in one group.
template <DType table, DType output, int count>
OCTAVO_DEVICE void gather_rows(const EmbeddingKernelArgs& a) {
  if (is_refused(a.latest)) return;
  const std::int64_t units = a.columns / count;
  const std::int64_t step = std::int64_t{blocks_x()} * embedding_threads;
  for (std::int64_t item = std::int64_t{block_x()} * embedding_threads + thread_x();
       item < a.count * units; item += step) {
    const Division d = divide(item, units);
    const std::int64_t column = d.rest * count;
    const std::int64_t row = a.indices[d.quotient];
    Elements<table, count> x;
    x.load(a.table, row * a.table_step + column);
    float y[count];
    if constexpr (is_float(table)) {
#pragma unroll
      for (int i = 0; i < count; ++i) y[i] = x.values[i];
    } else {
      const std::int64_t group = a.groups == 1 ? 0 : divide(column, a.group_size).quotient;
      const std::int64_t at = row * a.groups + group;
      const float scale = scale_of(a, at);
      const std::int32_t zero_point = a.zero_points == nullptr ? 0 : a.zero_points[at];
#pragma unroll
      for (int i = 0; i < count; ++i)
        y[i] = numerics::dequantize_f32(x.values[i], scale, zero_point);
    }
    store_elements<output>(a.output, d.quotient * a.output_step + column, y);
  }
}

/// Rows of elements that have the size of T, bit for bit.
template <class T>
OCTAVO_DEVICE void copy_rows(const EmbeddingKernelArgs& a) {
  if (is_refused(a.latest)) return;
  constexpr std::int64_t size = sizeof(T);
  const std::int64_t element = a.element_bytes;
  const std::int64_t units = a.columns * element / size;
  const std::int64_t step = std::int64_t{blocks_x()} * embedding_threads;
  for (std::int64_t item = std::int64_t{block_x()} * embedding_threads + thread_x();
       item < a.count * units; item += step) {
    const Division d = divide(item, units);
    const std::int64_t row = a.indices[d.quotient];
    const auto* from = static_cast<const std::uint8_t*>(a.table) + row * a.table_step * element;
    auto* to = static_cast<std::uint8_t*>(a.output) + d.quotient * a.output_step * element;
    if constexpr (size == 16) {
      store16(to + d.rest * size, load16(from + d.rest * size));
    } else {
      reinterpret_cast<T*>(to)[d.rest] = reinterpret_cast<const T*>(from)[d.rest];
    }
  }
}

// The order in which the CPU looks: index after index; of each that is one, group after group the
// scale and the zero point.
struct Looked {
  std::int64_t index;
  std::int64_t group;
  std::int64_t what;  // 0: the index, 1: the scale, 2: the zero point
};
OCTAVO_DEVICE std::uint64_t key_of(const Looked& at, std::int64_t groups) {
  const std::int64_t in_row = at.what == 0 ? 0 : 2 * at.group + at.what;
  return static_cast<std::uint64_t>(at.index * (2 * groups + 1) + in_row);
}
OCTAVO_DEVICE Looked looked_at(std::uint64_t key, std::int64_t groups) {
  const Division d = divide(static_cast<std::int64_t>(key), 2 * groups + 1);
  if (d.rest == 0) return {d.quotient, 0, 0};
  return {d.quotient, (d.rest - 1) / 2, d.rest % 2 == 1 ? 1 : 2};
}

}  // namespace

#define OCTAVO_GATHER(table, output)                                          \
  extern "C" __global__ void __launch_bounds__(embedding_threads)             \
      embedding_##table##_##output##_quads(const EmbeddingKernelArgs args) {  \
    gather_rows<DType::table, DType::output, 4>(args);                        \
  }                                                                           \
  extern "C" __global__ void __launch_bounds__(embedding_threads)             \
      embedding_##table##_##output##_single(const EmbeddingKernelArgs args) { \
    gather_rows<DType::table, DType::output, 1>(args);                        \
  }
#define OCTAVO_GATHER_FROM(table) \
  OCTAVO_GATHER(table, f32)       \
  OCTAVO_GATHER(table, f16)       \
  OCTAVO_GATHER(table, bf16)
OCTAVO_GATHER_FROM(s8)
OCTAVO_GATHER_FROM(u8)
OCTAVO_GATHER_FROM(s4)
OCTAVO_GATHER_FROM(u4)
OCTAVO_GATHER(f32, f16)
OCTAVO_GATHER(f32, bf16)
OCTAVO_GATHER(f16, f32)
OCTAVO_GATHER(f16, bf16)
OCTAVO_GATHER(bf16, f32)
OCTAVO_GATHER(bf16, f16)
#undef OCTAVO_GATHER_FROM
#undef OCTAVO_GATHER

extern "C" __global__ void __launch_bounds__(embedding_threads)
    embedding_copy_16(const EmbeddingKernelArgs args) {
  copy_rows<Vector16>(args);
}
extern "C" __global__ void __launch_bounds__(embedding_threads)
    embedding_copy_4(const EmbeddingKernelArgs args) {
  copy_rows<std::uint32_t>(args);
}
extern "C" __global__ void __launch_bounds__(embedding_threads)
    embedding_copy_2(const EmbeddingKernelArgs args) {
  copy_rows<std::uint16_t>(args);
}

// Any number of blocks, as check_values has them.
extern "C" __global__ void __launch_bounds__(embedding_threads)
    embedding_check(const EmbeddingCheckArgs args) {
  const EmbeddingKernelArgs& a = args.run;
  RefusalState& state = *args.state;
  if (blocks_x() == 1 && thread_x() == 0) fold(state);
  const bool quantized = a.quantized;
  std::uint64_t least = nothing_wrong;
  const std::int64_t groups = quantized ? a.groups : 1;
  const std::int64_t step = std::int64_t{blocks_x()} * embedding_threads;
  for (std::int64_t item = std::int64_t{block_x()} * embedding_threads + thread_x();
       item < a.count * groups; item += step) {
    const Division d = divide(item, groups);
    const auto wrong = [&](std::int64_t what) {
      least = std::min(least, key_of({d.quotient, d.rest, what}, groups));
    };
    const std::int64_t row = a.indices[d.quotient];
    if (row < 0 || row >= a.rows) {
      wrong(0);
    } else if (quantized) {
      const std::int64_t at = row * groups + d.rest;
      if (!numerics::is_finite(scale_of(a, at))) {
        wrong(1);
      } else if (a.zero_points != nullptr &&
                 (a.zero_points[at] < args.low || a.zero_points[at] > args.high)) {
        wrong(2);
      }
    }
  }
  least = least_of_block<embedding_threads>(least);
  if (thread_x() != 0) return;
  least = least_of_grid(state, least);
  if (least == nothing_wrong) return;
  const Looked at = looked_at(least, groups);
  Refusal& record = state.latest;
  const std::int32_t index = a.indices[at.index];
  const std::int64_t of_row = index * groups + at.group;
  if (at.what == 0) {
    record.key = static_cast<std::uint64_t>(at.index);
    record.bits = static_cast<std::uint32_t>(index);
    record.word = args.word_index;
    record.detail = static_cast<std::uint64_t>(a.rows);
    return;
  }
  record.key = static_cast<std::uint64_t>(of_row);
  record.detail = args.table_type;
  if (at.what == 1) {
    record.bits = std::bit_cast<std::uint32_t>(scale_of(a, of_row));
    record.word = args.word_scale;
  } else {
    record.bits = static_cast<std::uint32_t>(a.zero_points[of_row]);
    record.word = args.word_zero_point;
  }
}

}  // namespace octavo::cuda
