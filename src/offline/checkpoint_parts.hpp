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

/// What a module is, by its name.
LayerKind kind_of(std::string_view module);

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

/// What patterns make of modules, none for float. Modules that none names are not in it.
using Choices = std::map<std::string, std::optional<Scheme>>;
Result<Choices> choose_schemes(const Checkpoint& checkpoint, const QuantizeOptions& options);
/// The names of all schemes, in a sentence: "a, b or c"; with another one at the end.
std::string scheme_words(std::string_view last = {});

/// Why a layer cannot have this form; empty if it can.
std::string unfit(const LinearLayer& layer, const LayerForm& form);
/// Of the usual sizes of groups the largest that leaves the fewest weights of these layers float.
std::int64_t best_group_size(const std::vector<const LinearLayer*>& layers);

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
  /// How closely a layer of the checkpoint with these tensors is named; by_suffix: with a prefix
  /// that the modules of a loader have.
  enum class Match : std::uint8_t { none, by_class, by_pattern, by_suffix, by_name };
  [[nodiscard]] Match match(const SafetensorsSet& tensors, const LinearLayer& layer) const;
};

/// One of the config_groups of a config.json.
struct ConfigGroup {
  std::string name = {};
  LayerForm form = {};
  bool one_scale = false;  // for a whole weight
  NamedModules targets = {};
};

/// What a config.json says of the quantization of a checkpoint.
struct ConfigSettings {
  std::string path = {};
  std::vector<ConfigGroup> groups = {};
  NamedModules ignore = {};
  /// The group that names a layer most closely, null if it is float; two that name it alike are an
  /// error.
  [[nodiscard]] Result<const ConfigGroup*> group_of(const SafetensorsSet& tensors,
                                                    const LinearLayer& layer) const;
};
Result<ConfigSettings> read_config_settings(const std::string& path, const std::string& text);

struct ConfigTraits {
  ModelTraits traits;
  bool quantized = false;
};
Result<ConfigTraits> read_config_traits(const std::string& path, const std::string& text);

/// The smoothing scales of each norm, from the file beside a checkpoint; empty without one.
Result<std::map<std::string, std::vector<float>>> read_smoothing(
    const std::filesystem::path& directory);

}  // namespace octavo::offline
