// The sums of a call, block by block: some rows of activations by a group of panels.
//
// With a the activations in the kernel's form, w the packed weights, both as they are stored,
//
//     sum (a - za) (w - zw) = sum a w - za * sum w - zw * (sum a - k * za)
//
// where the sums over w belong to the pack and those over a are needed only if zw is not 0.
#pragma once

#include "ops/linear/cpu/epilogue.hpp"
#include "ops/linear/cpu/grid.hpp"
#include "ops/linear/cpu/rows.hpp"

namespace octavo::detail {

/// Panels that are multiplied together.
struct Group {
  std::int64_t column = 0;
  std::int64_t columns = 0;
  int panels = 0;
  const std::int8_t* weights = nullptr;
  const std::int64_t* sums = nullptr;  // of columns, if the layout has them
  const std::int8_t* ahead = nullptr;  // weights of the next group
};

/// What zero points take off, as far as the columns go; modulo 2^32. Past the last column: 0. What
/// a call has no use for is not set.
struct ColumnTerms {
  std::int32_t sum[group_columns];   // of weights
  std::int32_t term[group_columns];  // all of it, if the zero point is the same in all rows
  std::int32_t zero[group_columns];  // of the weights
};
/// And as far as the rows go.
struct RowTerms {
  std::int32_t zero[block_rows];
  std::int32_t term[block_rows];
};

/// Where rows have two halves, all here count halves, but for the blocks of `for_each_block`.
class Products {
 public:
  Products(const LinearProblem& problem, const LinearOperands& operands, const LinearLayout& layout,
           const DotKernel& dot, const Rows& activations, void* workspace)
      : p_(problem),
        o_(operands),
        layout_(layout),
        dot_(dot),
        activations_(activations),
        workspace_(static_cast<unsigned char*>(workspace)),
        wide_(is_wide(problem)) {}

  [[nodiscard]] bool is_wide_sum() const { return wide_; }

  /// Calls begin(group) for every group of panels, and then block(group, row, rows) for all rows,
  /// some at a time. Returns the bits of the targets that ran, as the blocks do.
  template <class Begin, class Block>
  std::uint32_t for_each_block(const Share& share, Begin&& begin, Block&& block) const {
    std::uint32_t ran = 0;
    const std::int64_t all = share.last_row - share.first_row;
    const std::int64_t rows = p_.packed_weight ? std::min(dot_.resident_rows, all) : all;
    for (std::int64_t row = share.first_row; row < share.last_row; row += rows)
      ran |= for_each_group(share, row, std::min(row + rows, share.last_row), begin, block);
    if (dot_.end != nullptr) dot_.end();
    return ran;
  }

  void gather(const Group& group, ColumnTerms& to) const;

  /// sums[r][c] of products alone, group_columns apart, modulo 2^32.
  std::uint32_t multiply(const Group& group, std::int64_t row, std::int64_t rows,
                         std::int32_t* sums) const;
  /// Tells an epilogue what to take off those, of `rows` from `row` on.
  template <class C>
  void take_off(EpilogueCall<C>& call, const ColumnTerms& columns, std::int64_t row,
                std::int64_t rows, RowTerms& terms) const {
    if (!activations_.one_zero()) {
      for (std::int64_t i = 0; i < rows; ++i) terms.zero[i] = low(activations_.zero(row + i));
      call.column_sum = columns.sum;
      call.row_zero = terms.zero;
    } else if (activations_.zero(0) != 0) {
      call.column_term = columns.term;
    }
    if (!layout_.adds_rows) return;
    for (std::int64_t i = 0; i < rows; ++i) terms.term[i] = low(row_term(row + i));
    call.weight_zero = columns.zero;
    call.row_term = terms.term;
  }
  /// Exact sums in 64 bits, all taken off; up to wide_rows, group_columns apart.
  std::uint32_t multiply_wide(const Group& group, const ColumnTerms& columns, std::int64_t row,
                              std::int64_t rows, std::int64_t* sums) const;

 private:
  template <class Begin, class Block>
  std::uint32_t for_each_group(const Share& share, std::int64_t first_row, std::int64_t last_row,
                               Begin& begin, Block& block) const {
    std::uint32_t ran = 0;
    const std::int64_t step = (wide_ ? std::min(dot_.rows, wide_rows) : dot_.rows) / layout_.halves;
    for (std::int64_t panel = share.first_panel; panel < share.last_panel; panel += group_panels) {
      const auto panels =
          static_cast<int>(std::min<std::int64_t>(group_panels, share.last_panel - panel));
      Group group = prepare_group(share.part, panel, panels);
      if (p_.packed_weight && panel + panels < share.last_panel)
        group.ahead = group.weights + panels * panel_bytes_of(p_.k);
      begin(group);
      for (std::int64_t row = first_row; row < last_row; row += step)
        ran |= block(group, row, std::min(step, last_row - row));
    }
    return ran;
  }

  [[nodiscard]] Group prepare_group(int part, std::int64_t panel, int panels) const;
  void add_columns(const Group& group, std::int64_t* sums) const;
  template <class F>
  std::uint32_t for_each_piece(DotCall call, F&& add) const;
  [[nodiscard]] DotCall dot_call(const Group& group, std::int64_t row, std::int64_t rows,
                                 std::int32_t* sums) const;

  // sum a - k * za
  [[nodiscard]] std::int64_t row_term(std::int64_t row) const {
    return layout_.adds_rows ? activations_.sum(row) - p_.k * activations_.zero(row) : 0;
  }
  static std::int32_t low(std::int64_t value) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(value));
  }
  static std::uint32_t bit(Target target) { return 1U << static_cast<unsigned>(target); }

  const LinearProblem& p_;
  const LinearOperands& o_;
  const LinearLayout& layout_;
  const DotKernel& dot_;
  const Rows& activations_;
  unsigned char* workspace_;
  bool wide_;
};

/// Of 64-bit sums, group_columns apart: rows from their halves, in place.
inline void join_halves(std::int64_t* sums, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < group_columns; ++c)
      sums[r * group_columns + c] =
          sums[2 * r * group_columns + c] * 256 + sums[(2 * r + 1) * group_columns + c];
}

}  // namespace octavo::detail
