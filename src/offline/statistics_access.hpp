// From what a file holds to the statistics of a layer.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "octavo/safetensors.hpp"
#include "octavo/statistics.hpp"

namespace octavo {

/// In the metadata of every statistics file, and of no other.
inline constexpr const char* statistics_key = "octavo.stats";
inline bool is_statistics(const SafetensorsFile& file) {
  return file.metadata().contains(statistics_key);
}

struct LayerParts {
  StatisticsOptions options;
  std::int64_t count = 0;
  std::vector<float> absmax, min, max;
  std::vector<std::int64_t> histogram;
  std::vector<float> sample;  // [rows, channels], in any order
};

struct StatisticsAccess {
  /// Rows are put in order; what goes beyond `common` is reduced to it.
  static LayerStatistics assemble(LayerParts parts, const StatisticsOptions& common) {
    LayerStatistics layer;
    layer.options_ = parts.options;
    layer.count_ = parts.count;
    layer.absmax_ = std::move(parts.absmax);
    layer.min_ = std::move(parts.min);
    layer.max_ = std::move(parts.max);
    layer.histogram_ = std::move(parts.histogram);
    const std::size_t channels = layer.absmax_.size();
    for (std::size_t at = 0; channels > 0 && at < parts.sample.size(); at += channels) {
      const std::span<const float> row(&parts.sample[at], channels);
      layer.keep({row_hash(row), {row.begin(), row.end()}});
    }
    layer.reduce(common);
    return layer;
  }
};

}  // namespace octavo
