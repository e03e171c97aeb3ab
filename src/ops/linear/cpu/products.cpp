#include "ops/linear/cpu/products.hpp"

#include <algorithm>

#include "ops/linear/cpu/pack.hpp"

namespace octavo::detail {
namespace {

// Beyond 32 bits, k is cut in pieces whose sums fit.
constexpr std::int64_t wide_piece = std::int64_t{1} << 15;

}  // namespace

Group Products::prepare_group(int part, std::int64_t panel, int panels) const {
  Group group;
  group.column = panel * panel_columns;
  group.columns = std::min(p_.n - group.column, panels * panel_columns);
  group.panels = panels;
  if (p_.packed_weight) {
    const HostWeight& packed = host_weight(o_.weight->packed);
    group.weights = packed.panels() + panel * panel_bytes_of(p_.k);
    group.sums = packed.sums() + group.column;
    return group;
  }
  unsigned char* own = workspace_ + layout_.packs + part * layout_.pack_bytes;
  auto* weights = reinterpret_cast<std::int8_t*>(own);
  pack_panels(rows_of(o_.weight->tensor, p_.n, p_.k, false), panel, panel + panels, weights);
  group.weights = weights;
  if (layout_.adds_columns) {
    auto* sums = reinterpret_cast<std::int64_t*>(own + layout_.pack_sums);
    add_columns(group, sums);
    group.sums = sums;
  }
  return group;
}

// The sums of columns that are packed run by run: a product by ones.
void Products::add_columns(const Group& group, std::int64_t* sums) const {
  alignas(64) std::int32_t found[group_columns];
  std::fill_n(sums, group.panels * panel_columns, 0);
  DotCall call = dot_call(group, 0, 1, found);
  call.activations = activations_.ones();
  for_each_piece(call, [&] {
    for (std::int64_t c = 0; c < group.columns; ++c) sums[c] += found[c];
  });
}

// Runs the dot product piece by piece of k, each so short that its sums are exact in 32 bits.
template <class F>
std::uint32_t Products::for_each_piece(DotCall call, F&& add) const {
  std::uint32_t ran = 0;
  const DotCall all = call;
  for (std::int64_t done = 0; done < all.steps; done += wide_piece / step_k) {
    call.steps = std::min(all.steps - done, wide_piece / step_k);
    call.activations =
        static_cast<const unsigned char*>(all.activations) + done * step_k * bytes_of(dot_.form);
    call.weights = all.weights + done * step_k * panel_columns;
    ran |= bit(dot_.run(call));
    add();
  }
  return ran;
}

void Products::gather(const Group& group, ColumnTerms& to) const {
  const std::int64_t n = group.columns;
  if (n < group_columns) to = {};
  if (layout_.adds_columns) {
    const bool one = activations_.one_zero();
    const auto zero = static_cast<std::uint32_t>(one ? activations_.zero(0) : 1);
    std::int32_t* products = one ? to.term : to.sum;
    for (std::int64_t i = 0; i < n; ++i)
      products[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(group.sums[i]) * zero);
  }
  if (!layout_.adds_rows) return;
  const std::int32_t shift = p_.weight == DType::u8 ? -128 : 0;  // packed as s8
  std::fill_n(to.zero, n, shift);
  if (!p_.weight_zero_points) return;
  const TensorRef& zeros = *o_.weight_zero_points;
  const auto* values = static_cast<const std::int32_t*>(zeros.data);
  const bool single = is_single(zeros);
  for (std::int64_t i = 0; i < n; ++i) to.zero[i] += values[single ? 0 : group.column + i];
}

DotCall Products::dot_call(const Group& group, std::int64_t row, std::int64_t rows,
                           std::int32_t* sums) const {
  DotCall call;
  call.activations = activations_.at(row);
  call.activation_stride = activations_.stride();
  call.rows = rows;
  call.weights = group.weights;
  call.panel_bytes = panel_bytes_of(p_.k);
  call.panels = group.panels;
  call.steps = round_up(p_.k, dot_.k_grain) / step_k;
  call.sums = sums;
  call.ahead = group.ahead;
  call.ahead_bytes = group.ahead == nullptr ? 0 : panel_bytes_of(p_.k) * group.panels;
  return call;
}

std::uint32_t Products::multiply(const Group& group, std::int64_t row, std::int64_t rows,
                                 std::int32_t* sums) const {
  if (p_.k > 0) return bit(dot_.run(dot_call(group, row, rows, sums)));
  std::fill_n(sums, rows * group_columns, 0);  // (of no bytes, pointers may be null)
  return 0;
}

std::uint32_t Products::multiply_wide(const Group& group, const ColumnTerms& columns,
                                      std::int64_t row, std::int64_t rows,
                                      std::int64_t* sums) const {
  alignas(64) std::int32_t found[wide_rows * group_columns];
  std::fill_n(sums, rows * group_columns, 0);
  const std::uint32_t ran = for_each_piece(dot_call(group, row, rows, found), [&] {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < group.columns; ++c)
        sums[r * group_columns + c] += found[r * group_columns + c];
  });
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t zero = activations_.zero(row + r);
    const std::int64_t term = row_term(row + r);
    for (std::int64_t c = 0; c < group.columns; ++c)
      sums[r * group_columns + c] -= (layout_.adds_columns ? zero * group.sums[c] : 0) +
                                     (layout_.adds_rows ? columns.zero[c] * term : 0);
  }
  return ran;
}

}  // namespace octavo::detail
