// THE arithmetic of smoothing, and of the one scale of a static input.
//
//     s = a^alpha / max(w, 1e-5)^(1 - alpha), at least 1e-5, at most the largest f32
//
// with the extremes of an input channel and of its weights, in f64, rounded to f32 once; and, in
// f32, of an input whose channels have the extremes a_j and are divided by s_j,
//
//     m = max over j of a_j / s_j          scale = m > 0 ? m / 127 : 1
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

#include "numerics/exp2.hpp"

namespace octavo::numerics {

inline float smoothing_scale(float input_absmax, double weight_absmax, double alpha) {
  constexpr double least = 1e-5;
  const double w = std::max(weight_absmax, least);
  const double s = power(double{input_absmax}, alpha) / power(w, 1.0 - alpha);
  return static_cast<float>(std::clamp(s, least, double{std::numeric_limits<float>::max()}));
}

/// Without smoothing scales they are all 1.
inline float static_scale(std::span<const float> absmax, std::span<const float> smoothing) {
  float most = 0;
  for (std::size_t j = 0; j < absmax.size(); ++j)
    most = std::max(most, smoothing.empty() ? absmax[j] : absmax[j] / smoothing[j]);
  return most == 0 ? 1.0F : most / 127.0F;
}

}  // namespace octavo::numerics
