// A linear of floats on the CPU.
#pragma once

#include "numerics/segments.hpp"
#include "ops/linear/cpu/finish.hpp"
#include "ops/linear/cpu/grid.hpp"
#include "ops/linear/implementation.hpp"

namespace octavo::detail {

class CpuFloatLinear final : public LinearImpl {
 public:
  CpuFloatLinear(const LinearProblem& problem, const LinearKernels& kernels, Target target,
                 int threads);

  [[nodiscard]] Status check_values(const LinearOperands& /*operands*/) const override {
    return {};
  }
  [[nodiscard]] Status run(const Stream& stream, void* workspace,
                           const LinearOperands& operands) const override;

 private:
  /// Rows `first` to `last` - 1, of [k][rows] floats each.
  struct Block {
    std::int64_t first = 0;
    int rows = 0;
    const float* values = nullptr;
  };
  /// The blocks of a run.
  struct Blocks {
    std::int64_t rows = 0;
    std::int64_t count = 0;
    const float* values = nullptr;
    std::int64_t k = 0;
    [[nodiscard]] Block operator[](std::int64_t i) const;
  };

  void bring(const TensorRef& input, const Block& block, float* to) const;
  void multiply_share(const Share& share, const LinearOperands& operands, const Blocks& blocks,
                      const Finish<float>& finish, unsigned char* own) const;
  /// Leaves the sums of some blocks in the first of `levels`.
  void multiply(const Blocks& blocks, std::int64_t first, std::int64_t last,
                const std::byte* const (&weights)[2], float* levels) const;
  void find_weights(const LinearOperands& operands, std::int64_t pair, unsigned char* own,
                    const std::byte* (&weights)[2]) const;

  const LinearKernels kernels_;
  const Target target_;
  const int threads_;  // of the stream that the plan was made on
  const int segments_;
  const std::int64_t panel_bytes_;
  // In the workspace: rows, and for each thread sums and, of weights that are not packed, two
  // panels.
  std::int64_t threads_at_ = 0;
  std::int64_t thread_bytes_ = 0;
  std::int64_t panels_at_ = 0;
};

}  // namespace octavo::detail
