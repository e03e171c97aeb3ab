// What a backend does for dynamic-range quantize.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "core/choose.hpp"
#include "octavo/dynamic_range_quantize.hpp"
#include "ops/runs/problem.hpp"

namespace octavo {

namespace detail {

/// The quantize that follows when ranges are found, and how they are.
struct DynamicRangeProblem : SlicedProblem {
  RangeMode mode = RangeMode::symmetric;
  [[nodiscard]] bool symmetric() const { return mode == RangeMode::symmetric; }
};

/// Whether a mode is one, and goes with a range.
Status check_mode_range(RangeMode mode, IntRange range);
/// And with a type: `Symmetric` lists those that a family admits in mode symmetric.
template <class Symmetric>
Status check_mode(RangeMode mode, DType output, IntRange range) {
  if (mode == RangeMode::symmetric)
    if (Status s =
            check_type<Symmetric>("output", output, " in mode symmetric", "; use mode asymmetric");
        !s)
      return s;
  return check_mode_range(mode, range);
}

/// A problem and the way it is done. Immutable once a plan holds it; runs may be many at once.
class DynamicRangeImpl {
 public:
  explicit DynamicRangeImpl(const DynamicRangeProblem& p) : problem(p) {}
  DynamicRangeImpl(const DynamicRangeImpl&) = delete;
  DynamicRangeImpl& operator=(const DynamicRangeImpl&) = delete;
  virtual ~DynamicRangeImpl() = default;

  /// Writes scales, zero points and output, or has it queued; there is no value to refuse. The
  /// arguments are checked; there is a slice at least. `plain`: what are_plain says of input and
  /// output.
  [[nodiscard]] virtual Status run(const Stream& stream, void* workspace,
                                   const DynamicRangeQuantizeArgs& args, bool plain) const = 0;

  const DynamicRangeProblem problem;
  std::size_t workspace_bytes = 0;  // set by whoever derives from this
  KernelSku sku;
};

using DynamicRangeEntry = Entry<DynamicRangeProblem, std::shared_ptr<DynamicRangeImpl>>;

/// Best first, the reference last.
std::span<const DynamicRangeEntry> cpu_dynamic_range();
std::span<const DynamicRangeEntry> cuda_dynamic_range();
/// For tests alone: those of a backend that only they have.
inline constinit std::span<const DynamicRangeEntry> test_dynamic_range;

/// Whether zero points are wanted.
inline bool has_zero_points(const DynamicRangeQuantizeArgs& args) {
  return args.zero_points.data != nullptr || args.zero_points.shape.rank() > 0;
}

}  // namespace detail
}  // namespace octavo
