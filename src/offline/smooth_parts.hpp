// The steps of smoothing, for those who work tensor by tensor.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "octavo/smooth.hpp"

namespace octavo::offline {

Status check_smoothing(std::span<const TensorRef> weights, std::span<const float> absmax,
                       double alpha);
/// The largest finite magnitude in each column of [rows, channels] tensors.
Result<std::vector<double>> column_absmax(const Stream& stream, std::span<const TensorRef> weights,
                                          std::int64_t channels);
/// numerics::smoothing_scale of each channel.
std::vector<float> scales_from(std::span<const double> weight_absmax, std::span<const float> absmax,
                               double alpha);
/// Whether a finite magnitude times a scale is beyond a type.
bool column_overflows(DType type, double absmax, float scale);
/// A norm's weight or bias divided by the scales; an error names file and tensor.
Status divide_vector(const std::string& path, const std::string& tensor, const TensorMut& t,
                     std::span<const float> scales);

/// A weight that may lie anywhere in memory, and what it is to become.
struct SearchedWeight {
  TensorRef weight;
  LayerForm form = {};
};
/// search_alpha for these in place of those of `args`. The scales come from the column_absmax of
/// all layers that share the input, the error from these.
Result<AlphaSearch> search_alpha_of(const Stream& stream, std::span<const SearchedWeight> weights,
                                    const AlphaSearchArgs& args,
                                    std::span<const double> weight_absmax);

}  // namespace octavo::offline
