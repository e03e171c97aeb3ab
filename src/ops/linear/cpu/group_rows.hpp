// The rows of activations, as products by weights in groups read them: in blocks of rows, run by
// run of k ([k / run][rows][halves][run], all s8), with the sum of each group.
#pragma once

#include "ops/linear/cpu/group.hpp"
#include "ops/linear/cpu/kernels.hpp"

namespace octavo::detail {

/// How a plan uses its workspace, in bytes from its start.
struct GroupLayout {
  int halves = 1;
  std::int64_t tile = 1;       // rows of a block, at most, where there are few
  std::int64_t many_tile = 1;  // and where there are more
  std::int64_t few = 0;        // up to so many rows, a run is a step
  std::int64_t run = 0;        // beyond: so many k of a row lie together
  std::int64_t length = 0;     // of a group
  std::int64_t groups = 0;     // one, of all k, where there is one scale per channel
  std::int64_t padded = 0;     // k in whole steps
  bool adds_columns = false;   // sums of columns are needed
  std::int64_t row_sums = 0;   // [rows] of [groups][halves], by blocks
  std::int64_t long_sums = 0;  // of a whole row's halves, where there is one scale per channel
  std::int64_t row_zeros = 0;
  std::int64_t scales = 0;       // of activations that are quantized here
  std::int64_t zero_points = 0;  // likewise
  // For each thread: the rows of a block, quantized and in halves, and one before it is in halves.
  std::int64_t lines = 0;
  std::int64_t line_bytes = 0;
  std::int64_t thread_lines = 0;
  std::int64_t ones = 0;  // as long as a group, to add up columns with
  // For each thread: two panels, the same with nibbles taken apart, and the sums of their columns.
  std::int64_t packs = 0;
  std::int64_t pack_bytes = 0;
  std::int64_t widened = 0;  // from the start of a pack
  std::int64_t column_sums = 0;
  std::int64_t total = 0;

  GroupLayout(const LinearProblem& problem, const WeightFormat& format, const GroupKernel& kernel,
              int threads);
  /// Whether `total` can be counted.
  static bool fits(const LinearProblem& problem, const WeightFormat& format, int threads);
};

/// Rows that are multiplied together.
struct RowBlock {
  std::int64_t first = 0;
  int rows = 0;
};

class GroupRows {
 public:
  GroupRows(const LinearProblem& problem, const LinearOperands& operands, const GroupLayout& layout,
            const LinearKernels& kernels, void* workspace);

  [[nodiscard]] std::int64_t blocks() const { return (rows_ + tile() - 1) / tile(); }
  [[nodiscard]] std::int64_t tile() const { return are_few() ? layout_.tile : layout_.many_tile; }
  [[nodiscard]] RowBlock block(std::int64_t i) const {
    const std::int64_t first = rows_ * i / blocks();
    return {first, static_cast<int>(rows_ * (i + 1) / blocks() - first)};
  }
  /// Whether there are few rows, as the kernel has it.
  [[nodiscard]] bool are_few() const { return rows_ <= layout_.few; }
  [[nodiscard]] std::int64_t run() const { return are_few() ? step_k : layout_.run; }
  /// On thread `part` of the plan's.
  void prepare(const RowBlock& block, int part) const;
  void fill_ones() const;

  [[nodiscard]] const std::int8_t* at(const RowBlock& b) const {
    return reinterpret_cast<const std::int8_t*>(workspace_) +
           b.first * layout_.padded * layout_.halves;
  }
  [[nodiscard]] const std::int8_t* ones() const {
    return reinterpret_cast<const std::int8_t*>(workspace_ + layout_.ones);
  }
  /// [groups][rows][halves], less the zero points.
  [[nodiscard]] std::int32_t* sums(const RowBlock& b) const {
    return reinterpret_cast<std::int32_t*>(workspace_ + layout_.row_sums) +
           b.first * layout_.groups * layout_.halves;
  }
  /// The same over all of a row, [rows][halves], where there is one scale per channel.
  [[nodiscard]] std::int64_t* long_sums(std::int64_t row) const {
    return reinterpret_cast<std::int64_t*>(workspace_ + layout_.long_sums) + row * layout_.halves;
  }
  /// What is subtracted from activations as they are here; null: nothing.
  [[nodiscard]] std::int32_t* zeros(std::int64_t row) const {
    return layout_.adds_columns
               ? reinterpret_cast<std::int32_t*>(workspace_ + layout_.row_zeros) + row
               : nullptr;
  }
  template <class C>
  void load_scales(std::int64_t row, std::int64_t rows, C* to) const;

 private:
  void quantize(std::int64_t row, const unsigned char* from, unsigned char* to) const;
  [[nodiscard]] std::int32_t zero_of(std::int64_t row) const;
  void bring(const unsigned char* const* rows, unsigned char flip, const RowBlock& block) const;
  void add_up(const unsigned char* from, unsigned char flip, const RowBlock& block, int at,
              std::int32_t zero) const;

  const LinearProblem& p_;
  const LinearOperands& o_;
  const GroupLayout& layout_;
  const LinearKernels& kernels_;
  unsigned char* workspace_;
  std::int64_t rows_;
  std::int64_t input_stride_;  // bytes
};

}  // namespace octavo::detail
