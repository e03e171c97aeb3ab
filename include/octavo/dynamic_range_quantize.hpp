// Dynamic-range quantize: finds the range of each slice, computes its scale (and zero point), and
// quantizes it, in one pass over memory where a slice fits the caches.
//
//     symmetric    m = max |x|
//                  scale = m > 0 ? max(m / q_max, smallest normal) : 1        zero_point = 0
//     asymmetric   lo = min(0, min x)      hi = max(0, max x)
//                  scale = hi > lo ? max((hi - lo) / (q_max - q_min), smallest normal) : 1
//                  zero_point = clamp(rint(q_min - lo / scale), q_min, q_max)
//
// and then q as in quantize.hpp. NaN and infinities take no part in the range; they quantize to
// zero_point and to the bounds. A slice that is empty or has no finite value is as if all zero.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "octavo/elementwise.hpp"

namespace octavo {

enum class RangeMode : std::uint8_t {
  symmetric = 0,   ///< to s8, s4 and s16: zero point 0
  asymmetric = 1,  ///< to s8, u8, s4, u4 and s16
};
[[nodiscard]] OCTAVO_API std::string_view name(RangeMode mode) noexcept;

struct DynamicRangeQuantizeDescriptor {
  Shape shape;
  RangeMode mode = RangeMode::symmetric;
  /// What shares a scale: a row (the last dimension), the tensor, an index of `axis`, or
  /// `group_size` consecutive elements of a row.
  Layout scope = Layout::per_token;
  int axis = 0;                 ///< of per_channel; negative: counted from the last
  std::int64_t group_size = 0;  ///< of per_group; divides the last dimension
  DType input = DType::f32;     ///< f32, f64, f16, bf16
  DType output = DType::s8;
  /// Default: the output type's own range, and of s16 [-32639, 32639].
  std::optional<std::int32_t> q_min = std::nullopt;
  std::optional<std::int32_t> q_max = std::nullopt;
  Profile profile = Profile::torch;

  friend bool operator==(const DynamicRangeQuantizeDescriptor&,
                         const DynamicRangeQuantizeDescriptor&) = default;
};

struct DynamicRangeQuantizeArgs {
  TensorRef input;
  TensorMut output;
  TensorMut scales;            ///< contiguous, one per slice, in the compute type
  TensorMut zero_points = {};  ///< s32, as many; may be left out if symmetric (they are all 0)
};

namespace detail {
class DynamicRangeImpl;
}

/// Threads share out rows (or groups) whole, unless these are few and longer than 2^18.
class OCTAVO_API DynamicRangeQuantizePlan {
 public:
  using Descriptor = DynamicRangeQuantizeDescriptor;
  using Args = DynamicRangeQuantizeArgs;

  /// Chooses a kernel, and refuses what no kernel can do.
  static Result<DynamicRangeQuantizePlan> select(const Stream& stream, const Descriptor& descriptor,
                                                 const PlanPreference& preference = {});
  /// The same, with the types taken from C++: `select<float, std::int8_t>(...)`.
  template <Element Input, Element Output>
  static Result<DynamicRangeQuantizePlan> select(const Stream& stream, Descriptor descriptor,
                                                 const PlanPreference& preference = {}) {
    descriptor.input = dtype_of<Input>;
    descriptor.output = dtype_of<Output>;
    return select(stream, std::as_const(descriptor), preference);
  }

  /// Whether `run` would accept these arguments, and if not, why.
  [[nodiscard]] Status can_implement(const Args& args) const;
  /// Bytes of workspace that `run` needs; 0 per token and per group, unless threads share rows.
  [[nodiscard]] std::size_t workspace_size() const noexcept;
  /// Does the work, on a stream of the plan's backend; on the CPU it is done when this returns.
  /// Allocates nothing.
  Status run(const Stream& stream, Workspace workspace, const Args& args) const;

  /// How many scales (and zero points) there are.
  [[nodiscard]] std::int64_t slices() const noexcept;
  [[nodiscard]] const KernelSku& sku() const noexcept;
  [[nodiscard]] const PrecisionGuarantee& precision_guarantee() const noexcept {
    return sku().guarantee;
  }

  // (No move, which would leave an empty one.)
  DynamicRangeQuantizePlan(const DynamicRangeQuantizePlan&) = default;
  DynamicRangeQuantizePlan& operator=(const DynamicRangeQuantizePlan&) = default;
  ~DynamicRangeQuantizePlan() = default;

 private:
  explicit DynamicRangeQuantizePlan(std::shared_ptr<const detail::DynamicRangeImpl> impl)
      : impl_(std::move(impl)) {}
  std::shared_ptr<const detail::DynamicRangeImpl> impl_;
};

}  // namespace octavo
