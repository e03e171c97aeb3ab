// What the files of a quantized checkpoint hold, and how each tensor comes about.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "octavo/checkpoint.hpp"
#include "offline/resolved_scales.hpp"
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

/// The bytes of all tensors of the result, and of those of one layer.
std::uint64_t output_bytes(const QuantizePlan& plan);
std::uint64_t stored_bytes(const QuantizePlan& plan, const PlannedLayer& planned);

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
  std::unordered_map<std::string, Smoothed> smoothed_;
};

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
