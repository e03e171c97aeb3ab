// Weights packed in panels, by the CPU.
#include "ops/linear/cpu/pack.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/check.hpp"
#include "core/parallel.hpp"
#include "core/parts.hpp"
#include "ops/linear/implementation.hpp"

namespace octavo::detail {
namespace {

// ---- Four columns by four steps, transposed. Every CPU has vectors of 16 bytes.

using Quads = std::uint32_t __attribute__((vector_size(16)));
constexpr std::int64_t block_k = padded_k;  // a cache line of each row

Quads load(const unsigned char* p) {
  Quads v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// `rows` are block_k bytes of each of 16 columns; step by step, they go to the panel. Four rows at
// a time: sixteen, where they lie a power of two apart, would not stay in the first cache.
void transpose(const unsigned char* const (&rows)[panel_columns], std::uint32_t flip,
               std::int8_t* to) {
  constexpr std::int64_t step_bytes = panel_columns * step_k;
  for (std::int64_t c = 0; c < panel_columns; c += 4)
    for (std::int64_t k = 0; k < block_k; k += 16) {
      const Quads a = load(rows[c] + k) ^ flip;
      const Quads b = load(rows[c + 1] + k) ^ flip;
      const Quads d = load(rows[c + 2] + k) ^ flip;
      const Quads e = load(rows[c + 3] + k) ^ flip;
      const Quads ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
      const Quads ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      const Quads de_low = __builtin_shufflevector(d, e, 0, 4, 1, 5);
      const Quads de_high = __builtin_shufflevector(d, e, 2, 6, 3, 7);
      const Quads steps[4] = {__builtin_shufflevector(ab_low, de_low, 0, 1, 4, 5),
                              __builtin_shufflevector(ab_low, de_low, 2, 3, 6, 7),
                              __builtin_shufflevector(ab_high, de_high, 0, 1, 4, 5),
                              __builtin_shufflevector(ab_high, de_high, 2, 3, 6, 7)};
      for (std::int64_t step = 0; step < 4; ++step)
        std::memcpy(to + (k / step_k + step) * step_bytes + c * step_k, &steps[step],
                    sizeof steps[step]);
    }
}

// The panels hold whatever was there; sums are 0.
Result<std::shared_ptr<Panels>> make_panels(std::int64_t n, std::int64_t k, DType code) try {
  auto made = std::make_shared<Panels>(n, k, code);
  made->data_bytes = static_cast<std::size_t>(panels_of(n) * panel_bytes_of(k));
  made->sums.assign(static_cast<std::size_t>(panels_of(n) * panel_columns), 0);
  made->bytes = made->data_bytes + made->sums.size() * sizeof(std::int64_t);
  made->data.reset(static_cast<std::int8_t*>(allocate_in_large_pages(made->data_bytes)));
  if (made->data == nullptr) throw std::bad_alloc();
  return made;
} catch (const std::bad_alloc&) {
  return Error(
      ErrorCode::backend, "weight",
      fmt::format("weight: expected memory for packed weights of [{}, {}], got none", n, k));
}

// Whether padding is 0 and the sums are those of the columns. An image may be anyone's, and wrong
// sums would give other results on some targets than on others.
bool is_consistent(const Panels& w) {
  const std::int64_t steps = round_up(w.k, padded_k) / step_k;
  const std::int8_t* at = w.data.get();
  for (std::int64_t first = 0; first < w.n; first += panel_columns) {
    std::int64_t sums[panel_columns] = {};
    int padding = 0;
    for (std::int64_t step = 0; step < steps; ++step, at += panel_columns * step_k)
      for (std::int64_t i = 0; i < panel_columns * step_k; ++i) {
        sums[i / step_k] += at[i];
        if (step * step_k + i % step_k >= w.k || first + i / step_k >= w.n) padding |= at[i];
      }
    if (padding != 0 || !std::equal(std::begin(sums), std::end(sums), w.sums.begin() + first))
      return false;
  }
  return true;
}

class CpuPack final : public PackImpl {
 public:
  explicit CpuPack(const PackWeightDescriptor& d) : PackImpl(d, panels_format(d.weight)) {}

  [[nodiscard]] Result<PackedWeight> make(bool zeroed) const override {
    const auto made = make_panels(problem.n, problem.k, problem.weight);
    if (!made) return made.error();
    if (zeroed) std::memset((*made)->data.get(), 0, (*made)->data_bytes);
    return PackedWeightAccess::make(*made);
  }

  [[nodiscard]] Status run(const Stream& stream, const TensorRef& weight,
                           PackedWeight& packed) const override {
    auto& to = static_cast<Panels&>(PackedWeightAccess::impl(packed));
    const WeightRows rows{weight.data, weight.strides[0], problem.n, problem.k,
                          problem.weight == DType::u8};
    constexpr std::int64_t bytes_per_part = std::int64_t{1} << 18;
    const std::int64_t panels = panels_of(problem.n);
    const int parts = parts_of(static_cast<std::int64_t>(to.data_bytes), bytes_per_part,
                               std::min<std::int64_t>(panels, stream.threads()));
    parallel(stream, parts, [&](int part) {
      const std::int64_t first = panels * part / parts;
      const std::int64_t last = panels * (part + 1) / parts;
      pack_panels(rows, first, last, to.data.get() + first * panel_bytes_of(problem.k));
      add_columns(rows, first * panel_columns, std::min(problem.n, last * panel_columns),
                  to.sums.data());
    });
    return {};
  }
};

Found<std::shared_ptr<PackImpl>> find_pack(const PackWeightDescriptor& d, const Allowed& /*all*/) {
  return {std::make_shared<CpuPack>(d)};
}

// (It uses what every CPU has.)
constexpr PackEntry entries[] = {{{Backend::cpu, Target::scalar}, find_pack}};

}  // namespace

std::span<const PackEntry> cpu_pack() { return entries; }

void Panels::write_to(std::byte* to) const {
  const std::size_t sum_bytes = bytes - data_bytes;
  if (sum_bytes > 0) std::memcpy(to, sums.data(), sum_bytes);
  std::memcpy(to + sum_bytes, data.get(), data_bytes);
}

Result<PackedWeight> load_panels(std::int64_t n, std::int64_t k, DType code,
                                 std::span<const std::byte> body) {
  const auto made = make_panels(n, k, code);
  if (!made) return made.error();
  Panels& to = **made;
  const std::size_t sum_bytes = to.bytes - to.data_bytes;
  if (sum_bytes > 0) std::memcpy(to.sums.data(), body.data(), sum_bytes);
  if (to.data_bytes > 0) std::memcpy(to.data.get(), body.data() + sum_bytes, to.data_bytes);
  if (!is_consistent(to))
    return invalid("image",
                   "expected sums that are those of its weights, and padding of 0, got "
                   "others: it was not written by serialize");
  return PackedWeightAccess::make(*made);
}

void pack_panels(const WeightRows& rows, std::int64_t first, std::int64_t last, std::int8_t* to) {
  const std::uint32_t flip = rows.is_unsigned ? 0x80808080U : 0;
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
        transpose(at, flip, out);
        continue;
      }
      // Columns that are not there, and k beyond the end, are 0 when flipped.
      unsigned char edge[panel_columns][block_k];
      const std::int64_t n = std::clamp<std::int64_t>(rows.k - k, 0, block_k);
      for (std::int64_t c = 0; c < panel_columns; ++c) {
        std::memset(edge[c], rows.is_unsigned ? 0x80 : 0, block_k);
        if (c < columns && n > 0)
          std::memcpy(edge[c], data + (column + c) * rows.stride + k, static_cast<std::size_t>(n));
        at[c] = edge[c];
      }
      transpose(at, flip, out);
    }
  }
}

void add_columns(const WeightRows& rows, std::int64_t first, std::int64_t last,
                 std::int64_t* sums) {
  if (rows.k == 0) return;  // (Of no bytes, the pointer may be null; sums start at 0.)
  for (std::int64_t n = first; n < last; ++n) {
    const auto* row = static_cast<const unsigned char*>(rows.data) + n * rows.stride;
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < rows.k; ++i)
      sum += rows.is_unsigned ? row[i] - 128 : static_cast<std::int8_t>(row[i]);
    sums[n] = sum;
  }
}

}  // namespace octavo::detail
