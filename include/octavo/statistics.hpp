// Statistics of the inputs of linear layers, for smoothing and for static scales.
//
//     Statistics statistics({.sample_rows = 64});
//     for (batch : batches) statistics.update(stream, "model.layers.0.mlp.up_proj", batch);
//     statistics.write("model.stats.safetensors");
//
// For each layer: the extremes of each input channel over all finite values (0 included), the
// number of rows, and, if asked for, a histogram of all values and a sample of rows. The memory is
// fixed. The same rows give the same bytes in any order, in any split over batches and over files
// that are merged later, and for any number of threads, which may update one object at once.
//
// A file is a safetensors file; for a layer P with K input channels:
//
//     P.input_absmax, P.input_min, P.input_max  F32 [K]
//     P.count                                   I64 [1]      rows seen
//     P.input_hist                              I64 [bins]   as in HistogramObserver; optional
//     P.input_sample                            F32 [r, K]   optional
//
// with the metadata octavo.stats = "1" and, if rows are sampled, octavo.stats.sample_rows.
//
// The sample: of all different rows of finite values, as f32, those whose hash is lowest; equal
// hashes go by content. The hash of a row of K values, whose bits are u[0], ..., u[K-1], in
// integers modulo 2^64:
//
//     h = 0x9E3779B97F4A7C15 xor K
//     for each pair: h = (h xor (u[2i] + 2^32 * u[2i+1])) * 0xD6E8FEB86659FD93;  h = h xor (h >>
//     32) h = h xor (h >> 29);  h = h * 0xBF58476D1CE4E5B9;  h = h xor (h >> 32)
//
// where u[K] = 0 completes the last pair of an odd row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/result.hpp"
#include "octavo/stream.hpp"
#include "octavo/tensor.hpp"

namespace octavo {

struct StatisticsOptions {
  std::int64_t sample_rows = 0;  ///< the most rows that are kept
  int histogram_bits = -1;       ///< 0 to 7 as in ObserverDescriptor; -1: no histogram
};

/// The hash that decides which rows are sampled.
[[nodiscard]] std::uint64_t row_hash(std::span<const float> row) noexcept;

/// What one layer saw. A plain value: while one thread changes it, no other may use it.
class LayerStatistics {
 public:
  static Result<LayerStatistics> create(std::int64_t channels,
                                        const StatisticsOptions& options = {});

  /// Adds rows: [..., channels] of f32, f64, f16 or bf16, of any strides.
  Status update(const Stream& stream, const TensorRef& rows);
  /// Adds what another one saw. Of two kinds of samples and histograms the smaller remains.
  Status merge(const LayerStatistics& other);

  [[nodiscard]] std::int64_t channels() const noexcept {
    return static_cast<std::int64_t>(absmax_.size());
  }
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  [[nodiscard]] const std::vector<float>& absmax() const noexcept { return absmax_; }
  [[nodiscard]] const std::vector<float>& min() const noexcept { return min_; }
  [[nodiscard]] const std::vector<float>& max() const noexcept { return max_; }
  /// 2^(9 + histogram_bits) bins, or none.
  [[nodiscard]] const std::vector<std::int64_t>& histogram() const noexcept { return histogram_; }
  /// The sampled rows one after another, the lowest hash first.
  [[nodiscard]] std::vector<float> sample() const;
  [[nodiscard]] std::int64_t sample_count() const noexcept {
    return static_cast<std::int64_t>(sample_.size());
  }
  [[nodiscard]] const StatisticsOptions& options() const noexcept { return options_; }

 private:
  friend struct StatisticsAccess;
  friend class Statistics;
  struct Row {
    std::uint64_t hash = 0;
    std::vector<float> values;
  };
  /// What one batch shows to a layer whose sample takes no row with a hash above `highest_hash`.
  static Result<LayerStatistics> measure(const Stream& stream, const TensorRef& rows,
                                         std::int64_t channels, const StatisticsOptions& options,
                                         std::uint64_t highest_hash);
  [[nodiscard]] std::uint64_t highest_hash() const noexcept;
  void add(LayerStatistics other);
  void keep(Row row);
  void reduce(const StatisticsOptions& options);

  StatisticsOptions options_;
  std::int64_t count_ = 0;
  std::vector<float> absmax_, min_, max_;
  std::vector<std::int64_t> histogram_;
  std::vector<Row> sample_;
};

/// What all layers of a model saw, by their names in its checkpoint. Any number of threads may use
/// one object at once, and each batch counts once; only `find` and `layers`, which lend what an
/// update changes, are for when all updates and merges are done.
class Statistics {
 public:
  explicit Statistics(const StatisticsOptions& options = {}) : options_(options) {}
  Statistics(const Statistics& other);
  Statistics(Statistics&& other) noexcept = default;
  Statistics& operator=(Statistics other) noexcept;
  ~Statistics() = default;

  /// Adds rows to a layer; its first batch says how many channels it has.
  Status update(const Stream& stream, std::string_view layer, const TensorRef& rows);
  /// Adds what another one saw, layer by layer; itself too.
  Status merge(const Statistics& other);

  /// What a layer saw until now.
  [[nodiscard]] std::optional<LayerStatistics> layer(std::string_view layer) const;
  /// The names of all layers, in order.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] StatisticsOptions options() const;

  using Layers = std::map<std::string, LayerStatistics, std::less<>>;
  [[nodiscard]] const Layers& layers() const noexcept { return layers_; }
  [[nodiscard]] const LayerStatistics* find(std::string_view layer) const noexcept;

  Status write(const std::filesystem::path& path) const;
  /// Refuses what is incomplete, of the wrong shape, or not finite, by file and tensor.
  static Result<Statistics> read(const std::filesystem::path& path);

 private:
  StatisticsOptions options_;
  Layers layers_;
};

}  // namespace octavo
