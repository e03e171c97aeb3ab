// Weights in groups, and floats, packed by the CPU: layouts 2 and 3 (panels.hpp).
#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <numeric>

#include "numerics/types.hpp"
#include "ops/linear/cpu/pack.hpp"
#include "ops/linear/cpu/values.hpp"
#include "ops/linear/problem.hpp"

namespace octavo::detail {
namespace {

using Bytes = unsigned char __attribute__((vector_size(16)));

// Codes of a column, a byte each: `n` of them from `k` on, and 0 up to block_k.
class Codes {
 public:
  explicit Codes(const WeightRows& rows)
      : rows_(rows),
        nibbles_(is_packed(rows.type)),
        is_signed_(storage_range(rows.type).min < 0 && !rows.offset) {}

  void load(std::int64_t column, std::int64_t k, std::int64_t n, unsigned char* to) const {
    const auto* row = static_cast<const unsigned char*>(rows_.data) + column * rows_.stride;
    if (nibbles_) {
      alignas(16) unsigned char pairs[block_k / 2] = {};
      std::memcpy(pairs, row + k / 2, static_cast<std::size_t>((n + 1) / 2));
      for (std::int64_t i = 0; i < block_k / 2; i += 16) {
        Bytes v;
        std::memcpy(&v, pairs + i, sizeof v);
        const Bytes low = (v & 0x0F) ^ flip(8);
        const Bytes high = (v >> 4) ^ flip(8);
        const Bytes first = __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                                    21, 6, 22, 7, 23);
        const Bytes second = __builtin_shufflevector(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12,
                                                     28, 13, 29, 14, 30, 15, 31);
        std::memcpy(to + 2 * i, &first, sizeof first);
        std::memcpy(to + 2 * i + 16, &second, sizeof second);
      }
    } else {
      std::memcpy(to, row + k, static_cast<std::size_t>(n));
      for (std::int64_t i = 0; i < block_k; ++i) to[i] ^= flip(128);
    }
    if (n < block_k) std::memset(to + n, 0, static_cast<std::size_t>(block_k - n));
  }

 private:
  [[nodiscard]] unsigned char flip(int offset) const {
    return static_cast<unsigned char>(is_signed_ ? offset : 0);
  }

  const WeightRows& rows_;
  bool nibbles_;
  bool is_signed_;
};

// The codes of a column in a group, as they lie in a panel.
class PanelCodes {
 public:
  PanelCodes(const std::byte* codes, std::int64_t column, bool nibbles)
      : at_(codes + column % panel_columns * step_k +
            (nibbles ? 0 : column / panel_columns * panel_columns * step_k)),
        step_(nibbles ? 64 : 128),
        shift_(nibbles && column >= panel_columns ? 4 : 0),
        mask_(nibbles ? 0x0F : 0xFF) {}
  [[nodiscard]] int operator[](std::int64_t i) const {
    return std::to_integer<int>(at_[i / step_k * step_ + i % step_k]) >> shift_ & mask_;
  }

 private:
  const std::byte* at_;
  std::int64_t step_;
  int shift_;
  int mask_;
};

// The scales of a group, one of each column: as they are, or rounded to `type`, f32 or f64.
void copy_scales(const WeightRows& rows, std::int64_t first, std::int64_t columns,
                 std::int64_t groups, std::int64_t group, DType type, std::byte* to) {
  const std::int64_t size = bits(type) / 8;
  for (std::int64_t c = 0; c < columns; ++c) {
    const std::int64_t at = (first + c) * groups + group;
    if (type == rows.scale_type) {
      std::memcpy(to + c * size, static_cast<const std::byte*>(rows.scales) + at * size,
                  static_cast<std::size_t>(size));
    } else if (type == DType::f64) {
      load_floats(rows.scales, rows.scale_type, false, at, 1, reinterpret_cast<double*>(to) + c);
    } else {
      load_floats(rows.scales, rows.scale_type, false, at, 1, reinterpret_cast<float*>(to) + c);
    }
  }
}

// Codes of 32 columns, as so many steps of a panel have them, step after step, whatever groups they
// are in.
void put_block(const unsigned char (&block)[wide_columns][block_k], const GroupPanel& p,
               std::int64_t first, std::int64_t steps, std::byte* panel) {
  constexpr std::int64_t step_bytes = panel_columns * step_k;
  alignas(64) std::int8_t halves[2][block_k * panel_columns];
  for (std::int64_t h = 0; h < 2; ++h) {
    const unsigned char* at[panel_columns];
    for (std::int64_t c = 0; c < panel_columns; ++c) at[c] = block[h * panel_columns + c];
    transpose_block(at, 0, halves[h]);
  }
  std::int64_t in_group = first % p.steps;
  std::byte* to = panel + first / p.steps * p.group_bytes + p.scale_bytes + in_group * p.code_bytes;
  for (std::int64_t step = 0; step < steps; ++step, to += p.code_bytes) {
    if (in_group++ == p.steps) {
      in_group = 1;
      to += p.scale_bytes;
    }
    const std::int8_t* low = halves[0] + step * step_bytes;
    const std::int8_t* high = halves[1] + step * step_bytes;
    if (!p.nibbles) {
      std::memcpy(to, low, step_bytes);
      std::memcpy(to + step_bytes, high, step_bytes);
      continue;
    }
    for (std::int64_t i = 0; i < step_bytes; ++i)
      to[i] = static_cast<std::byte>(low[i] | high[i] << 4);
  }
}

}  // namespace

void pack_group_panel(const WeightRows& rows, const WeightFormat& format, std::int64_t panel,
                      std::byte* to) {
  const GroupPanel p(rows.k, format);
  const Codes codes(rows);
  const std::int64_t first = panel * wide_columns;
  const std::int64_t columns = std::min(wide_columns, rows.n - first);
  if (columns < wide_columns || format.group == 0 || format.zero_points)
    std::memset(to, 0, static_cast<std::size_t>(p.bytes));
  std::int64_t sums[wide_columns] = {};
  alignas(64) unsigned char block[wide_columns][block_k] = {};  // (0 where there is no column)
  for (std::int64_t k = 0; k < rows.k; k += block_k) {
    const std::int64_t n = std::min(block_k, rows.k - k);
    for (std::int64_t c = 0; c < columns; ++c) {
      codes.load(first + c, k, n, block[c]);
      if (format.group == 0) sums[c] += std::accumulate(block[c], block[c] + block_k, 0);
    }
    put_block(block, p, k / step_k, (n + step_k - 1) / step_k, to);
  }
  for (std::int64_t g = 0; g < p.groups; ++g) {
    if (format.group != 0)
      copy_scales(rows, first, columns, p.groups, g, format.scales, to + g * p.group_bytes);
    if (format.zero_points)
      for (std::int64_t c = 0; c < columns; ++c)
        to[p.zero_points + g * wide_columns + c] = static_cast<std::byte>(
            rows.zero_points[(first + c) * p.groups + g] + offset_of(format.code));
  }
  if (format.group == 0) std::memcpy(to + p.sums, sums, sizeof sums);
}

namespace {

// Of each column's nibbles, all in one group (codes of bytes have another layout then). Sums of
// each byte of a step, which vectors add; 32 bits hold those of so many.
void add_codes(const std::byte* at, const GroupPanel& p, std::int64_t* sums) {
  constexpr std::int64_t at_once = std::int64_t{1} << 20;
  constexpr std::int64_t step_bytes = panel_columns * step_k;
  for (std::int64_t done = 0; done < p.steps; done += at_once) {
    std::uint32_t low[step_bytes] = {};
    std::uint32_t high[step_bytes] = {};
    for (std::int64_t step = done; step < std::min(p.steps, done + at_once); ++step) {
      const auto* codes = reinterpret_cast<const unsigned char*>(at) + step * p.code_bytes;
      for (std::int64_t i = 0; i < step_bytes; ++i) {
        low[i] += codes[i] & 15U;
        high[i] += static_cast<unsigned>(codes[i]) >> 4U;
      }
    }
    for (std::int64_t i = 0; i < step_bytes; ++i) {
      sums[i / step_k] += low[i];
      sums[panel_columns + i / step_k] += high[i];
    }
  }
}

}  // namespace

bool is_consistent_groups(const HostWeight& w) {
  const GroupPanel p(w.k, w.format);
  const IntRange range = storage_range(w.format.code);
  const std::int64_t scale = bits(w.format.scales) / 8;
  int padding = 0;
  for (std::int64_t panel = 0; panel < wide_panels_of(w.n); ++panel) {
    const std::byte* at = w.panel(panel, p.bytes);
    const std::int64_t columns = std::min(wide_columns, w.n - panel * wide_columns);
    const auto zero_points = [&](std::int64_t g) { return at + p.zero_points + g * wide_columns; };
    for (std::int64_t g = 0; g < p.groups; ++g) {
      const std::byte* group = at + g * p.group_bytes;
      for (std::int64_t i = columns * scale; i < p.scale_bytes; ++i)
        padding |= std::to_integer<int>(group[i]);
      for (std::int64_t c = columns; c < wide_columns; ++c) {
        const PanelCodes codes(group + p.scale_bytes, c, p.nibbles);
        for (std::int64_t i = 0; i < p.steps * step_k; ++i) padding |= codes[i];
        if (w.format.zero_points) padding |= std::to_integer<int>(zero_points(g)[c]);
      }
      if (w.format.group != 0 && !are_finite_scales(group, w.format.scales, columns)) return false;
      if (w.format.zero_points)
        for (std::int64_t c = 0; c < columns; ++c)
          if (std::to_integer<int>(zero_points(g)[c]) > range.max - range.min) return false;
    }
    for (std::int64_t i = p.zero_points + (w.format.zero_points ? p.groups * wide_columns : 0);
         i < p.sums; ++i)
      padding |= std::to_integer<int>(at[i]);
    if (w.format.group != 0) continue;
    std::int64_t held[wide_columns];
    std::memcpy(held, at + p.sums, sizeof held);
    std::int64_t sums[wide_columns] = {};
    add_codes(at, p, sums);
    if (!std::equal(std::begin(sums), std::end(sums), held)) return false;
    for (std::int64_t c = 0; c < wide_columns; ++c) {
      const PanelCodes codes(at, c, p.nibbles);
      for (std::int64_t i = w.k; i < p.steps * step_k; ++i) padding |= codes[i];
    }
  }
  return padding == 0;
}

void unpack_groups(const HostWeight& from, const TensorMut& weight, const TensorMut& scales,
                   const TensorMut& zero_points) {
  const GroupPanel p(from.k, from.format);
  const std::int32_t offset = offset_of(from.format.code);
  const auto size = static_cast<std::size_t>(bits(from.format.scales) / 8);
  for (std::int64_t n = 0; n < from.n; ++n) {
    const std::byte* at = from.panel(n / wide_columns, p.bytes);
    const std::int64_t c = n % wide_columns;
    for (std::int64_t g = 0; g < p.groups; ++g) {
      const std::byte* group = at + g * p.group_bytes;
      const PanelCodes codes(group + p.scale_bytes, c, p.nibbles);
      const std::int64_t last = std::min(from.k, (g + 1) * p.length);
      numerics::with_type(LinearWeights(), from.format.code, [&]<DType type>() {
        for (std::int64_t k = g * p.length; k < last; ++k)
          numerics::Type<type>::write(weight.data, n * weight.strides[0] + k,
                                      codes[k - g * p.length] - offset);
      });
      const std::int64_t i = n * p.groups + g;
      if (scales.data != nullptr)
        std::memcpy(static_cast<std::byte*>(scales.data) + static_cast<std::size_t>(i) * size,
                    group + static_cast<std::size_t>(c) * size, size);
      if (zero_points.data != nullptr)
        static_cast<std::int32_t*>(zero_points.data)[i] =
            std::to_integer<std::int32_t>(at[p.zero_points + g * wide_columns + c]) - offset;
    }
  }
}

// ---- Floats

namespace {

template <class T>
void pack_columns(const WeightRows& rows, std::int64_t first, std::int64_t columns, T* to) {
  constexpr std::int64_t block = 16;
  for (std::int64_t k = 0; k < rows.k; k += block)
    for (std::int64_t c = 0; c < wide_columns; ++c) {
      const auto* row = reinterpret_cast<const T*>(static_cast<const unsigned char*>(rows.data) +
                                                   (first + c) * rows.stride);
      for (std::int64_t i = k; i < std::min(rows.k, k + block); ++i)
        to[i * wide_columns + c] = c < columns ? row[i] : T(0);
    }
}

}  // namespace

void pack_float_panel(const WeightRows& rows, std::int64_t panel, std::byte* to) {
  const std::int64_t first = panel * wide_columns;
  const std::int64_t columns = std::min(wide_columns, rows.n - first);
  if (bits(rows.type) == 32) {
    pack_columns(rows, first, columns, reinterpret_cast<std::uint32_t*>(to));
  } else {
    pack_columns(rows, first, columns, reinterpret_cast<std::uint16_t*>(to));
  }
}

bool is_consistent_floats(const HostWeight& w) {
  const std::int64_t size = bits(w.format.code) / 8;
  const std::int64_t bytes = float_panel_bytes(w.k, w.format.code);
  const std::int64_t last = wide_panels_of(w.n) - 1;
  const std::int64_t columns = w.n - last * wide_columns;
  int padding = 0;
  if (last >= 0)
    for (std::int64_t i = 0; i < bytes; ++i)
      if (i / size % wide_columns >= columns)
        padding |= std::to_integer<int>(w.panel(last, bytes)[i]);
  return padding == 0;
}

void unpack_floats(const HostWeight& from, const TensorMut& weight) {
  const auto size = static_cast<std::size_t>(bits(from.format.code) / 8);
  const std::int64_t bytes = float_panel_bytes(from.k, from.format.code);
  for (std::int64_t n = 0; n < from.n; ++n)
    for (std::int64_t k = 0; k < from.k; ++k)
      std::memcpy(static_cast<std::byte*>(weight.data) +
                      static_cast<std::size_t>(n * weight.strides[0] + k) * size,
                  from.panel(n / wide_columns, bytes) +
                      static_cast<std::size_t>(k * wide_columns + n % wide_columns) * size,
                  size);
}

}  // namespace octavo::detail
