// A quantized layer as it lies in a checkpoint.
#pragma once

#include "offline/checkpoint_parts.hpp"
#include "offline/slab.hpp"

namespace octavo::offline {

class StoredLayer {
 public:
  /// Whether a checkpoint has this layer in quantized form.
  static bool exists(const SafetensorsSet& tensors, const std::string& layer);
  /// The settings of a layer that is quantized, null of one that is float. Refuses one that is
  /// quantized and that config.json does not list so, and the other way round: a loader goes by the
  /// one and reads the other.
  static Result<const ConfigGroup*> listed(const SafetensorsSet& tensors, const LinearLayer& layer,
                                           const ConfigSettings& config);
  /// Checks the types and shapes of its tensors against the float layer and the settings.
  static Result<StoredLayer> open(const SafetensorsSet& tensors, const LinearLayer& layer,
                                  const LayerForm& form, bool one_scale = false);
  /// Some of its rows, as plans take them.
  void read(std::int64_t first, std::int64_t count, QuantizedSlab& out) const;

  double input_scale = 1.0;  // of static activations
  std::uint64_t bytes = 0;   // of all of its tensors

 private:
  Status read_scales(const SafetensorsSet& tensors, bool one_scale);
  Status read_packed(const SafetensorsSet& tensors);
  Status read_input_scale(const SafetensorsSet& tensors);
  LinearLayer layer_;
  LayerForm form_;
  TensorRef weight_;  // s8 [n, k], if not packed
  std::span<const std::byte> packed_;
  std::span<const std::byte> zero_points_;  // packed
  DType compute_ = DType::f32;
  std::vector<std::byte> scales_;  // [n, groups], in the compute type
  std::size_t scales_per_row_ = 1;
};

}  // namespace octavo::offline
