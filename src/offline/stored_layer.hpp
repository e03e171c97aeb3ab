// A quantized layer as it lies in a checkpoint.
#pragma once

#include "offline/checkpoint_parts.hpp"
#include "offline/slab.hpp"

namespace octavo::offline {

class StoredLayer {
 public:
  /// Whether a checkpoint has this layer in quantized form.
  static bool exists(const SafetensorsSet& tensors, const std::string& layer);
  /// Refuses a layer that is quantized and that config.json does not list so, and the other way
  /// round: a loader goes by the one and reads the other.
  static Status check_listed(const SafetensorsSet& tensors, const LinearLayer& layer,
                             const ConfigScheme& config);
  /// Checks the types and shapes of its tensors against the float layer and the scheme.
  static Result<StoredLayer> open(const SafetensorsSet& tensors, const LinearLayer& layer,
                                  const ConfigScheme& config);
  /// Some of its rows, as plans take them.
  void read(std::int64_t first, std::int64_t count, QuantizedSlab& out) const;

  double input_scale = 1.0;  // of static activations

 private:
  LinearLayer layer_;
  std::int64_t group_size_ = 0;
  TensorRef weight_;  // s8 [n, k], if not packed
  std::span<const std::byte> packed_;
  DType compute_ = DType::f32;
  std::vector<std::byte> scales_;  // [n, groups], in the compute type
  std::size_t scales_per_row_ = 1;
};

}  // namespace octavo::offline
