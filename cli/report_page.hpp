// The page of `octavo report`: one HTML file, without scripts and without the network.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/checkpoint.hpp"

namespace octavo::cli {

struct LayerPicture {
  LayerError error;
  std::vector<std::uint64_t>
      values;  ///< how many weights are quantized to each integer, least first
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
  Scheme scheme = Scheme::w8a8_dynamic;
  std::vector<LayerPicture> layers;
  std::vector<OutlierPicture> outliers;
  std::vector<std::string> unexpected;
};

std::string report_page(const ReportData& data);

}  // namespace octavo::cli
