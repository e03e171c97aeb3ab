#include "ops/linear/cpu/group_rows.hpp"

#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "numerics/linear.hpp"
#include "ops/linear/cpu/rows.hpp"

namespace octavo::detail {
namespace {

constexpr std::int64_t unit = static_cast<std::int64_t>(workspace_alignment);

// Rows of so many chains. (Sums of 64 bits are finished wide_rows at a time.)
std::int64_t tile_of(const LinearProblem& p, int chains) {
  return std::min<std::int64_t>(chains, p.group == 0 && is_wide(p) ? wide_rows : chains) /
         parts_per_row(p);
}

}  // namespace

bool GroupLayout::fits(const LinearProblem& p, const WeightFormat& format, int threads) {
  if (p.m == 0 || p.n == 0) return true;
  std::int64_t weights = p.packed_weight ? 0 : 2 * GroupPanel(p.k, format).bytes;
  if (is_packed(format.code)) weights += 2 * GroupPanel(p.k, widened_format(format)).bytes;
  return count_elements("k", {threads, weights + (max_tile_rows + 2) * (p.k + 3 * padded_k) +
                                           2 * wide_columns * 4 * (groups_of(p.k, p.group) + 1)})
      .has_value();
}

GroupLayout::GroupLayout(const LinearProblem& p, const WeightFormat& format,
                         const GroupKernel& kernel, int threads)
    : halves(parts_per_row(p)),
      tile(tile_of(p, kernel.rows)),
      many_tile(tile_of(p, kernel.many_rows == 0 ? kernel.rows : kernel.many_rows)),
      few(kernel.few / halves),
      run(run_of(kernel.most_together, p.group == 0 ? round_up(p.k, step_k) : p.group)),
      length(p.group == 0 ? p.k : p.group),
      groups(p.group == 0 ? 1 : p.k / p.group),
      padded(round_up(p.k, step_k)),
      adds_columns(p.activation_zero_points || p.quantized == DType::u8) {
  const auto take = [this](std::int64_t bytes) {
    const std::int64_t at = total;
    total += round_up(bytes, unit);
    return at;
  };
  if (p.m == 0 || p.n == 0) return;
  const std::int64_t rows = p.m * halves;
  take(rows * padded);
  if (p.group != 0) {
    row_sums = take(rows * groups * 4);
  } else {
    long_sums = take(rows * 8);
  }
  if (adds_columns) row_zeros = take(p.m * 4);
  if (is_dynamic(p)) {
    scales = take(p.m * (bits(octavo::compute_type(p.activation)) / 8));
    if (!is_symmetric(p)) zero_points = take(p.m * 4);
  }
  // (No power of two apart, or the rows of a block would not stay in the first cache.)
  line_bytes = round_up(padded, unit) + unit;
  thread_lines = std::max(tile, many_tile) * halves + (halves == 2 ? 2 : 0);
  lines = take(threads * thread_lines * line_bytes);
  const bool columns = adds_columns && p.group != 0;
  if (columns) ones = take(length);
  if (!p.packed_weight) pack_bytes = 2 * GroupPanel(p.k, format).bytes;
  widened = pack_bytes = round_up(pack_bytes, unit);
  if (kernel.widen != nullptr && is_packed(format.code) && p.m > few)
    pack_bytes += 2 * GroupPanel(p.k, widened_format(format)).bytes;
  column_sums = pack_bytes;
  if (columns) pack_bytes += 2 * groups * wide_columns * 4;
  pack_bytes = round_up(pack_bytes, unit);
  packs = take(threads * pack_bytes);
}

GroupRows::GroupRows(const LinearProblem& p, const LinearOperands& o, const GroupLayout& layout,
                     const LinearKernels& kernels, void* workspace)
    : p_(p),
      o_(o),
      layout_(layout),
      kernels_(kernels),
      workspace_(static_cast<unsigned char*>(workspace)),
      rows_(o.input->shape[0]),
      input_stride_(p.k == 0 ? 0 : o.input->strides[0] * (bits(p.activation) / 8)) {}

void GroupRows::fill_ones() const {
  if (layout_.adds_columns && p_.group != 0)
    std::memset(workspace_ + layout_.ones, 1, static_cast<std::size_t>(layout_.length));
}

void GroupRows::prepare(const RowBlock& block, int part) const {
  unsigned char* const lines =
      workspace_ + layout_.lines + part * layout_.thread_lines * layout_.line_bytes;
  const unsigned char flip = p_.quantized == DType::u8 ? sign_flip : 0;
  const unsigned char* brought[max_tile_rows];
  for (int i = 0; i < block.rows; ++i) {
    const std::int64_t row = block.first + i;
    const auto* from = static_cast<const unsigned char*>(o_.input->data) + row * input_stride_;
    unsigned char* const line = lines + std::int64_t{i} * layout_.halves * layout_.line_bytes;
    if (layout_.halves == 1) {
      if (is_dynamic(p_)) {
        quantize(row, from, line);
        from = line;
      }
      const std::int32_t zero = zero_of(row);
      if (layout_.adds_columns) *zeros(row) = zero;
      brought[i] = from;
      add_up(from, flip, block, i, zero);
      continue;
    }
    unsigned char* const whole = lines + (layout_.thread_lines - 2) * layout_.line_bytes;
    quantize(row, from, whole);
    const auto* wide = reinterpret_cast<const std::int16_t*>(whole);
    unsigned char* const high = line;
    unsigned char* const low = line + layout_.line_bytes;
    for (std::int64_t k = 0; k < p_.k; ++k) {
      const numerics::Halves h = numerics::halves_of(wide[k]);
      high[k] = static_cast<unsigned char>(h.high);
      low[k] = static_cast<unsigned char>(h.low);
    }
    for (int h = 0; h < 2; ++h) {
      brought[2 * i + h] = line + h * layout_.line_bytes;
      add_up(brought[2 * i + h], 0, block, 2 * i + h, 0);
    }
  }
  bring(brought, flip, block);
}

void GroupRows::quantize(std::int64_t row, const unsigned char* from, unsigned char* to) const {
  KernelCall call;
  call.input = from;
  call.output = to;
  call.count = 1;
  call.length = p_.k;
  call.range = code_range(p_);
  call.profile = p_.profile;
  call.symmetric = is_symmetric(p_);
  call.scale_found =
      workspace_ + layout_.scales + row * (bits(octavo::compute_type(p_.activation)) / 8);
  if (!is_symmetric(p_))
    call.zero_point_found = reinterpret_cast<std::int32_t*>(workspace_ + layout_.zero_points) + row;
  kernels_.fused(call);
}

std::int32_t GroupRows::zero_of(std::int64_t row) const {
  const std::int32_t shift = p_.quantized == DType::u8 ? -128 : 0;
  if (!p_.activation_zero_points) return shift;
  if (is_dynamic(p_))
    return reinterpret_cast<const std::int32_t*>(workspace_ + layout_.zero_points)[row] + shift;
  if (p_.op == Op::smoothquant_linear) return p_.act_zero_point + shift;
  const TensorRef& given = *o_.activation_zero_points;
  return static_cast<const std::int32_t*>(given.data)[is_single(given) ? 0 : row] + shift;
}

// Rows of the block, or their halves, to where products read them.
void GroupRows::bring(const unsigned char* const* rows, unsigned char flip,
                      const RowBlock& block) const {
  const std::int64_t chains = std::int64_t{block.rows} * layout_.halves;
  const std::int64_t run = this->run();
  unsigned char* const to = workspace_ + block.first * layout_.padded * layout_.halves;
  if (chains == 1) {
    kernels_.rows.flip(rows[0], p_.k, flip, to);
    std::memset(to + p_.k, 0, static_cast<std::size_t>(layout_.padded - p_.k));
    return;
  }
  if (run == step_k) return kernels_.rows.interleave(rows, chains, p_.k, flip, to);
  for (std::int64_t r = 0; r < chains; ++r) {
    unsigned char* at = to + r * run;
    std::int64_t k = 0;
    for (; k + run <= p_.k; k += run, at += run * chains)
      kernels_.rows.flip(rows[r] + k, run, flip, at);
    if (k == p_.k) continue;
    kernels_.rows.flip(rows[r] + k, p_.k - k, flip, at);
    std::memset(at + p_.k - k, 0, static_cast<std::size_t>(run - (p_.k - k)));
  }
}

// `at` counts the rows of the block, or their halves.
void GroupRows::add_up(const unsigned char* from, unsigned char flip, const RowBlock& block, int at,
                       std::int32_t zero) const {
  // As u8, more by 128, which is taken off with the zero points.
  const auto as_u8 = static_cast<unsigned char>(flip ^ sign_flip);
  if (p_.group == 0) {
    long_sums(block.first)[at] = kernels_.rows.sum(from, p_.k, as_u8) - p_.k * (128 + zero);
    return;
  }
  kernels_.rows.sum_groups(from, layout_.length, layout_.groups, as_u8,
                           layout_.length * (128 + zero), sums(block) + at,
                           std::int64_t{block.rows} * layout_.halves);
}

template <class C>
void GroupRows::load_scales(std::int64_t row, std::int64_t rows, C* to) const {
  if (!is_dynamic(p_)) return load_row_scales(p_, o_, row, rows, to);
  load_floats(workspace_ + layout_.scales, octavo::compute_type(p_.activation), false, row, rows,
              to);
}
template void GroupRows::load_scales(std::int64_t, std::int64_t, float*) const;
template void GroupRows::load_scales(std::int64_t, std::int64_t, double*) const;

}  // namespace octavo::detail
