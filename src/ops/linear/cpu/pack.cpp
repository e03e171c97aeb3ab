// Weights packed in panels, by the CPU.
#include "ops/linear/cpu/pack.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/check.hpp"
#include "core/parallel.hpp"
#include "core/parts.hpp"
#include "ops/linear/cpu/values.hpp"
#include "ops/linear/implementation.hpp"

namespace octavo::detail {
namespace {

// block_k bytes of each of 16 columns, step by step, as a panel of layout 1 has them. Four rows at
// a time: sixteen, where they lie a power of two apart, would not stay in the first cache.
void transpose_block(const unsigned char* const (&rows)[panel_columns], std::uint32_t flip,
                     std::int8_t* to) {
  constexpr std::int64_t step_bytes = panel_columns * step_k;
  for (std::int64_t c = 0; c < panel_columns; c += 4)
    for (std::int64_t k = 0; k < block_k; k += 16) {
      Quads steps[4];
      for (std::int64_t i = 0; i < 4; ++i) steps[i] = load_vector<Quads>(rows[c + i] + k) ^ flip;
      transpose(steps);
      for (std::int64_t step = 0; step < 4; ++step)
        std::memcpy(to + (k / step_k + step) * step_bytes + c * step_k, &steps[step],
                    sizeof steps[step]);
    }
}

// It holds whatever was there.
Result<std::shared_ptr<HostWeight>> make_weight(std::int64_t n, std::int64_t k,
                                                const WeightFormat& format) try {
  auto made = std::make_shared<HostWeight>(n, k, format);
  made->own.reset(static_cast<std::byte*>(allocate_in_large_pages(made->bytes)));
  if (made->own == nullptr) throw std::bad_alloc();
  made->data = made->own.get();
  return made;
} catch (const std::bad_alloc&) {
  return Error(
      ErrorCode::backend, "weight",
      fmt::format("weight: expected memory for packed weights of [{}, {}], got none", n, k));
}

bool is_consistent_panels(const HostWeight& w) {
  const std::int64_t steps = round_up(w.k, padded_k) / step_k;
  const std::int8_t* at = w.panels();
  const std::int64_t* sums_held = w.sums();
  for (std::int64_t first = 0; first < w.n; first += panel_columns) {
    std::int64_t sums[panel_columns] = {};
    int padding = 0;
    // Sums of each byte of a step, which vectors add; 32 bits hold those of so many.
    constexpr std::int64_t at_once = std::int64_t{1} << 20;
    for (std::int64_t done = 0; done < steps; done += at_once) {
      std::int32_t found[panel_columns * step_k] = {};
      for (std::int64_t step = done; step < std::min(steps, done + at_once); ++step) {
        for (std::int64_t i = 0; i < panel_columns * step_k; ++i) found[i] += at[i];
        if (step * step_k + step_k > w.k || first + panel_columns > w.n)
          for (std::int64_t i = 0; i < panel_columns * step_k; ++i)
            if (step * step_k + i % step_k >= w.k || first + i / step_k >= w.n) padding |= at[i];
        at += panel_columns * step_k;
      }
      for (std::int64_t i = 0; i < panel_columns * step_k; ++i) sums[i / step_k] += found[i];
    }
    if (padding != 0 || !std::equal(std::begin(sums), std::end(sums), sums_held + first))
      return false;
  }
  return true;
}

bool is_consistent(const HostWeight& w) {
  switch (w.format.layout) {
    case panels_layout:
      return is_consistent_panels(w);
    case groups_layout:
      return is_consistent_groups(w);
    default:
      return is_consistent_floats(w);
  }
}

Result<PackedWeight> checked(std::shared_ptr<HostWeight> weight) {
  if (!is_consistent(*weight))
    return invalid("image",
                   "expected sums that are those of its weights, and padding of 0, got "
                   "others: it was not written by serialize");
  return PackedWeightAccess::make(std::move(weight));
}

class CpuPack final : public PackImpl {
 public:
  explicit CpuPack(const PackWeightDescriptor& d)
      : PackImpl(d, host_format(d.weight, group_of(d.k, d.group_size), d.zero_points, d.scale)) {}

  [[nodiscard]] Result<PackedWeight> make(bool zeroed) const override {
    auto made = make_weight(problem.n, problem.k, format);
    if (!made) return made.error();
    if (zeroed) std::memset((*made)->own.get(), 0, (*made)->bytes);
    return PackedWeightAccess::make(*made);
  }

  [[nodiscard]] Status check_values(const PackWeightArgs& args) const override {
    if (format.group == 0) return {};
    return check_group_values(problem.weight, args.scales, args.zero_points);
  }

  [[nodiscard]] Status run(const Stream& stream, const PackWeightArgs& args) const override {
    if (Status s = check_values(args); !s) return s;
    auto& to = static_cast<HostWeight&>(PackedWeightAccess::impl(*args.packed));
    WeightRows rows = rows_of(args.weight, problem.n, problem.k, problem.offset);
    if (format.group != 0) {
      rows.scales = args.scales.data;
      rows.scale_type = args.scales.dtype;
      if (format.zero_points)
        rows.zero_points = static_cast<const std::int32_t*>(args.zero_points.data);
    }
    constexpr std::int64_t bytes_per_part = std::int64_t{1} << 18;
    const std::int64_t panels =
        format.layout == panels_layout ? panels_of(problem.n) : wide_panels_of(problem.n);
    const int parts = parts_of(static_cast<std::int64_t>(to.bytes), bytes_per_part,
                               std::min<std::int64_t>(panels, stream.threads()));
    parallel(stream, parts, [&](int part) {
      pack(rows, panels * part / parts, panels * (part + 1) / parts, to.own.get());
    });
    return {};
  }

 private:
  void pack(const WeightRows& rows, std::int64_t first, std::int64_t last, std::byte* to) const {
    const std::int64_t n = problem.n;
    const std::int64_t k = problem.k;
    if (format.layout == panels_layout) {
      const std::int64_t bytes = panel_bytes_of(k);
      pack_panels(rows, first, last, reinterpret_cast<std::int8_t*>(to + first * bytes));
      auto* sums = reinterpret_cast<std::int64_t*>(to + panels_of(n) * bytes);
      std::fill(sums + first * panel_columns, sums + last * panel_columns, 0);
      add_columns(rows, first * panel_columns, std::min(n, last * panel_columns), sums);
      return;
    }
    const bool floats = format.layout == floats_layout;
    const std::int64_t bytes =
        floats ? float_panel_bytes(k, format.code) : GroupPanel(k, format).bytes;
    for (std::int64_t panel = first; panel < last; ++panel)
      floats ? pack_float_panel(rows, panel, to + panel * bytes)
             : pack_group_panel(rows, format, panel, to + panel * bytes);
  }
};

Found<std::shared_ptr<PackImpl>> find_pack(const PackWeightDescriptor& d, const Allowed& /*all*/) {
  return {std::make_shared<CpuPack>(d)};
}

// (It uses what every CPU has.)
constexpr PackEntry entries[] = {{{Backend::cpu, Target::scalar}, find_pack}};

}  // namespace

std::span<const PackEntry> cpu_pack() { return entries; }

Status HostWeight::unpack(const TensorMut& weight, const TensorMut& scales,
                          const TensorMut& zero_points) const {
  switch (format.layout) {
    case panels_layout:
      unpack_panels(*this, weight);
      return {};
    case groups_layout:
      unpack_groups(*this, weight, scales, zero_points);
      return {};
    default:
      unpack_floats(*this, weight);
      return {};
  }
}

Result<PackedWeight> load_weight(std::int64_t n, std::int64_t k, const WeightFormat& format,
                                 std::span<const std::byte> body,
                                 std::shared_ptr<const void> keeper) {
  if (keeper != nullptr) {
    auto made = std::make_shared<HostWeight>(n, k, format);
    made->data = body.data();
    const auto begin = reinterpret_cast<std::uintptr_t>(body.data());
    made->lent = {begin, begin + body.size()};
    made->keeper = std::move(keeper);
    return checked(std::move(made));
  }
  auto made = make_weight(n, k, format);
  if (!made) return made.error();
  if (!body.empty()) std::memcpy((*made)->own.get(), body.data(), body.size());
  return checked(*made);
}

Result<PackedWeight> load_version_1(std::int64_t n, std::int64_t k, const WeightFormat& format,
                                    std::span<const std::byte> body) {
  auto made = make_weight(n, k, format);
  if (!made) return made.error();
  const auto sums = static_cast<std::size_t>(panels_of(n) * panel_columns * 8);
  if (!body.empty()) {
    std::memcpy((*made)->own.get(), body.data() + sums, body.size() - sums);
    std::memcpy((*made)->own.get() + (body.size() - sums), body.data(), sums);
  }
  return checked(*made);
}

WeightRows rows_of(const TensorRef& weight, std::int64_t n, std::int64_t k, bool offset) {
  const std::int64_t stride = k == 0 ? 0 : weight.strides[0];
  return {weight.data,
          is_packed(weight.dtype) ? stride / 2 : stride * (bits(weight.dtype) / 8),
          n,
          k,
          weight.dtype,
          offset};
}

void pack_panels(const WeightRows& rows, std::int64_t first, std::int64_t last, std::int8_t* to) {
  const bool is_unsigned = rows.type == DType::u8 || rows.offset;
  const std::uint32_t flip = is_unsigned ? 0x80808080U : 0;
  const std::int64_t padded = round_up(rows.k, padded_k);
  for (std::int64_t panel = first; panel < last; ++panel) {
    std::int8_t* out = to + (panel - first) * panel_bytes_of(rows.k);
    const std::int64_t column = panel * panel_columns;
    const std::int64_t columns = std::min(panel_columns, rows.n - column);
    const auto* data = static_cast<const unsigned char*>(rows.data);
    for (std::int64_t k = 0; k < padded; k += block_k, out += block_k * panel_columns) {
      const unsigned char* at[panel_columns];
      if (columns == panel_columns && k + block_k <= rows.k) {
        for (std::int64_t c = 0; c < panel_columns; ++c)
          at[c] = data + (column + c) * rows.stride + k;
        transpose_block(at, flip, out);
        continue;
      }
      // Columns that are not there, and k beyond the end, are 0 when flipped.
      unsigned char edge[panel_columns][block_k];
      const std::int64_t n = std::clamp<std::int64_t>(rows.k - k, 0, block_k);
      for (std::int64_t c = 0; c < panel_columns; ++c) {
        std::memset(edge[c], is_unsigned ? 0x80 : 0, block_k);
        if (c < columns && n > 0)
          std::memcpy(edge[c], data + (column + c) * rows.stride + k, static_cast<std::size_t>(n));
        at[c] = edge[c];
      }
      transpose_block(at, flip, out);
    }
  }
}

void add_columns(const WeightRows& rows, std::int64_t first, std::int64_t last,
                 std::int64_t* sums) {
  if (rows.k == 0) return;  // (Of no bytes, the pointer may be null; sums start at 0.)
  const bool is_unsigned = rows.type == DType::u8 || rows.offset;
  for (std::int64_t n = first; n < last; ++n) {
    const auto* row = static_cast<const unsigned char*>(rows.data) + n * rows.stride;
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < rows.k; ++i)
      sum += is_unsigned ? row[i] - 128 : static_cast<std::int8_t>(row[i]);
    sums[n] = sum;
  }
}

void unpack_panels(const HostWeight& from, const TensorMut& weight) {
  const unsigned char flip = from.format.code == DType::u8 ? 0x80 : 0;
  for (std::int64_t n = 0; n < from.n; ++n) {
    const std::int8_t* column =
        from.panels() + n / panel_columns * panel_bytes_of(from.k) + n % panel_columns * step_k;
    if (from.k == 0) return;
    auto* to = static_cast<unsigned char*>(weight.data) + n * weight.strides[0];
    for (std::int64_t k = 0; k < from.k; ++k)
      to[k] = static_cast<unsigned char>(column[k / step_k * step_k * panel_columns + k % step_k]) ^
              flip;
  }
}

}  // namespace octavo::detail
