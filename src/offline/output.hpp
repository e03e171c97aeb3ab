// What the files of a quantized checkpoint hold, and how each tensor comes about.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "octavo/checkpoint.hpp"
#include "offline/measure.hpp"
#include "offline/safetensors_header.hpp"

namespace octavo::offline {

struct OutputTensor {
  enum class Kind {
    copy,      // the bytes of the source
    norm,      // divided by smoothing scales
    scaled,    // a float layer multiplied by them
    quantized  // written with its companions by the layer's slabs
  };
  StoredTensorSpec spec;
  Kind kind = Kind::copy;
  const StoredTensor* source = nullptr;  // of the same file; null for companions
  const PlannedLayer* layer = nullptr;   // of quantized
  std::size_t pair = 0;                  // of norm and scaled
  [[nodiscard]] std::uint64_t bytes() const { return stored_size(spec.type, spec.shape).bytes; }
};

/// What becomes of each tensor, by its name: made once for all files.
class OutputIndex {
 public:
  explicit OutputIndex(const QuantizePlan& plan);
  /// The tensors that replace those of a file.
  [[nodiscard]] std::vector<OutputTensor> tensors_of(const SafetensorsFile& file) const;

 private:
  struct Smoothed {
    OutputTensor::Kind kind = OutputTensor::Kind::norm;
    std::size_t pair = 0;
  };
  const QuantizePlan& plan_;
  std::unordered_map<std::string, const PlannedLayer*> layers_;
  std::unordered_map<std::string, Smoothed> smoothed_;
};

/// A layer that will be quantized, by its name (layers are sorted by it); null if it stays float.
const PlannedLayer* find_layer(const QuantizePlan& plan, std::string_view name);

/// Layers that read the same input as this one, itself included.
std::vector<std::string> input_sharers(const QuantizePlan& plan, const PlannedLayer& planned);

/// What the weights said to a plan: scales of each pair and of static inputs.
struct ResolvedScales {
  std::vector<std::vector<float>> smoothing;  // of each pair
  std::vector<double> alphas;
  std::vector<double> errors;  // of searched alphas
};
Result<ResolvedScales> resolve_scales(const Stream& stream, const QuantizePlan& plan,
                                      const ProgressCallback& progress);

/// The static scale of a layer's input.
float input_scale(const QuantizePlan& plan, const ResolvedScales& scales,
                  const PlannedLayer& planned);

/// Whether there are rows to measure a layer with.
bool has_rows(const QuantizePlan& plan, const LinearLayer& layer);
/// What a layer is measured with, as it is written.
Probe probe_of(const QuantizePlan& plan, const ResolvedScales& scales, const PlannedLayer& planned);

/// One file of the result.
struct ShardJob {
  const QuantizePlan* plan = nullptr;
  const OutputIndex* index = nullptr;
  const ResolvedScales* scales = nullptr;
  const SafetensorsFile* file = nullptr;
  std::filesystem::path to;
  std::function<void(std::uint64_t bytes)> done;  // of input; from any thread
  std::function<void(LayerError)> measured;       // likewise
};
/// Writes those files that are not there already; returns how many were.
Result<int> write_shards(const Stream& stream, std::vector<ShardJob> jobs);

}  // namespace octavo::offline
