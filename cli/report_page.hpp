// The page of `octavo report`: one HTML file, without scripts and without the network.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/verdict.hpp"

namespace octavo::cli {

/// What a layer's quantized weights look like.
struct WeightPicture {
  std::vector<std::uint64_t> values;  ///< how many there are of each integer, least first
  std::vector<double> scales;
};

/// The largest |x| of each input channel, before and after smoothing.
struct OutlierPicture {
  std::string norm;
  std::vector<float> before, after;
};

struct ReportData {
  std::string original, quantized;
  std::uint64_t original_bytes = 0, quantized_bytes = 0;
  VerifyReport report;                 ///< layers in natural order; at least one
  Verdict verdict;                     ///< on that report
  std::vector<WeightPicture> weights;  ///< of each of its layers
  std::vector<OutlierPicture> outliers;
};

std::string report_page(const ReportData& data);

}  // namespace octavo::cli
