// What the parts of checkpoint.hpp share.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint.hpp"
#include "octavo/pattern.hpp"

namespace octavo::offline {

/// A layer's weight seen as [n, k], wherever and however it lies in its file.
TensorRef weight_view(const SafetensorsSet& tensors, const LinearLayer& layer);
/// The same of any tensor of two dimensions.
TensorRef matrix_view(const SafetensorsFile& file, const StoredTensor& tensor, DType type,
                      bool transposed);

/// The last part of a dotted name, and what comes before it.
std::string_view last_part(std::string_view name);
std::string_view parent(std::string_view name);

/// Layers that run as one: the names beside this one, itself included, that a loader fuses it with
/// (q, k, v; gate, up). Empty if it stands alone.
std::vector<std::string> fused_with(const std::string& layer);

/// All linear layers of a checkpoint: those that can be quantized, heads, routers, and those that
/// cannot.
struct LinearWeights {
  std::size_t layers = 0;
  double elements = 0;
};
LinearWeights linear_weights(const Checkpoint& checkpoint);

/// A layer that will be quantized, by its name (layers are sorted by it); null if it stays float.
const PlannedLayer* find_layer(const QuantizePlan& plan, std::string_view name);

/// Layers that read the same input as this one, itself included.
std::vector<std::string> input_sharers(const QuantizePlan& plan, const PlannedLayer& planned);

/// Refuses a result that the loader of the options does not take; notes what only that one takes.
Status check_loaders(QuantizePlan& plan);

/// config.json of the result.
Result<std::string> quantized_config(const QuantizePlan& plan);

/// Modules as a quantization_config lists them: by name, by class, or by a pattern.
struct NamedModules {
  std::set<std::string> names = {};
  std::vector<Pattern> patterns = {};
  /// A module of the checkpoint with these tensors.
  [[nodiscard]] bool contains(const SafetensorsSet& tensors, std::string_view module) const;
};

/// What a config.json says of the quantization of a checkpoint.
struct ConfigScheme {
  Scheme scheme = Scheme::w8a8_dynamic;
  std::int64_t group_size = 0;
  bool one_scale = false;  // for a whole weight
  NamedModules targets = {}, ignore = {};
};
Result<ConfigScheme> read_config_scheme(const std::string& path, const std::string& text);

struct ConfigTraits {
  ModelTraits traits;
  bool quantized = false;
};
Result<ConfigTraits> read_config_traits(const std::string& path, const std::string& text);

/// The smoothing scales of each norm, from the file beside a checkpoint; empty without one.
Result<std::map<std::string, std::vector<float>>> read_smoothing(
    const std::filesystem::path& directory);

}  // namespace octavo::offline
