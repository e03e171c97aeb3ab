// Rows of weights to the layouts of layout.hpp.
#include "cuda/device/device.hpp"
#include "ops/linear/cuda/finish.hpp"
#include "ops/linear/cuda/instructions.hpp"
#include "ops/linear/cuda/layout.hpp"

namespace octavo::cuda {
namespace {

constexpr int together = pack_threads / panel_columns;  // blocks of k at a time

// A block of threads takes a panel; eight threads next to each other take a column, 32 of k each.
template <bool nibbles>
OCTAVO_DEVICE void pack_integers(const PackArgs& a) {
  if (is_refused(a.slot)) return;
  const std::int64_t blocks = blocks_of(a.k, block_k);
  const std::int64_t panels = blocks_of(a.n, panel_columns);
  const unsigned in_panel = thread_x() / together;
  constexpr int quads = block_k / 4;
  for (std::int64_t panel = block_x(); panel < panels; panel += blocks_x()) {
    const std::int64_t column = panel * panel_columns + in_panel;
    const auto* row = static_cast<const std::uint8_t*>(a.rows) + column * a.stride;
    std::int64_t sum = 0;
    for (std::int64_t first = 0; first < blocks; first += together) {
      const std::int64_t block = first + thread_x() % together;
      if (block >= blocks) break;
      std::uint32_t words[quads];  // of four codes
#pragma unroll
      for (int quad = 0; quad < quads; ++quad) {
        std::uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::int64_t k = block * block_k + 4 * quad + i;
          if (column >= a.n || k >= a.k) continue;
          std::uint32_t code = 0;
          if constexpr (nibbles) {
            code = row[k / 2];
            code = (i % 2 == 0 ? code & 0xFU : code >> 4U) ^ a.flip;
          } else {
            code = row[k] ^ a.flip;
          }
          word |= code << (8 * i);
        }
        words[quad] = word;
        sum += dp4a(static_cast<std::int32_t>(word), 0x01010101, 0);
      }
      constexpr std::int64_t block_bytes = panel_columns * block_k / (nibbles ? 2 : 1);
      auto* to = static_cast<std::uint8_t*>(a.codes) + (panel * blocks + block) * block_bytes;
      const unsigned g = in_panel % 8;
      const unsigned j = in_panel / 8;
#pragma unroll
      for (unsigned t = 0; t < 4; ++t) {
        if constexpr (nibbles) {
          *reinterpret_cast<std::uint32_t*>(to + 16 * (4 * g + t) + 4 * j) =
              words[2 * t] | words[2 * t + 1] << 4U;
        } else {
          store_global8(to + j / 2 * 512 + 16 * (4 * g + t) + j % 2 * 8,
                        {{words[2 * t], words[2 * t + 1]}});
        }
      }
    }
    if (a.sums == nullptr) continue;
    auto total = static_cast<std::uint64_t>(sum);
#pragma unroll
    for (unsigned mask = together / 2; mask > 0; mask /= 2) total += shuffle_xor(total, mask);
    if (thread_x() % together == 0) a.sums[column] = static_cast<std::int64_t>(total);
  }
}

// Elements of so many bytes.
template <class T>
OCTAVO_DEVICE void pack_floats(const PackArgs& a) {
  if (is_refused(a.slot)) return;
  const std::int64_t panels = blocks_of(a.n, panel_columns);
  for (std::int64_t panel = block_x(); panel < panels; panel += blocks_x())
    for (std::int64_t i = thread_x(); i < a.k * panel_columns; i += pack_threads) {
      const std::int64_t column = panel * panel_columns + i % panel_columns;
      const std::int64_t k = i / panel_columns;
      T value = 0;
      if (column < a.n)
        value = *reinterpret_cast<const T*>(static_cast<const std::uint8_t*>(a.rows) +
                                            column * a.stride + k * static_cast<int>(sizeof(T)));
      static_cast<T*>(a.codes)[panel * a.k * panel_columns + i] = value;
    }
}

OCTAVO_DEVICE void pack_groups(const PackGroupsArgs& a) {
  if (is_refused(a.slot)) return;
  const std::int64_t all = blocks_of(a.n, panel_columns) * a.groups * panel_columns;
  const auto step = static_cast<std::int64_t>(blocks_x()) * pack_threads;
  for (std::int64_t i = static_cast<std::int64_t>(block_x()) * pack_threads + thread_x(); i < all;
       i += step) {
    const std::int64_t column = i / (a.groups * panel_columns) * panel_columns + i % panel_columns;
    const std::int64_t group = i / panel_columns % a.groups;
    const bool is_there = column < a.n;
    const std::int64_t at = column * a.groups + group;
    switch (a.scale_bits) {  // (as they are)
      case 64:
        static_cast<std::uint64_t*>(a.packed_scales)[i] =
            is_there ? static_cast<const std::uint64_t*>(a.scales)[at] : 0;
        break;
      case 32:
        static_cast<std::uint32_t*>(a.packed_scales)[i] =
            is_there ? static_cast<const std::uint32_t*>(a.scales)[at] : 0;
        break;
      default:
        static_cast<std::uint16_t*>(a.packed_scales)[i] =
            is_there ? static_cast<const std::uint16_t*>(a.scales)[at] : std::uint16_t{0};
    }
    if (a.packed_zeros != nullptr)
      a.packed_zeros[i] = static_cast<std::int8_t>(is_there ? a.zero_points[at] + a.shift : 0);
  }
}

}  // namespace

extern "C" {
__global__ void linear_pack_bytes(const PackArgs args) { pack_integers<false>(args); }
__global__ void linear_pack_nibbles(const PackArgs args) { pack_integers<true>(args); }
__global__ void linear_pack_16_bits(const PackArgs args) { pack_floats<std::uint16_t>(args); }
__global__ void linear_pack_32_bits(const PackArgs args) { pack_floats<std::uint32_t>(args); }
__global__ void linear_pack_groups(const PackGroupsArgs args) { pack_groups(args); }
}

}  // namespace octavo::cuda
