// Weights in groups, and floats, packed by the CPU: layouts 2 and 3 (panels.hpp).
#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "numerics/types.hpp"
#include "ops/linear/cpu/pack.hpp"
#include "ops/linear/cpu/values.hpp"
#include "ops/linear/problem.hpp"

namespace octavo::detail {
namespace {

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

// Sums of the nibbles of columns.
class NibbleSums {
 public:
  // Those of a line, in each byte at most 120 (8 nibbles).
  void add(std::int64_t column, Bytes sums) {
    const auto words = std::bit_cast<Words>(sums);
    sums_[column] += (words & 0xFF) + (words >> 8);
  }
  // After each block: 16 bits hold the sums of so many.
  void end_block() {
    if (++blocks_ == UINT16_MAX / 240) finish();
  }
  void finish() {
    for (std::int64_t c = 0; c < wide_columns; ++c)
      for (int i = 0; i < 8; ++i) total[c] += sums_[c][i];
    std::memset(sums_, 0, sizeof sums_);
    blocks_ = 0;
  }

  std::int64_t total[wide_columns] = {};

 private:
  Words sums_[wide_columns] = {};
  int blocks_ = 0;
};

constexpr std::int64_t most_steps = 2 * block_k / step_k;  // of a block: a line of each row

// A line of nibbles of each of 32 columns, those of column 16 + c beside those of c. (Four columns
// of either half at a time: more lines, where they lie a power of two apart, would not stay in the
// first cache.)
template <bool adds>
void put_nibbles(const unsigned char* const (&rows)[wide_columns], unsigned char flip,
                 std::byte* const (&steps)[most_steps], NibbleSums& sums) {
  for (std::int64_t c = 0; c < panel_columns; c += 4) {
    Bytes found[8] = {};
    for (std::int64_t i = 0; i < block_k; i += 16) {
      Quads first[4];
      Quads second[4];
#pragma GCC unroll 4
      for (std::int64_t j = 0; j < 4; ++j) {
        const Bytes a = load_vector<Bytes>(rows[c + j] + i) ^ flip;
        const Bytes b = load_vector<Bytes>(rows[panel_columns + c + j] + i) ^ flip;
        const auto high = [](Bytes v) {
          return std::bit_cast<Bytes>(std::bit_cast<Words>(v) >> 4) & 0x0F;
        };
        const Bytes low = b & 0x0F;
        if constexpr (adds) {
          found[2 * j] += (a & 0x0F) + high(a);
          found[2 * j + 1] += low + high(b);
        }
        const Bytes even = (a & 0x0F) | std::bit_cast<Bytes>(std::bit_cast<Words>(low) << 4);
        const Bytes odd = high(a) | (b & 0xF0);
        first[j] = std::bit_cast<Quads>(__builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3,
                                                                19, 4, 20, 5, 21, 6, 22, 7, 23));
        second[j] = std::bit_cast<Quads>(__builtin_shufflevector(
            even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
      }
      transpose(first);
      transpose(second);
      std::byte* const* to = steps + i / 2;
      for (std::int64_t j = 0; j < 4; ++j) {
        std::memcpy(to[j] + c * step_k, &first[j], sizeof first[j]);
        std::memcpy(to[4 + j] + c * step_k, &second[j], sizeof second[j]);
      }
    }
    if constexpr (adds)
      for (std::int64_t j = 0; j < 4; ++j) {
        sums.add(c + j, found[2 * j]);
        sums.add(panel_columns + c + j, found[2 * j + 1]);
      }
  }
}

// The same of bytes.
void put_bytes(const unsigned char* const (&rows)[wide_columns], unsigned char flip,
               std::byte* const (&steps)[most_steps]) {
  for (std::int64_t c = 0; c < wide_columns; c += 4)
    for (std::int64_t i = 0; i < block_k; i += 16) {
      Quads four[4];
      for (std::int64_t j = 0; j < 4; ++j)
        four[j] = std::bit_cast<Quads>(load_vector<Bytes>(rows[c + j] + i) ^ flip);
      transpose(four);
      for (std::int64_t j = 0; j < 4; ++j)
        std::memcpy(steps[i / step_k + j] + c * step_k, &four[j], sizeof four[j]);
    }
}

// The codes of a panel, and their sums.
template <bool adds>
void put_codes(const WeightRows& rows, const GroupPanel& p, std::int64_t first_column,
               std::int64_t columns, std::byte* panel, NibbleSums& sums) {
  const bool flips = storage_range(rows.type).min < 0 && !rows.offset;
  const auto flip = static_cast<unsigned char>(!flips ? 0 : p.nibbles ? 0x88 : 0x80);
  const std::int64_t per_byte = p.nibbles ? 2 : 1;
  const std::int64_t block = block_k * per_byte;
  unsigned char edges[wide_columns][block_k];
  std::byte nowhere[wide_columns * step_k];
  std::byte* to = panel + p.scale_bytes;
  std::int64_t in_group = 0;
  for (std::int64_t k = 0; k < rows.k; k += block) {
    const std::int64_t n = std::min(block, rows.k - k);
    std::byte* steps[most_steps];
    for (std::int64_t i = 0; i < block / step_k; ++i) {
      steps[i] = nowhere;
      if (i * step_k >= n) continue;
      steps[i] = to;
      to += p.code_bytes;
      if (++in_group < p.steps) continue;
      in_group = 0;
      to += p.scale_bytes;
    }
    const unsigned char* at[wide_columns];
    for (std::int64_t c = 0; c < columns; ++c)
      at[c] = static_cast<const unsigned char*>(rows.data) + (first_column + c) * rows.stride +
              k / per_byte;
    // Columns that are not there, and k beyond the end, are 0 when flipped.
    if (columns < wide_columns || n < block)
      for (std::int64_t c = 0; c < wide_columns; ++c) {
        std::memset(edges[c], flip, block_k);
        if (c < columns)
          std::memcpy(edges[c], at[c], static_cast<std::size_t>((n + per_byte - 1) / per_byte));
        if (n % per_byte != 0)
          edges[c][n / 2] = static_cast<unsigned char>((edges[c][n / 2] & 0x0F) | (flip & 0xF0));
        at[c] = edges[c];
      }
    if (!p.nibbles) {
      put_bytes(at, flip, steps);
      continue;
    }
    put_nibbles<adds>(at, flip, steps, sums);
    if (adds) sums.end_block();
  }
  if (adds) sums.finish();
}

// Values of columns, [columns][groups], to where those of a column are `step` apart.
template <class T>
class Scattered {
 public:
  Scattered(std::byte* to, std::int64_t groups, std::int64_t step)
      : to_(to),
        groups_(groups),
        step_(step) {}

  template <class F>
  void add(std::int64_t n, F&& value) {
    for (std::int64_t i = 0; i < n; ++i) {
      const T v = value(i);
      std::memcpy(to_ + group_ * step_, &v, sizeof v);
      if (++group_ < groups_) continue;
      group_ = 0;
      to_ += sizeof(T);
    }
  }

 private:
  std::byte* to_;
  std::int64_t groups_;
  std::int64_t step_;
  std::int64_t group_ = 0;
};

// The scales of a panel, of so many bits each, as they are or rounded.
template <class Bits>
void put_scales(const WeightRows& rows, const GroupPanel& p, std::int64_t first, std::int64_t count,
                std::byte* to) {
  constexpr std::int64_t at_once = 512;
  const std::int64_t size = bits(rows.scale_type) / 8;
  const std::byte* from = static_cast<const std::byte*>(rows.scales) + first * size;
  alignas(64) Bits converted[at_once];
  Scattered<Bits> scattered(to, p.groups, p.group_bytes);
  for (std::int64_t done = 0; done < count; done += at_once, from += at_once * size) {
    const std::int64_t n = std::min(at_once, count - done);
    const void* values = from;
    if (rows.convert != nullptr) {
      rows.convert(from, n, converted);
      values = converted;
    }
    scattered.add(n, [&](std::int64_t i) { return static_cast<const Bits*>(values)[i]; });
  }
}

}  // namespace

void pack_group_panel(const WeightRows& rows, const WeightFormat& format, std::int64_t panel,
                      std::byte* to) {
  const GroupPanel p(rows.k, format);
  const std::int64_t first = panel * wide_columns;
  const std::int64_t columns = std::min(wide_columns, rows.n - first);
  // (Codes are all written, but scales and zero points only where there are columns.)
  if (columns < wide_columns) {
    std::memset(to, 0, static_cast<std::size_t>(p.bytes));
  } else {
    std::memset(to + p.zero_points, 0, static_cast<std::size_t>(p.bytes - p.zero_points));
  }
  NibbleSums sums;
  if (format.group == 0) {
    put_codes<true>(rows, p, first, columns, to, sums);
    std::memcpy(to + p.sums, sums.total, sizeof sums.total);
    return;
  }
  put_codes<false>(rows, p, first, columns, to, sums);
  const std::int64_t count = columns * p.groups;
  switch (bits(format.scales)) {
    case 16:
      put_scales<std::uint16_t>(rows, p, first * p.groups, count, to);
      break;
    case 32:
      put_scales<std::uint32_t>(rows, p, first * p.groups, count, to);
      break;
    default:
      put_scales<std::uint64_t>(rows, p, first * p.groups, count, to);
  }
  if (!format.zero_points) return;
  const std::int32_t* zero_points = rows.zero_points + first * p.groups;
  const std::int32_t offset = offset_of(format.code);
  Scattered<std::byte>(to + p.zero_points, p.groups, wide_columns).add(count, [&](std::int64_t i) {
    return static_cast<std::byte>(zero_points[i] + offset);
  });
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

// V has as many columns as go at a time, T each. Some lines of each are read in a row: of one,
// memory would not be asked for the next.
template <class V, class T>
void pack_columns(const WeightRows& rows, std::int64_t first, std::int64_t columns, T* to) {
  constexpr std::int64_t lanes = sizeof(V) / sizeof(T);
  constexpr std::int64_t lines = 256 / sizeof(T);
  const auto at = [&](std::int64_t c) {
    return reinterpret_cast<const T*>(static_cast<const unsigned char*>(rows.data) +
                                      (first + c) * rows.stride);
  };
  for (std::int64_t k = 0; k < rows.k; k += lines)
    for (std::int64_t c = 0; c < wide_columns; c += lanes) {
      const std::int64_t last = std::min(rows.k, k + lines);
      std::int64_t i = k;
      for (; c + lanes <= columns && i + lanes <= last; i += lanes) {
        V square[lanes];
        for (std::int64_t j = 0; j < lanes; ++j) square[j] = load_vector<V>(at(c + j) + i);
        transpose(square);
        for (std::int64_t j = 0; j < lanes; ++j)
          std::memcpy(to + (i + j) * wide_columns + c, &square[j], sizeof square[j]);
      }
      for (; i < last; ++i)
        for (std::int64_t j = c; j < c + lanes; ++j)
          to[i * wide_columns + j] = j < columns ? at(j)[i] : T(0);
    }
}

}  // namespace

void pack_float_panel(const WeightRows& rows, std::int64_t panel, std::byte* to) {
  const std::int64_t first = panel * wide_columns;
  const std::int64_t columns = std::min(wide_columns, rows.n - first);
  if (bits(rows.type) == 32) {
    pack_columns<Quads>(rows, first, columns, reinterpret_cast<std::uint32_t*>(to));
  } else {
    pack_columns<Words>(rows, first, columns, reinterpret_cast<std::uint16_t*>(to));
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
