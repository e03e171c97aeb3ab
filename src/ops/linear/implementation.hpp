// What a backend does for the linear plans, and to pack their weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/choose.hpp"
#include "octavo/linear.hpp"
#include "ops/linear/stages.hpp"

namespace octavo::detail {

/// A problem and the way it is done. Immutable once a plan holds it; runs may be many at once.
class LinearImpl {
 public:
  LinearImpl(const LinearProblem& p, const WeightFormat& packed_as)
      : problem(p),
        format(packed_as) {}
  LinearImpl(const LinearImpl&) = delete;
  LinearImpl& operator=(const LinearImpl&) = delete;
  virtual ~LinearImpl() = default;

  /// The values of scales and zero points, which are read here. All else is checked. Where work is
  /// queued it finds nothing wrong: what is queued may yet write them.
  [[nodiscard]] virtual Status check_values(const LinearOperands& operands) const = 0;
  /// Checks the values, then writes the output. Where work is queued, both happen later: a refusal
  /// is the stream's `synchronize` to return, in the CPU's words, and no byte is written. The
  /// operands are the caller's and gone by then; of a packed weight, what is queued holds a copy.
  [[nodiscard]] virtual Status run(const Stream& stream, void* workspace,
                                   const LinearOperands& operands) const = 0;
  /// Null where a backend has none.
  [[nodiscard]] virtual const LinearStages* stages() const { return nullptr; }

  const LinearProblem problem;
  const WeightFormat format;        // of weights that are packed beforehand
  std::size_t workspace_bytes = 0;  // SIZE_MAX: more than can be counted
  KernelSku sku;                    // (set by select)
};

/// Descriptor, and the way it is done.
class PackImpl {
 public:
  PackImpl(const PackWeightDescriptor& d, const WeightFormat& packs_as)
      : problem(d),
        format(packs_as) {}
  PackImpl(const PackImpl&) = delete;
  PackImpl& operator=(const PackImpl&) = delete;
  virtual ~PackImpl() = default;

  /// One of the right size: all zero (when it returns: no stream has an order for it), or holding
  /// whatever was there.
  [[nodiscard]] virtual Result<PackedWeight> make(bool zeroed) const = 0;
  /// The values of scales and zero points of groups, as LinearImpl has it.
  [[nodiscard]] virtual Status check_values(const PackWeightArgs& args) const = 0;
  /// Checks the values and packs [n, k] rows to one of `make`. The arguments are checked. What is
  /// queued holds a copy of `packed`: it keeps the memory, and lets nobody pack something else into
  /// it meanwhile.
  [[nodiscard]] virtual Status run(const Stream& stream, const PackWeightArgs& args) const = 0;

  /// Whether a packed weight of these sizes is where this one packs to.
  [[nodiscard]] virtual bool holds(const PackedWeight& packed) const {
    return packed.format() == format;
  }
  /// `run` of what lies in the host's memory; when it returns, it is no longer needed.
  [[nodiscard]] virtual Status pack_from_host(const Stream& stream,
                                              const PackWeightArgs& args) const {
    return run(stream, args);
  }

  const PackWeightDescriptor problem;
  const WeightFormat format;  // of what it makes
  KernelSku sku;              // (set by select)
};

using LinearEntry = Entry<LinearProblem, std::shared_ptr<LinearImpl>>;
using PackEntry = Entry<PackWeightDescriptor, std::shared_ptr<PackImpl>>;

/// Best first, the reference last.
std::span<const LinearEntry> cpu_linear();
std::span<const PackEntry> cpu_pack();
std::span<const LinearEntry> cuda_linear();
std::span<const PackEntry> cuda_pack();
/// For tests alone: those of a backend that only they have.
inline constinit std::span<const LinearEntry> test_linear;
inline constinit std::span<const PackEntry> test_pack;

/// For those inside who need the stages of a plan.
struct LinearAccess {
  static const LinearImpl& impl(const AnyLinearPlan& plan) { return *plan.impl_; }
};

}  // namespace octavo::detail
