// The steps of a linear, one at a time. What is between them lies in memory, so they are slower
// than a run, which finishes blocks of sums while they are in the caches.
#include <cstring>

#include "numerics/dynamic_range.hpp"
#include "ops/linear/cpu/finish.hpp"
#include "ops/linear/cpu/implementation.hpp"
#include "ops/linear/cpu/products.hpp"

namespace octavo::detail {
namespace {

// Below so many elements per thread, waking another one costs more than it saves.
constexpr std::int64_t elements_per_part = std::int64_t{1} << 16;

// Calls fn(first, last) for shares of the rows.
template <class F>
void share_rows(const Stream& stream, std::int64_t rows, std::int64_t columns, F&& fn) {
  const int parts = parts_of(amount(rows, columns), elements_per_part,
                             std::min<std::int64_t>(rows, stream.threads()));
  parallel(stream, parts, [&](int part) { fn(rows * part / parts, rows * (part + 1) / parts); });
}

unsigned char* advanced(void* p, std::int64_t bytes) {
  return p == nullptr ? nullptr : static_cast<unsigned char*>(p) + bytes;
}

// Rows `first` to `last` of `input`, with a parameter for each.
KernelCall call_of(const LinearProblem& p, const TensorRef& input, std::int64_t first,
                   std::int64_t last) {
  KernelCall call;
  call.input = input.data;
  call.input_step = p.k == 0 ? 0 : input.strides[0];  // (of no bytes, it may lie at null)
  call.input_at = first * call.input_step;
  call.count = last - first;
  call.length = p.k;
  call.param_step = 1;
  call.range = code_range(p);
  call.profile = p.profile;
  call.symmetric = is_symmetric(p);
  return call;
}

template <class C>
void find_parameters(const LinearProblem& p, const RowRanges& ranges, std::int64_t first,
                     std::int64_t last, const QuantizedRows& to) {
  const bool symmetric = is_symmetric(p);
  for (std::int64_t row = first; row < last; ++row) {
    numerics::Range<C> range;
    range.high = static_cast<const C*>(ranges.high)[row];
    if (!symmetric) range.low = static_cast<const C*>(ranges.low)[row];
    const auto [scale, zero_point] = numerics::range_parameters(range, symmetric, code_range(p));
    static_cast<C*>(to.scales)[row] = scale;
    if (!symmetric) to.zero_points[row] = zero_point;
  }
}

// A block of sums, group_columns apart, to where they are kept.
template <class To, class From>
void deliver(const From* block, To* to, std::int64_t stride, std::int64_t rows,
             std::int64_t columns, bool accumulate) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      To& sum = to[r * stride + c];
      const auto found = static_cast<std::uint64_t>(std::int64_t{block[r * group_columns + c]});
      const auto before = static_cast<std::uint64_t>(std::int64_t{accumulate ? sum : 0});
      sum = static_cast<To>(before + found);  // modulo 2^32 or 2^64
    }
}
template <class From>
void deliver(const From* block, const Sums& to, std::int64_t row, std::int64_t rows,
             std::int64_t column, std::int64_t columns, bool accumulate) {
  const std::int64_t at = row * to.stride + column;
  if (to.bits == 64) {
    deliver(block, static_cast<std::int64_t*>(to.data) + at, to.stride, rows, columns, accumulate);
  } else {
    deliver(block, static_cast<std::int32_t*>(to.data) + at, to.stride, rows, columns, accumulate);
  }
}

// And back. Past the last column: 0.
template <class To, class From>
void fetch(const From* from, std::int64_t stride, std::int64_t rows, std::int64_t columns, To* to) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < group_columns; ++c)
      to[r * group_columns + c] = c < columns ? static_cast<To>(from[r * stride + c]) : To{0};
}
template <class To>
void fetch(const Sums& from, std::int64_t row, std::int64_t rows, std::int64_t column,
           std::int64_t columns, To* to) {
  const std::int64_t at = row * from.stride + column;
  if (from.bits == 64) {
    fetch(static_cast<const std::int64_t*>(from.data) + at, from.stride, rows, columns, to);
  } else {
    fetch(static_cast<const std::int32_t*>(from.data) + at, from.stride, rows, columns, to);
  }
}

}  // namespace

Status CpuLinear::range(const Stream& stream, const TensorRef& input, const RowRanges& ranges,
                        bool widen) const {
  const std::int64_t bytes = bits(octavo::compute_type(problem.activation)) / 8;
  share_rows(stream, input.shape[0], problem.k, [&](std::int64_t first, std::int64_t last) {
    KernelCall call = call_of(problem, input, first, last);
    call.low = advanced(ranges.low, first * bytes);
    call.high = advanced(ranges.high, first * bytes);
    for (void* extremes : {call.low, call.high})
      if (!widen && extremes != nullptr)
        std::memset(extremes, 0, static_cast<std::size_t>((last - first) * bytes));
    kernels_.range(call);
  });
  return {};
}

Status CpuLinear::rows(const Stream& stream, const TensorRef& input, const RowRanges& ranges,
                       const QuantizedRows& to) const {
  const DType compute = octavo::compute_type(problem.activation);
  share_rows(stream, input.shape[0], problem.k, [&](std::int64_t first, std::int64_t last) {
    if (compute == DType::f64) {
      find_parameters<double>(problem, ranges, first, last, to);
    } else {
      find_parameters<float>(problem, ranges, first, last, to);
    }
    KernelCall call = call_of(problem, input, first, last);
    call.output = to.values.data;
    call.output_step = problem.k == 0 ? 0 : to.values.strides[0];
    call.output_at = first * call.output_step;
    call.scale = advanced(to.scales, first * (bits(compute) / 8));
    if (!is_symmetric(problem)) call.zero_point = to.zero_points + first;
    kernels_.quantize_rows(call);
  });
  return {};
}

Status CpuLinear::dot(const Stream& stream, void* workspace, const LinearOperands& o,
                      const Sums& sums, bool accumulate) const {
  const std::int64_t all_rows = o.input->shape[0];
  if (all_rows == 0 || problem.n == 0) return {};
  const Rows activations(product_, o, product_layout_, kernels_, workspace);
  prepare(stream, activations, all_rows);
  const Products products(product_, o, product_layout_, dot_, activations, workspace);
  share_products(stream, all_rows, [&](const Share& share) {
    alignas(64) ColumnTerms terms;
    const auto begin = [&](const Group& group) { products.gather(group, terms); };
    const auto narrow = [&](const Group& group, std::int64_t row, std::int64_t rows) {
      alignas(64) std::int32_t found[block_rows * group_columns];
      RowTerms row_terms;
      const int halves = product_layout_.halves;
      const std::uint32_t ran = products.multiply(group, row * halves, rows * halves, found);
      EpilogueCall<float> call;
      call.rows = rows * halves;
      call.columns = group.columns;
      call.sums = found;
      products.take_off(call, terms, row * halves, rows * halves, row_terms);
      call.output = found;
      call.output_stride = group_columns;
      kernels_.sums(call);
      if (halves == 1) {
        deliver(found, sums, row, rows, group.column, group.columns, accumulate);
      } else {
        std::int64_t joined[block_rows * group_columns];
        std::copy_n(found, rows * halves * group_columns, joined);
        join_halves(joined, rows);
        deliver(joined, sums, row, rows, group.column, group.columns, accumulate);
      }
      return ran;
    };
    const auto wide = [&](const Group& group, std::int64_t row, std::int64_t rows) {
      std::int64_t found[wide_rows * group_columns];
      const int halves = product_layout_.halves;
      const std::uint32_t ran =
          products.multiply_wide(group, terms, row * halves, rows * halves, found);
      if (halves == 2) join_halves(found, rows);
      deliver(found, sums, row, rows, group.column, group.columns, accumulate);
      return ran;
    };
    return products.is_wide_sum() ? products.for_each_block(share, begin, wide)
                                  : products.for_each_block(share, begin, narrow);
  });
  return {};
}

Status CpuLinear::epilogue(const Stream& stream, const LinearOperands& o, const Sums& sums) const {
  if (o.output->shape[0] == 0 || problem.n == 0) return {};
  if (compute_type(problem) == DType::f64) {
    finish<double>(stream, o, sums);
  } else {
    finish<float>(stream, o, sums);
  }
  return {};
}

template <class C>
void CpuLinear::finish(const Stream& stream, const LinearOperands& o, const Sums& sums) const {
  const Finish<C> finish(problem, o, kernels_);
  const bool wide = sums.bits == 64 && !finish.is_raw();
  const std::int64_t all_rows = o.output->shape[0];
  const std::int64_t panels = panels_of(problem.n);
  const Grid grid =
      share_out(all_rows, panels,
                parts_of(amount(all_rows, problem.n), elements_per_part, stream.threads()), true);
  parallel(stream, parts_in(grid), [&](int part) {
    const Share share = share_of(grid, part, all_rows, panels);
    const std::int64_t end = std::min(problem.n, share.last_panel * panel_columns);
    for (std::int64_t column = share.first_panel * panel_columns; column < end;
         column += group_columns) {
      const std::int64_t columns = std::min(group_columns, end - column);
      alignas(64) ColumnScales<C> scales;
      finish.gather(column, columns, scales);
      const std::int64_t step = wide ? wide_rows : block_rows;
      for (std::int64_t row = share.first_row; row < share.last_row; row += step) {
        const std::int64_t rows = std::min(step, share.last_row - row);
        C row_scale[block_rows];
        if (!finish.is_raw()) load_row_scales(problem, o, row, rows, row_scale);
        if (wide) {
          std::int64_t block[wide_rows * group_columns];
          fetch(sums, row, rows, column, columns, block);
          finish.wide(block, row_scale, scales, row, rows, column, columns);
          continue;
        }
        alignas(64) std::int32_t block[block_rows * group_columns];
        fetch(sums, row, rows, column, columns, block);
        EpilogueCall<C> call;
        call.rows = rows;
        call.columns = columns;
        call.sums = block;
        call.row_scale = row_scale;
        finish(call, scales, row, column);
      }
    }
  });
}

}  // namespace octavo::detail
