// A checked call, carried out in two steps, each shared out among the threads: rows of activations
// are quantized, or brought into the form the dot product wants; then each thread multiplies all
// rows by panels of its own (or, if there are few panels, rows of its own by all panels), and
// finishes each block of sums while it is in the caches.
#include "ops/linear/cpu/finish.hpp"
#include "ops/linear/cpu/implementation.hpp"
#include "ops/linear/cpu/products.hpp"

namespace octavo::detail {

Status CpuLinear::check_values(const LinearOperands& o) const {
  return check_linear_values(problem, kernels_.scan, o);
}

Status CpuLinear::run(const Stream& stream, void* workspace, const LinearOperands& o) const {
  if (Status s = check_linear_values(problem, kernels_.scan, o); !s) return s;
  const std::int64_t rows = o.input->shape[0];
  if (rows == 0 || problem.n == 0) return {};
  const Rows activations(problem, o, layout_, kernels_, workspace);
  prepare(stream, activations, rows);
  if (compute_type(problem) == DType::f64) {
    multiply<double>(stream, workspace, o, activations);
  } else {
    multiply<float>(stream, workspace, o, activations);
  }
  return {};
}

// (Only where weights are packed run by run, or rows taken apart, has each thread a place in the
// workspace.)
int CpuLinear::usable_threads(const Stream& stream) const {
  return problem.packed_weight && layout_.halves == 1 ? stream.threads()
                                                      : std::min(threads_, stream.threads());
}

void CpuLinear::prepare(const Stream& stream, const Rows& activations, std::int64_t rows) const {
  if (!activations.prepares()) return;
  constexpr std::int64_t products_per_element = 16;  // what preparing one takes as long as
  const int parts =
      parts_of(amount(amount(rows, problem.k), products_per_element), dot_.products_per_thread,
               std::min<std::int64_t>(rows, usable_threads(stream)));
  parallel(stream, parts, [&](int part) {
    activations.prepare(rows * part / parts, rows * (part + 1) / parts, part);
  });
}

template <class C>
void CpuLinear::multiply(const Stream& stream, void* workspace, const LinearOperands& o,
                         const Rows& activations) const {
  const Products products(problem, o, layout_, dot_, activations, workspace);
  const Finish<C> finish(problem, o, kernels_);
  share_products(stream, o.input->shape[0], [&](const Share& share) {
    alignas(64) ColumnTerms terms;
    alignas(64) ColumnScales<C> scales;
    const auto begin = [&](const Group& group) {
      products.gather(group, terms);
      finish.gather(group.column, group.columns, scales);
    };
    // Sums modulo 2^32, which is what the true ones fit.
    const auto narrow = [&](const Group& group, std::int64_t row, std::int64_t rows) {
      alignas(64) std::int32_t sums[block_rows * group_columns];
      C row_scale[block_rows];
      RowTerms row_terms;
      const int halves = layout_.halves;
      const std::uint32_t ran = products.multiply(group, row * halves, rows * halves, sums);
      EpilogueCall<C> call;
      call.rows = rows;
      call.columns = group.columns;
      call.halves = halves;
      call.sums = sums;
      products.take_off(call, terms, row * halves, rows * halves, row_terms);
      if (!finish.is_raw()) activations.load_scales(row, rows, row_scale);
      call.row_scale = row_scale;
      finish(call, scales, row, group.column);
      return ran;
    };
    const auto wide = [&](const Group& group, std::int64_t row, std::int64_t rows) {
      std::int64_t sums[wide_rows * group_columns];
      C row_scale[wide_rows];
      const int halves = layout_.halves;
      const std::uint32_t ran =
          products.multiply_wide(group, terms, row * halves, rows * halves, sums);
      if (halves == 2) join_halves(sums, rows);
      activations.load_scales(row, rows, row_scale);
      finish.wide(sums, row_scale, scales, row, rows, group.column, group.columns);
      return ran;
    };
    return products.is_wide_sum() ? products.for_each_block(share, begin, wide)
                                  : products.for_each_block(share, begin, narrow);
  });
}

}  // namespace octavo::detail
