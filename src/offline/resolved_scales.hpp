// What the weights say to a plan: the smoothing scales of its pairs, and what follows from them.
#pragma once

#include <vector>

#include "octavo/checkpoint.hpp"
#include "offline/measure.hpp"

namespace octavo::offline {

struct ResolvedScales {
  std::vector<std::vector<float>> smoothing;  // of each pair
  std::vector<double> alphas;
  std::vector<double> errors;  // of searched alphas

  /// Of a layer's input channels; empty: none.
  [[nodiscard]] std::vector<float> of(const PlannedLayer& planned) const {
    return planned.pair ? smoothing[*planned.pair] : std::vector<float>();
  }
};
Result<ResolvedScales> resolve_scales(const Stream& stream, const QuantizePlan& plan,
                                      const ProgressCallback& progress);

/// The static scale of a layer's input.
float input_scale(const QuantizePlan& plan, const ResolvedScales& scales,
                  const PlannedLayer& planned);

/// What a layer is measured with, as it is written.
Probe probe_of(const QuantizePlan& plan, const ResolvedScales& scales, const PlannedLayer& planned);

}  // namespace octavo::offline
