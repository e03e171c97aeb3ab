// Observers: they watch tensors go by, batch after batch, in fixed memory, and turn what they saw
// into scales and zero points. They are what calibration is made of.
//
//     auto observer = HistogramObserver::select(stream, {.input = DType::f32});
//     HistogramState state = observer->make_state();
//     for (batch : batches) observer->run(stream, workspace, {.input = batch, .state = &state});
//     auto found = state.parameters({.method = Calibration::percentile, .percentile = 99.99});
//
// A state is the same, to the bit, for any order of batches, any split of them over states that are
// merged later, and any number of threads: it is made of extremes and of counts in fixed bins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "octavo/dynamic_range_quantize.hpp"

namespace octavo {

/// How a range is chosen from what was seen.
enum class Calibration : std::uint8_t {
  min_max = 0,     ///< all of it
  percentile = 1,  ///< all but the outermost values, from a histogram
  mse = 2,         ///< least mean squared error of quantize and dequantize, from a histogram
  entropy = 3,     ///< least Kullback-Leibler divergence, from a histogram
};
[[nodiscard]] OCTAVO_API std::string_view name(Calibration method) noexcept;

struct CalibrationOptions {
  Calibration method = Calibration::min_max;
  RangeMode mode = RangeMode::symmetric;
  DType output = DType::s8;
  std::optional<std::int32_t> q_min = std::nullopt;  ///< default: the output type's own range
  std::optional<std::int32_t> q_max = std::nullopt;
  double percentile = 99.99;  ///< in (0, 100]: of the magnitudes, or of each side if asymmetric
};

/// One of each per slice: the tensor, or a channel. Scales are exact in the compute type.
struct CalibratedParameters {
  std::vector<double> scales;
  std::vector<std::int32_t> zero_points;
  friend bool operator==(const CalibratedParameters&, const CalibratedParameters&) = default;
};

struct ObserverDescriptor {
  DType input = DType::f32;           ///< f32, f64, f16, bf16
  Layout scope = Layout::per_tensor;  ///< or per_channel
  int axis = -1;                      ///< of per_channel; negative: counted from the last
  std::int64_t channels = 1;          ///< of per_channel: the size of that axis
  /// Of histograms: bins are floats cut off after so many bits behind the point, 0 to 7. A bin is
  /// 2^-bits of its values wide; there are 2^(9 + bits) of 8 bytes for each slice.
  int histogram_bits = 7;
};

/// The extremes of all finite values so far, 0 included.
class OCTAVO_API MinMaxState {
 public:
  /// Adds what another one saw. Both must come from observers of the same descriptor.
  Status merge(const MinMaxState& other);
  /// Method min_max only.
  [[nodiscard]] Result<CalibratedParameters> parameters(const CalibrationOptions& options) const;

  [[nodiscard]] const ObserverDescriptor& descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] const std::vector<double>& low() const noexcept { return low_; }
  [[nodiscard]] const std::vector<double>& high() const noexcept { return high_; }
  friend bool operator==(const MinMaxState& a, const MinMaxState& b) {
    return a.low_ == b.low_ && a.high_ == b.high_;
  }

 private:
  friend struct ObserverAccess;
  ObserverDescriptor descriptor_;
  std::vector<double> low_;
  std::vector<double> high_;
};

/// The extremes, and how many values fell in each bin.
class OCTAVO_API HistogramState {
 public:
  Status merge(const HistogramState& other);
  [[nodiscard]] Result<CalibratedParameters> parameters(const CalibrationOptions& options) const;

  [[nodiscard]] const MinMaxState& extremes() const noexcept { return extremes_; }
  /// [slices, bins]: bin i counts the finite values whose f32 pattern starts with the bits of i.
  [[nodiscard]] const std::vector<std::int64_t>& counts() const noexcept { return counts_; }
  [[nodiscard]] std::int64_t bins() const noexcept;
  friend bool operator==(const HistogramState& a, const HistogramState& b) {
    return a.extremes_ == b.extremes_ && a.counts_ == b.counts_;
  }

 private:
  friend struct ObserverAccess;
  MinMaxState extremes_;
  std::vector<std::int64_t> counts_;
};

namespace detail {
class ObserverImpl;
}

/// An observer is a plan: the same steps as everywhere. `State` is what it adds to.
template <class State>
class OCTAVO_API Observer {
 public:
  using Descriptor = ObserverDescriptor;
  struct Args {
    TensorRef input;         ///< any shape; per_channel: `channels` along `axis`
    State* state = nullptr;  ///< of make_state
  };

  static Result<Observer> select(const Stream& stream, const Descriptor& descriptor,
                                 const PlanPreference& preference = {});
  /// A state that has seen nothing. The only allocation.
  [[nodiscard]] State make_state() const;
  [[nodiscard]] Status can_implement(const Args& args) const;
  [[nodiscard]] std::size_t workspace_size() const noexcept;
  /// Adds a batch to the state, on a stream of the plan's backend. It is added when this returns,
  /// also where other work is queued.
  Status run(const Stream& stream, Workspace workspace, const Args& args) const;
  [[nodiscard]] const KernelSku& sku() const noexcept;
  [[nodiscard]] const PrecisionGuarantee& precision_guarantee() const noexcept {
    return sku().guarantee;
  }

  // (No move, which would leave an empty one.)
  Observer(const Observer&) = default;
  Observer& operator=(const Observer&) = default;
  ~Observer() = default;

 private:
  explicit Observer(std::shared_ptr<const detail::ObserverImpl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const detail::ObserverImpl> impl_;
};

using MinMaxObserver = Observer<MinMaxState>;
using HistogramObserver = Observer<HistogramState>;

}  // namespace octavo
