// The rows of activations, as a dot product reads them.
#pragma once

#include <algorithm>

#include "ops/linear/cpu/kernels.hpp"
#include "ops/linear/cpu/values.hpp"

namespace octavo::detail {

inline std::int64_t bytes_of(Form form) { return form == Form::s16 ? 2 : 1; }

/// How a plan uses its workspace, in bytes from its start.
struct LinearLayout {
  Form form = Form::s8;       // of the dot product
  bool copies_rows = false;   // activations are not read where they are
  bool adds_rows = false;     // sums of rows are needed
  bool adds_columns = false;  // sums of columns are
  int halves = 1;             // rows of 16 bits are two, the upper half first
  std::int64_t row_stride = 0;
  std::int64_t scales = 0;       // of activations that are quantized here
  std::int64_t zero_points = 0;  // likewise
  std::int64_t row_sums = 0;
  std::int64_t lines = 0;  // a row of 16 bits for each thread
  std::int64_t line_bytes = 0;
  std::int64_t ones = 0;   // a row of them, to add up columns with
  std::int64_t packs = 0;  // for each thread: panels, and the sums of their columns
  std::int64_t pack_bytes = 0;
  std::int64_t pack_sums = 0;  // from the start of a pack
  std::int64_t total = 0;

  /// `threads` pack weights, where they are packed run by run, and take rows of 16 bits apart.
  LinearLayout(const LinearProblem& problem, const DotKernel& dot, int threads);
  /// Whether `total` can be counted.
  static bool fits(const LinearProblem& problem, int threads);
};

class Rows {
 public:
  Rows(const LinearProblem& problem, const LinearOperands& operands, const LinearLayout& layout,
       const LinearKernels& kernels, void* workspace);

  /// Whether there is anything to do before rows can be read; rows are independent of each other.
  [[nodiscard]] bool prepares() const;
  /// On thread `part` of the plan's.
  void prepare(std::int64_t first, std::int64_t last, int part) const;

  // Of what follows, rows are halves where there are two.
  [[nodiscard]] const unsigned char* at(std::int64_t row) const {
    return activations_ + row * stride_;
  }
  [[nodiscard]] std::int64_t stride() const { return stride_; }  // bytes
  /// A row of ones, where weights are packed run by run.
  [[nodiscard]] const unsigned char* ones() const { return workspace_ + layout_.ones; }

  /// What is to be subtracted from each value, in the kernel's form; and whether it is the same in
  /// every row.
  [[nodiscard]] std::int64_t zero(std::int64_t row) const;
  [[nodiscard]] bool one_zero() const;
  /// The sum of a row's values, if the layout has them.
  [[nodiscard]] std::int64_t sum(std::int64_t row) const { return row_sums()[row]; }
  template <class C>
  void load_scales(std::int64_t row, std::int64_t rows, C* to) const;

 private:
  [[nodiscard]] bool needs_ones() const { return layout_.adds_columns && !p_.packed_weight; }
  void fill_ones() const;
  void prepare_row(std::int64_t row, unsigned char* line) const;
  void bring(std::int64_t row, const unsigned char* from, bool is_signed) const;
  void quantize_row(std::int64_t row, const unsigned char* from, unsigned char* to) const;
  [[nodiscard]] std::int32_t* zero_points() const {
    return reinterpret_cast<std::int32_t*>(workspace_ + layout_.zero_points);
  }
  [[nodiscard]] std::int64_t* row_sums() const {
    return reinterpret_cast<std::int64_t*>(workspace_ + layout_.row_sums);
  }

  const LinearProblem& p_;
  const LinearOperands& o_;
  const LinearLayout& layout_;
  const LinearKernels& kernels_;
  bool dynamic_;  // quantized here
  unsigned char* workspace_;
  std::int32_t shift_;
  const unsigned char* activations_ = nullptr;
  std::int64_t stride_ = 0;
  std::int64_t input_stride_ = 0;  // in elements
};

/// The scales of activations that are given, from `row` on.
template <class C>
void load_row_scales(const LinearProblem& p, const LinearOperands& o, std::int64_t row,
                     std::int64_t rows, C* to) {
  if (o.activation_scales != nullptr) {
    const TensorRef& given = *o.activation_scales;
    load_floats(given.data, given.dtype, is_single(given), row, rows, to);
  } else {
    std::fill_n(to, rows, static_cast<C>(p.act_scale));
  }
}

}  // namespace octavo::detail
