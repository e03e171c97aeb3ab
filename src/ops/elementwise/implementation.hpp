// What a backend does for the elementwise plans.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "core/choose.hpp"
#include "octavo/elementwise.hpp"
#include "ops/runs/problem.hpp"

namespace octavo::detail {

/// A problem and the way it is done. Immutable once a plan holds it; runs may be many at once.
class ElementwiseImpl {
 public:
  explicit ElementwiseImpl(const SlicedProblem& p) : problem(p) {}
  ElementwiseImpl(const ElementwiseImpl&) = delete;
  ElementwiseImpl& operator=(const ElementwiseImpl&) = delete;
  virtual ~ElementwiseImpl() = default;

  /// The values of scales and zero points, which are read here. The tensors are checked. Where work
  /// is queued it finds nothing wrong: what is queued may yet write them.
  [[nodiscard]] virtual Status check_values(const ElementwiseArgs& args) const = 0;
  /// Checks the values, then writes the output. `plain`: what are_plain says of the arguments.
  /// Where work is queued, both happen later: a refusal is the stream's `synchronize` to return, in
  /// the CPU's words, and no byte is written. The arguments are the caller's and gone by then.
  [[nodiscard]] virtual Status run(const Stream& stream, void* workspace,
                                   const ElementwiseArgs& args, bool plain) const = 0;

  const SlicedProblem problem;
  std::size_t workspace_bytes = 0;  // for scales in the compute type
  KernelSku sku;
};

using ElementwiseEntry = Entry<SlicedProblem, std::shared_ptr<ElementwiseImpl>>;

/// Best first, the reference last.
std::span<const ElementwiseEntry> cpu_elementwise();
std::span<const ElementwiseEntry> cuda_elementwise();
/// For tests alone: those of a backend that only they have.
inline constinit std::span<const ElementwiseEntry> test_elementwise;

}  // namespace octavo::detail
