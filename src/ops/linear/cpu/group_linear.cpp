// A checked call with weights in groups, or of four bits: rows are quantized and brought into
// blocks, and then each thread multiplies blocks by panels of its own. A panel is read once for
// each block, from the caches; nibbles are taken apart on the way, which costs next to nothing
// beside the products and less than to write them down, unless the kernel wants them so.
#include "ops/linear/cpu/group_linear.hpp"

#include <algorithm>
#include <cstring>

#include "core/parallel.hpp"
#include "core/parts.hpp"
#include "numerics/segments.hpp"
#include "ops/linear/cpu/grid.hpp"
#include "ops/linear/cpu/pack.hpp"

namespace octavo::detail {
namespace {

// Below this many products per thread, waking another one costs more than it saves.
constexpr std::int64_t products_per_thread = std::int64_t{1} << 20;
// Beyond 32 bits, k is cut in pieces whose sums fit, u8 by s8, of whole
// runs.
std::int64_t piece_steps(const GroupRows& rows) {
  return (std::int64_t{1} << 15) / rows.run() * (rows.run() / step_k);
}

std::uint32_t bit(Target target) { return 1U << static_cast<unsigned>(target); }

WeightFormat format_of(const LinearProblem& p) {
  // (Rows that are packed here are packed with their scales as they come, rounded.)
  const DType scales = p.packed_weight ? p.weight_scale : compute_type(p);
  return host_format(p.weight, p.group, p.group != 0 && p.weight_zero_points, scales);
}

}  // namespace

struct CpuGroupLinear::Pair {
  std::int64_t column = 0;
  std::int64_t columns = 0;
  int panels = 0;
  const GroupPanel* panel = nullptr;  // how they lie there
  const unsigned char* weights[2] = {};
  const unsigned char* zero_points[2] = {};  // null where there are none
  std::int32_t* column_sums[2] = {};         // [groups][32] of codes, where they are needed
  // Of codes with one scale per channel: what is subtracted from each, and their sums.
  std::int64_t zero[group_columns];
  const std::int64_t* sums[2] = {};
};

CpuGroupLinear::CpuGroupLinear(const LinearProblem& p, const GroupKernel& kernel,
                               const LinearKernels& kernels, int threads)
    : LinearImpl(p, format_of(p)),
      kernel_(kernel),
      kernels_(kernels),
      threads_(GroupLayout::fits(p, format, threads) ? threads : 1),
      panel_(p.k, format),
      widened_(p.k, widened_format(format)),
      layout_(p, format, kernel, threads_),
      segments_(numerics::segments_of(p.k)),
      wide_(p.group == 0 ? is_wide(p) : has_wide_groups(p)),
      long_(p.group > max_narrow_k(p)) {
  for (int j = 0; j < segments_; ++j)
    segment_[j] = {numerics::segment_begin(panel_.groups, segments_, j + 1),
                   numerics::merges_after(j)};
  workspace_bytes = threads_ < threads ? SIZE_MAX : static_cast<std::size_t>(layout_.total);
}

Status CpuGroupLinear::check_values(const LinearOperands& o) const {
  return check_linear_values(problem, kernels_.scan, o);
}

Status CpuGroupLinear::run(const Stream& stream, void* workspace, const LinearOperands& o) const {
  if (Status s = check_linear_values(problem, kernels_.scan, o); !s) return s;
  if (o.input->shape[0] == 0 || problem.n == 0) return {};
  const GroupRows rows(problem, o, layout_, kernels_, workspace);
  prepare(stream, rows);
  if (compute_type(problem) == DType::f64) {
    multiply<double>(stream, workspace, o, rows);
  } else {
    multiply<float>(stream, workspace, o, rows);
  }
  return {};
}

void CpuGroupLinear::prepare(const Stream& stream, const GroupRows& rows) const {
  constexpr std::int64_t products_per_element = 16;  // what preparing one takes as long as
  rows.fill_ones();
  const std::int64_t blocks = rows.blocks();
  const int parts = parts_of(amount(amount(blocks, rows.tile() * problem.k), products_per_element),
                             products_per_thread,
                             std::min<std::int64_t>(blocks, std::min(threads_, stream.threads())));
  parallel(stream, parts, [&](int part) {
    for (std::int64_t b = blocks * part / parts; b < blocks * (part + 1) / parts; ++b)
      rows.prepare(rows.block(b), part);
  });
}

void CpuGroupLinear::find_weights(const LinearOperands& o, const GroupRows& rows,
                                  unsigned char* own, Pair& pair) const {
  const std::int64_t first = pair.column / wide_columns;
  for (int i = 0; i < pair.panels; ++i) {
    const std::byte* panel = nullptr;
    if (problem.packed_weight) {
      panel = host_weight(o.weight->packed).panel(first + i, panel_.bytes);
    } else {
      WeightRows plain = rows_of(o.weight->tensor, problem.n, problem.k, false);
      if (problem.group != 0) {
        plain.scales = o.weight_scales->data;
        plain.scale_type = o.weight_scales->dtype;
        if (plain.scale_type != format.scales)
          plain.convert = kernels_.conversion(plain.scale_type, format.scales);
        if (problem.weight_zero_points)
          plain.zero_points = static_cast<const std::int32_t*>(o.weight_zero_points->data);
      }
      auto* to = reinterpret_cast<std::byte*>(own + i * panel_.bytes);
      pack_group_panel(plain, format, first + i, to);
      panel = to;
    }
    pair.weights[i] = reinterpret_cast<const unsigned char*>(panel);
    if (format.zero_points) pair.zero_points[i] = pair.weights[i] + panel_.zero_points;
    pair.sums[i] = reinterpret_cast<const std::int64_t*>(panel + panel_.sums);
    pair.column_sums[i] = reinterpret_cast<std::int32_t*>(own + layout_.column_sums) +
                          i * panel_.groups * wide_columns;
  }
  pair.panel = &panel_;
  if (panel_.nibbles && kernel_.widen != nullptr && !rows.are_few())
    widen(own + layout_.widened, pair);
}

// Scales and codes, once for all rows: what else there is stays where it is.
void CpuGroupLinear::widen(unsigned char* to, Pair& pair) const {
  for (int i = 0; i < pair.panels; ++i, to += widened_.bytes) {
    for (std::int64_t g = 0; g < panel_.groups; ++g) {
      const unsigned char* from = pair.weights[i] + g * panel_.group_bytes;
      unsigned char* group = to + g * widened_.group_bytes;
      if (panel_.scale_bytes != 0)
        std::memcpy(group, from, static_cast<std::size_t>(panel_.scale_bytes));
      kernel_.widen(from + panel_.scale_bytes, panel_.steps, group + widened_.scale_bytes);
    }
    pair.weights[i] = to;
  }
  pair.panel = &widened_;
}

void CpuGroupLinear::add_columns(const GroupRows& rows, Pair& pair) const {
  GroupSumsCall call;
  call.activations = rows.ones();
  call.rows = 1;
  call.steps = panel_.steps;
  for (int i = 0; i < pair.panels; ++i)
    for (std::int64_t g = 0; g < panel_.groups; ++g) {
      call.codes[0] = pair.weights[i] + g * pair.panel->group_bytes + panel_.scale_bytes;
      call.sums = pair.column_sums[i] + g * wide_columns;
      kernel_.sums(call, pair.panel->nibbles);
    }
}

void CpuGroupLinear::gather_zeros(const LinearOperands& o, Pair& pair) const {
  const std::int32_t offset = offset_of(problem.weight);
  std::fill_n(pair.zero, group_columns, offset);
  if (!problem.weight_zero_points) return;
  const TensorRef& zeros = *o.weight_zero_points;
  const auto* values = static_cast<const std::int32_t*>(zeros.data);
  const bool single = is_single(zeros);
  for (std::int64_t c = 0; c < pair.columns; ++c)
    pair.zero[c] += values[single ? 0 : pair.column + c];
}

template <class C>
void CpuGroupLinear::multiply(const Stream& stream, void* workspace, const LinearOperands& o,
                              const GroupRows& rows) const {
  const Finish<C> finish(problem, o, kernels_);
  const std::int64_t blocks = rows.blocks();
  const std::int64_t pairs = (problem.n + group_columns - 1) / group_columns;
  const int parts =
      parts_of(amount(amount(o.input->shape[0] * layout_.halves, problem.k), problem.n),
               products_per_thread, std::min(threads_, stream.threads()));
  const Grid grid = share_out(blocks, pairs, parts, problem.packed_weight, rows.tile());
  parallel(stream, parts_in(grid), [&](int part) {
    const Share share = share_of(grid, part, blocks, pairs);
    unsigned char* own =
        static_cast<unsigned char*>(workspace) + layout_.packs + part * layout_.pack_bytes;
    std::uint32_t ran = 0;
    alignas(64) ColumnScales<C> scales;
    alignas(64) Pair pair;
    for (std::int64_t i = share.first_panel; i < share.last_panel; ++i) {
      pair.column = i * group_columns;
      pair.columns = std::min(group_columns, problem.n - pair.column);
      pair.panels = pair.columns > wide_columns ? 2 : 1;
      find_weights(o, rows, own, pair);
      finish.gather(pair.column, pair.columns, scales);
      if (problem.group == 0) {
        gather_zeros(o, pair);
        for (std::int64_t b = share.first_row; b < share.last_row; ++b)
          ran |= finish_channels(rows, rows.block(b), pair, finish, scales);
        continue;
      }
      if (layout_.adds_columns) add_columns(rows, pair);
      for (std::int64_t b = share.first_row; b < share.last_row; ++b) {
        const RowBlock block = rows.block(b);
        alignas(64) C values[max_tile_rows * group_columns];
        if constexpr (sizeof(C) == 4) {
          ran |= wide_ ? multiply_in_turn(rows, block, pair, values)
                       : multiply_groups(rows, block, pair, values);
        } else {
          ran |= multiply_in_turn(rows, block, pair, values);
        }
        C row_scale[max_tile_rows];
        rows.load_scales(block.first, block.rows, row_scale);
        EpilogueCall<C> call;
        call.rows = block.rows;
        call.columns = pair.columns;
        call.values = values;
        call.row_scale = row_scale;
        finish(call, scales, block.first, pair.column);
      }
    }
    if (kernel_.end != nullptr) kernel_.end();
    if (stream.options().trace != nullptr)
      stream.options().trace->fetch_or(ran, std::memory_order_relaxed);
  });
}

std::uint32_t CpuGroupLinear::multiply_groups(const GroupRows& rows, const RowBlock& block,
                                              const Pair& pair, float* values) const {
  GroupCall call;
  call.activations = rows.at(block);
  call.run = rows.run();
  call.row_sums = rows.sums(block);
  call.row_zeros = rows.zeros(block.first);
  call.rows = block.rows;
  call.parts = layout_.halves;
  call.zero = offset_of(problem.weight);
  call.scale_type = format.scales;
  call.steps = panel_.steps;
  call.segments = segments_;
  call.segment = segment_;
  call.panels = pair.panels;
  for (int i = 0; i < pair.panels; ++i) {
    call.weights[i] = pair.weights[i];
    call.zero_points[i] = pair.zero_points[i];
    call.column_sums[i] = pair.column_sums[i];
  }
  call.values = values;
  if (pair.panels == 1)
    for (int r = 0; r < block.rows; ++r)
      std::fill_n(values + r * group_columns + wide_columns, wide_columns, 0.0F);
  return bit(kernel_.run(call, pair.panel->nibbles));
}

// What a group adds to values, as kernels take it; past the last column are zeros.
template <class C>
struct CpuGroupLinear::Terms {
  alignas(64) C scales[group_columns] = {};
  alignas(64) std::int32_t zeros[group_columns] = {};
  alignas(64) std::int32_t column_sums[group_columns] = {};
  alignas(64) std::int32_t sums[max_tile_rows * group_columns];
  EpilogueCall<C> call;
};

// The same in C, group after group: products, and what they add to the segment.
template <class C>
std::uint32_t CpuGroupLinear::multiply_in_turn(const GroupRows& rows, const RowBlock& block,
                                               const Pair& pair, C* values) const {
  constexpr std::int64_t most = max_tile_rows * group_columns;
  const std::int64_t count = block.rows * group_columns;
  const ConvertFunction convert = kernels_.conversion(format.scales, dtype_of<C>);
  alignas(64) C pending[3][most];
  Terms<C> terms;
  prepare_terms(rows, block, pair, terms);
  terms.call.output = values;
  std::uint32_t ran = 0;
  int levels = 0;
  std::int64_t g = 0;
  for (int j = 0;;) {
    std::fill_n(values, count, C(0));
    for (; g < segment_[j].end; ++g) {
      for (int i = 0; i < pair.panels; ++i)
        convert(pair.weights[i] + g * pair.panel->group_bytes, wide_columns,
                terms.scales + i * wide_columns);
      ran |= long_ ? add_group_exactly(rows, block, pair, g, terms.scales, values)
                   : add_group(rows, block, pair, g, terms);
    }
    for (int merge = segment_[j].merges; merge > 0; --merge) {
      --levels;
      for (std::int64_t at = 0; at < count; ++at) values[at] = pending[levels][at] + values[at];
    }
    if (++j == segments_) return ran;
    std::copy_n(values, count, pending[levels++]);
  }
}

template <class C>
void CpuGroupLinear::prepare_terms(const GroupRows& rows, const RowBlock& block, const Pair& pair,
                                   Terms<C>& terms) const {
  EpilogueCall<C>& call = terms.call;
  call.rows = block.rows;
  call.columns = pair.panels * wide_columns;
  call.halves = layout_.halves;
  call.sums = terms.sums;
  if (pair.panels == 1)
    for (int r = 0; r < block.rows * layout_.halves; ++r)
      std::fill_n(terms.sums + r * group_columns + wide_columns, wide_columns, 0);
  const std::int32_t offset = offset_of(problem.weight);
  if (!format.zero_points) std::fill_n(terms.zeros, group_columns, offset);
  if (format.zero_points || offset != 0) call.weight_zero = terms.zeros;
  if (layout_.adds_columns) {
    call.column_sum = terms.column_sums;
    call.row_zero = rows.zeros(block.first);
  }
  call.column_scale = terms.scales;
}

GroupSumsCall CpuGroupLinear::products_of(const GroupRows& rows, const RowBlock& block,
                                          const Pair& pair, std::int64_t g) const {
  GroupSumsCall call;
  call.activations = rows.at(block) + g * panel_.steps * step_k * block.rows * layout_.halves;
  call.run = rows.run();
  call.rows = block.rows;
  call.parts = layout_.halves;
  call.panels = pair.panels;
  for (int i = 0; i < pair.panels; ++i)
    call.codes[i] = pair.weights[i] + g * pair.panel->group_bytes + panel_.scale_bytes;
  call.steps = panel_.steps;
  return call;
}

// Sums fit 32 bits, of each half where there are two.
template <class C>
std::uint32_t CpuGroupLinear::add_group(const GroupRows& rows, const RowBlock& block,
                                        const Pair& pair, std::int64_t g, Terms<C>& terms) const {
  GroupSumsCall products = products_of(rows, block, pair, g);
  products.sums = terms.sums;
  const std::uint32_t ran = bit(kernel_.sums(products, pair.panel->nibbles));
  terms.call.row_term = rows.sums(block) + g * block.rows * layout_.halves;
  for (int i = 0; i < pair.panels; ++i) {
    const std::int64_t to = i * wide_columns;
    if (format.zero_points)
      std::copy_n(pair.zero_points[i] + g * wide_columns, wide_columns, terms.zeros + to);
    if (layout_.adds_columns)
      std::copy_n(pair.column_sums[i] + g * wide_columns, wide_columns, terms.column_sums + to);
  }
  kernels_.terms<C>()(terms.call);
  return ran;
}

// Sums that do not: in pieces and in 64 bits. (Beside the products of so long a group all else is
// little.)
template <class C>
std::uint32_t CpuGroupLinear::add_group_exactly(const GroupRows& rows, const RowBlock& block,
                                                const Pair& pair, std::int64_t g, const C* scales,
                                                C* values) const {
  std::uint32_t ran = 0;
  const int halves = layout_.halves;
  const std::int64_t columns = pair.panels * wide_columns;
  const auto weight_of = [&](int h) { return halves == 2 && h == 0 ? 256 : 1; };
  std::int64_t sums[max_tile_rows * group_columns] = {};
  const std::int64_t piece = piece_steps(rows);
  GroupSumsCall call = products_of(rows, block, pair, g);
  for (std::int64_t left = panel_.steps; left > 0; left -= piece) {
    alignas(64) std::int32_t found[max_tile_rows * group_columns];
    call.steps = std::min(piece, left);
    call.sums = found;
    ran |= bit(kernel_.sums(call, pair.panel->nibbles));
    for (int r = 0; r < block.rows; ++r)
      for (int h = 0; h < halves; ++h)
        for (std::int64_t c = 0; c < columns; ++c)
          sums[r * group_columns + c] +=
              std::int64_t{found[(r * halves + h) * group_columns + c]} * weight_of(h);
    call.activations += piece * step_k * block.rows * halves;
    for (int i = 0; i < pair.panels; ++i) call.codes[i] += piece * pair.panel->code_bytes;
  }
  for (int r = 0; r < block.rows; ++r) {
    const std::int32_t* row_sums = rows.sums(block) + (g * block.rows + r) * halves;
    std::int64_t sum = 0;
    for (int h = 0; h < halves; ++h) sum += std::int64_t{row_sums[h]} * weight_of(h);
    const std::int64_t row_zero = layout_.adds_columns ? *rows.zeros(block.first + r) : 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t panel = c / wide_columns;
      const std::int64_t at = g * wide_columns + c % wide_columns;
      std::int64_t zero = offset_of(problem.weight);
      if (format.zero_points) zero = pair.zero_points[panel][at];
      std::int64_t d = sums[r * group_columns + c] - zero * sum;
      if (row_zero != 0) d -= row_zero * pair.column_sums[panel][at];
      C& y = values[r * group_columns + c];
      y = std::fma(static_cast<C>(d), scales[c], y);
    }
  }
  return ran;
}

std::uint32_t CpuGroupLinear::add_products(const GroupRows& rows, const RowBlock& block,
                                           const Pair& pair, std::int32_t* sums) const {
  GroupSumsCall call;
  call.activations = rows.at(block);
  call.run = rows.run();
  call.rows = block.rows;
  call.parts = layout_.halves;
  call.steps = panel_.steps;
  call.panels = pair.panels;
  for (int i = 0; i < pair.panels; ++i) call.codes[i] = pair.weights[i];
  call.sums = sums;
  if (pair.panels == 1)
    for (int r = 0; r < block.rows * layout_.halves; ++r)
      std::fill_n(sums + r * group_columns + wide_columns, wide_columns, 0);
  return bit(kernel_.sums(call, pair.panel->nibbles));
}

// In pieces, all taken off, halves put together.
std::uint32_t CpuGroupLinear::add_products_exactly(const GroupRows& rows, const RowBlock& block,
                                                   const Pair& pair, std::int64_t* sums) const {
  std::uint32_t ran = 0;
  const int halves = layout_.halves;
  std::fill_n(sums, block.rows * group_columns, 0);
  const auto weight_of = [&](int h) { return halves == 2 && h == 0 ? 256 : 1; };
  const std::int64_t piece = piece_steps(rows);
  for (std::int64_t done = 0; done < panel_.steps; done += piece) {
    alignas(64) std::int32_t found[max_tile_rows * group_columns];
    GroupSumsCall call;
    call.activations = rows.at(block) + done * step_k * block.rows * halves;
    call.run = rows.run();
    call.rows = block.rows;
    call.parts = halves;
    call.steps = std::min(piece, panel_.steps - done);
    call.panels = pair.panels;
    for (int i = 0; i < pair.panels; ++i)
      call.codes[i] = pair.weights[i] + done * pair.panel->code_bytes;
    call.sums = found;
    ran |= bit(kernel_.sums(call, pair.panel->nibbles));
    for (int r = 0; r < block.rows; ++r)
      for (int h = 0; h < halves; ++h)
        for (std::int64_t c = 0; c < pair.columns; ++c)
          sums[r * group_columns + c] +=
              std::int64_t{found[(r * halves + h) * group_columns + c]} * weight_of(h);
  }
  for (int r = 0; r < block.rows; ++r) {
    std::int64_t term = 0;
    for (int h = 0; h < halves; ++h) term += rows.long_sums(block.first + r)[h] * weight_of(h);
    const std::int64_t zero = layout_.adds_columns ? *rows.zeros(block.first + r) : 0;
    for (std::int64_t c = 0; c < pair.columns; ++c)
      sums[r * group_columns + c] -=
          pair.zero[c] * term + zero * pair.sums[c / wide_columns][c % wide_columns];
  }
  return ran;
}

template <class C>
std::uint32_t CpuGroupLinear::finish_channels(const GroupRows& rows, const RowBlock& block,
                                              const Pair& pair, const Finish<C>& finish,
                                              const ColumnScales<C>& scales) const {
  C row_scale[max_tile_rows];
  if (!finish.is_raw()) rows.load_scales(block.first, block.rows, row_scale);
  if (wide_) {
    std::int64_t sums[max_tile_rows * group_columns];
    const std::uint32_t ran = add_products_exactly(rows, block, pair, sums);
    finish.wide(sums, row_scale, scales, block.first, block.rows, pair.column, pair.columns);
    return ran;
  }
  alignas(64) std::int32_t sums[max_tile_rows * group_columns];
  std::int32_t weight_zero[group_columns];
  std::int32_t column_sum[group_columns] = {};
  std::int32_t row_term[max_tile_rows];
  const std::uint32_t ran = add_products(rows, block, pair, sums);
  for (std::int64_t c = 0; c < group_columns; ++c)
    weight_zero[c] = static_cast<std::int32_t>(pair.zero[c]);
  for (int r = 0; r < block.rows * layout_.halves; ++r)
    row_term[r] =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(rows.long_sums(block.first)[r]));
  EpilogueCall<C> call;
  call.rows = block.rows;
  call.columns = pair.columns;
  call.halves = layout_.halves;
  call.sums = sums;
  call.weight_zero = weight_zero;
  call.row_term = row_term;
  if (layout_.adds_columns) {
    for (std::int64_t c = 0; c < pair.columns; ++c)
      column_sum[c] = static_cast<std::int32_t>(
          static_cast<std::uint32_t>(pair.sums[c / wide_columns][c % wide_columns]));
    call.column_sum = column_sum;
    call.row_zero = rows.zeros(block.first);
  }
  call.row_scale = row_scale;
  finish(call, scales, block.first, pair.column);
  return ran;
}

}  // namespace octavo::detail
