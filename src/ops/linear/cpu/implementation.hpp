// A linear on the CPU.
#pragma once

#include "core/parallel.hpp"
#include "core/parts.hpp"
#include "ops/linear/cpu/grid.hpp"
#include "ops/linear/cpu/kernels.hpp"
#include "ops/linear/cpu/rows.hpp"
#include "ops/linear/implementation.hpp"

namespace octavo::detail {

class CpuLinear final : public LinearImpl, public LinearStages {
 public:
  CpuLinear(const LinearProblem& problem, const DotKernel& dot, const LinearKernels& kernels,
            int threads);

  [[nodiscard]] Status check_values(const LinearOperands& operands) const override;
  [[nodiscard]] Status run(const Stream& stream, void* workspace,
                           const LinearOperands& operands) const override;

  [[nodiscard]] const LinearStages* stages() const override { return this; }
  [[nodiscard]] Status range(const Stream& stream, const TensorRef& input, const RowRanges& ranges,
                             bool widen) const override;
  [[nodiscard]] Status rows(const Stream& stream, const TensorRef& input, const RowRanges& ranges,
                            const QuantizedRows& to) const override;
  [[nodiscard]] Status dot(const Stream& stream, void* workspace, const LinearOperands& operands,
                           const Sums& sums, bool accumulate) const override;
  [[nodiscard]] Status epilogue(const Stream& stream, const LinearOperands& operands,
                                const Sums& sums) const override;

 private:
  template <class C>
  void multiply(const Stream& stream, void* workspace, const LinearOperands& operands,
                const Rows& activations) const;
  template <class C>
  void finish(const Stream& stream, const LinearOperands& operands, const Sums& sums) const;

  /// Brings the rows into the form of the dot product, in the workspace.
  void prepare(const Stream& stream, const Rows& activations, std::int64_t rows) const;
  /// Calls `multiply` with shares of all rows by all panels, on as many threads as are worth it; it
  /// returns the bits of the targets that ran.
  template <class F>
  void share_products(const Stream& stream, std::int64_t rows, F&& multiply) const;
  [[nodiscard]] int usable_threads(const Stream& stream) const;

  const DotKernel dot_;
  const LinearKernels kernels_;
  const int threads_;  // of the stream that the plan was made on
  const LinearLayout layout_;
  const LinearProblem product_;  // of the dot product alone: its rows are quantized already
  const LinearLayout product_layout_;
};

template <class F>
void CpuLinear::share_products(const Stream& stream, std::int64_t rows, F&& multiply) const {
  const std::int64_t panels = panels_of(problem.n);
  const int parts = parts_of(amount(amount(rows * layout_.halves, problem.k), problem.n),
                             dot_.products_per_thread, usable_threads(stream));
  const Grid grid = share_out(rows, panels, parts, problem.packed_weight);
  parallel(stream, parts_in(grid), [&](int part) {
    const std::uint32_t ran = multiply(share_of(grid, part, rows, panels));
    if (stream.options().trace != nullptr)
      stream.options().trace->fetch_or(ran, std::memory_order_relaxed);
  });
}

}  // namespace octavo::detail
