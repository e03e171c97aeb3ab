// A linear on a GPU.
#pragma once

#include "cuda/launch.hpp"
#include "ops/linear/cuda/args.hpp"
#include "ops/linear/cuda/weight.hpp"

namespace octavo::cuda {

/// How a plan uses its workspace, in bytes from its start.
struct Places {
  std::int64_t row_stride = 0;  // of rows as they are multiplied
  std::int64_t rows = 0;
  std::int64_t scales = 0;  // of activations that are quantized here
  std::int64_t zero_points = 0;
  std::int64_t row_sums = 0;
  std::int64_t weights = 0;  // those that are packed run by run
  std::int64_t parts = 0;    // sums or values of parts of k
  std::int64_t total = 0;
};

class CudaLinear final : public detail::LinearImpl {
 public:
  explicit CudaLinear(const detail::LinearProblem& problem);
  [[nodiscard]] Status check_values(const detail::LinearOperands& /*operands*/) const override {
    return {};
  }
  [[nodiscard]] Status run(const Stream& on, void* workspace,
                           const detail::LinearOperands& operands) const override;

 private:
  struct Call;
  [[nodiscard]] std::int64_t product_rows_of(std::int64_t rows) const;
  Status bring_rows(const Call& call, ProductArgs& args) const;
  Status bring_weights(const Call& call, WeightParts& weights, WeightFormat& held) const;
  void fill_finish(const Call& call, FinishArgs& to) const;
  Status multiply(const Call& call, const ProductArgs& given) const;
  Status multiply_few(const Call& call, ProductArgs& args) const;
  Status multiply_tiles(const Call& call, const ProductArgs& args) const;
  Status multiply_groups(const Call& call, const ProductArgs& args) const;
  Status multiply_floats(const Call& call, const FinishArgs& finish, const void* weights) const;
  Status finish(const Call& call, const FinishArgs& args, bool values) const;

  const bool wide_;             // sums need more than 32 bits
  const bool f64_;              // the compute type
  const int halves_;            // rows of 16 bits are two
  const bool has_fast_groups_;  // whose products are mma's
  const int segments_;          // of groups and floats
  bool adds_rows_ = false;      // sums of rows are needed
  bool adds_columns_ = false;   // sums of columns are
  int pieces_ = 1;              // of k, whose sums are added in 64 bits, or to fill the machine
  std::int64_t piece_blocks_ = 0;
  Places places_;
};

}  // namespace octavo::cuda
