// Weights in groups, and floats, packed by the CPU: layouts 2 and 3 (panels.hpp).
#include <algorithm>
#include <bit>
#include <cstring>

#include "numerics/types.hpp"
#include "ops/linear/cpu/pack.hpp"
#include "ops/linear/cpu/values.hpp"
#include "ops/linear/problem.hpp"

namespace octavo::detail {
namespace {

// Four consecutive codes of a column, a byte each; those from `k` on that are not there are 0.
class Codes {
 public:
  explicit Codes(const WeightRows& rows)
      : rows_(rows),
        nibbles_(is_packed(rows.type)),
        is_signed_(storage_range(rows.type).min < 0 && !rows.offset) {}

  [[nodiscard]] std::uint32_t four(std::int64_t column, std::int64_t k) const {
    const auto* row = static_cast<const unsigned char*>(rows_.data) + column * rows_.stride;
    const std::int64_t left = rows_.k - k;
    std::uint32_t codes = 0;
    if (nibbles_) {
      std::uint16_t pairs = 0;
      std::memcpy(&pairs, row + k / 2, left > 2 ? 2 : 1);
      codes = (pairs | pairs << 8U) & 0x00FF00FFU;
      codes = (codes | codes << 4U) & 0x0F0F0F0FU;
      if (is_signed_) codes ^= 0x08080808U;
    } else {
      std::memcpy(&codes, row + k, static_cast<std::size_t>(std::min<std::int64_t>(left, 4)));
      if (is_signed_) codes ^= 0x80808080U;
    }
    return left >= 4 ? codes : codes & ((std::uint32_t{1} << (8 * left)) - 1);
  }

 private:
  const WeightRows& rows_;
  bool nibbles_;
  bool is_signed_;
};

std::int64_t sum_of(std::uint32_t four) {
  return (four & 0xFFU) + (four >> 8U & 0xFFU) + (four >> 16U & 0xFFU) + (four >> 24U);
}

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

void put(std::byte* to, std::uint32_t four) { std::memcpy(to, &four, sizeof four); }

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

}  // namespace

void pack_group_panel(const WeightRows& rows, const WeightFormat& format, std::int64_t panel,
                      std::byte* to) {
  const GroupPanel p(rows.k, format);
  const Codes codes(rows);
  const std::int64_t first = panel * wide_columns;
  const std::int64_t columns = std::min(wide_columns, rows.n - first);
  const auto four = [&](std::int64_t c, std::int64_t k) {
    return c < columns ? codes.four(first + c, k) : 0U;
  };
  if (columns < wide_columns || format.group == 0 || format.zero_points)
    std::memset(to, 0, static_cast<std::size_t>(p.bytes));
  for (std::int64_t g = 0; g < p.groups; ++g) {
    std::byte* group = to + g * p.group_bytes;
    if (format.group != 0) copy_scales(rows, first, columns, p.groups, g, format.scales, group);
    group += p.scale_bytes;
    for (std::int64_t step = 0; step < p.steps; ++step, group += p.code_bytes) {
      const std::int64_t k = g * p.length + step * step_k;
      for (std::int64_t c = 0; c < panel_columns; ++c) {
        const std::uint32_t low = four(c, k);
        const std::uint32_t high = four(c + panel_columns, k);
        put(group + c * step_k, p.nibbles ? low | high << 4U : low);
        if (!p.nibbles) put(group + (c + panel_columns) * step_k, high);
      }
    }
    if (format.zero_points)
      for (std::int64_t c = 0; c < columns; ++c)
        to[p.zero_points + g * wide_columns + c] = static_cast<std::byte>(
            rows.zero_points[(first + c) * p.groups + g] + offset_of(format.code));
  }
  if (format.group != 0) return;
  auto* sums = reinterpret_cast<std::int64_t*>(to + p.sums);
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t k = 0; k < rows.k; k += step_k) sums[c] += sum_of(codes.four(first + c, k));
}

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
    for (std::int64_t c = 0; c < wide_columns; ++c) {
      const PanelCodes codes(at, c, p.nibbles);
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i < p.steps * step_k; ++i) {
        sum += codes[i];
        if (i >= w.k) padding |= codes[i];
      }
      if (sum != held[c]) return false;
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
