// A linear with weights in groups, or of four bits, on the CPU.
#pragma once

#include "numerics/segments.hpp"
#include "ops/linear/cpu/epilogue.hpp"
#include "ops/linear/cpu/finish.hpp"
#include "ops/linear/cpu/group_rows.hpp"
#include "ops/linear/implementation.hpp"

namespace octavo::detail {

class CpuGroupLinear final : public LinearImpl {
 public:
  CpuGroupLinear(const LinearProblem& problem, const GroupKernel& kernel,
                 const LinearKernels& kernels, int threads);

  [[nodiscard]] Status check_values(const LinearOperands& operands) const override;
  [[nodiscard]] Status run(const Stream& stream, void* workspace,
                           const LinearOperands& operands) const override;

 private:
  // Two panels of weights, and what is known of their columns.
  struct Pair;
  template <class C>
  struct Terms;

  void prepare(const Stream& stream, const GroupRows& rows) const;
  template <class C>
  void multiply(const Stream& stream, void* workspace, const LinearOperands& operands,
                const GroupRows& rows) const;

  void find_weights(const LinearOperands& operands, const GroupRows& rows, unsigned char* own,
                    Pair& pair) const;
  void widen(unsigned char* to, Pair& pair) const;
  void add_columns(const GroupRows& rows, Pair& pair) const;
  void gather_zeros(const LinearOperands& operands, Pair& pair) const;

  // Values of a block, group_columns apart; or its sums.
  std::uint32_t multiply_groups(const GroupRows& rows, const RowBlock& block, const Pair& pair,
                                float* values) const;
  template <class C>
  std::uint32_t multiply_in_turn(const GroupRows& rows, const RowBlock& block, const Pair& pair,
                                 C* values) const;
  // The products of a group, without a place for sums.
  [[nodiscard]] GroupSumsCall products_of(const GroupRows& rows, const RowBlock& block,
                                          const Pair& pair, std::int64_t g) const;
  template <class C>
  void prepare_terms(const GroupRows& rows, const RowBlock& block, const Pair& pair,
                     Terms<C>& terms) const;
  template <class C>
  std::uint32_t add_group(const GroupRows& rows, const RowBlock& block, const Pair& pair,
                          std::int64_t g, Terms<C>& terms) const;
  template <class C>
  std::uint32_t add_group_exactly(const GroupRows& rows, const RowBlock& block, const Pair& pair,
                                  std::int64_t g, const C* scales, C* values) const;
  std::uint32_t add_products(const GroupRows& rows, const RowBlock& block, const Pair& pair,
                             std::int32_t* sums) const;
  std::uint32_t add_products_exactly(const GroupRows& rows, const RowBlock& block, const Pair& pair,
                                     std::int64_t* sums) const;
  template <class C>
  std::uint32_t finish_channels(const GroupRows& rows, const RowBlock& block, const Pair& pair,
                                const Finish<C>& finish, const ColumnScales<C>& scales) const;

  const GroupKernel kernel_;
  const LinearKernels kernels_;
  const int threads_;  // of the stream that the plan was made on
  const GroupPanel panel_;
  const GroupPanel widened_;
  const GroupLayout layout_;
  const int segments_;
  GroupSegment segment_[numerics::max_segments];
  const bool wide_;  // sums of more than 32 bits, of groups or of channels
  const bool long_;  // of groups, of each half where there are two
};

}  // namespace octavo::detail
