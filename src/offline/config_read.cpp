// What the quantization_config of a config.json says, ours or another's.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "offline/checkpoint_parts.hpp"
#include "offline/config_json.hpp"
#include "offline/files.hpp"
#include "offline/json_text.hpp"

namespace octavo::offline {
namespace {

using Json = nlohmann::json;

// What stands there; what compressed-tensors takes if nothing does.
Json field(const Json& object, const char* key, const Json& otherwise = nullptr) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? otherwise : *found;
}

// Modules that settings are for, or not for.
Result<NamedModules> read_names(const std::string& path, const char* key, const Json& list) {
  NamedModules out;
  if (!list.is_array())
    return bad_file(path, fmt::format("expected {} of quantization_config to be a list", key));
  for (const Json& entry : list) {
    if (!entry.is_string())
      return bad_file(path, fmt::format("expected names in {} of quantization_config", key));
    const auto text = entry.get<std::string>();
    if (!text.starts_with("re:")) {
      out.names.insert(text);
      continue;
    }
    auto pattern = Pattern::parse(key, text);
    if (!pattern) return bad_file(path, pattern.error().message());
    out.patterns.push_back(*std::move(pattern));
  }
  return out;
}

// Settings that are not measured here.
Error other_settings(const std::string& path, std::string_view expected) {
  return bad_file(path, fmt::format("expected a quantization_config of compressed-tensors with {}, "
                                    "got another",
                                    expected));
}

// Groups of input channels that share a scale; 0: all of a row, or of the weight.
Result<std::int64_t> read_group_size(const std::string& path, const Json& weights,
                                     const Json& strategy) {
  const Json size = field(weights, "group_size");
  const bool whole = size.is_null() || size == -1;
  if (strategy == "group" ? !(size.is_number_integer() && size > 0) : !whole)
    return other_settings(path, "a group_size above 0 for strategy group, and for no other");
  return strategy == "group" ? size.get<std::int64_t>() : 0;
}

// The scheme, and whether the settings are among those that are read.
Result<Scheme> read_scheme(const std::string& path, const Json& weights, const Json& inputs,
                           const Json& strategy, const Json& format) {
  const Json bits = field(weights, "num_bits", 8);
  const bool int8_inputs = inputs.is_object() && field(inputs, "num_bits", 8) == 8;
  if ((bits != 8 && bits != 4) || !(inputs.is_null() || int8_inputs))
    return other_settings(path, "W8A8, W8A16, W4A8 or W4A16");
  const Json dynamic = int8_inputs ? field(inputs, "dynamic", false) : Json(true);
  if (int8_inputs && (!dynamic.is_boolean() || field(inputs, "strategy", "tensor") !=
                                                   (dynamic == true ? "token" : "tensor")))
    return other_settings(path, "activations that are dynamic per token, or static per tensor");
  if (bits == 8 && int8_inputs) {
    if (strategy != "channel" && strategy != "tensor")
      return other_settings(path, "8-bit weights of strategy channel or tensor for W8A8");
    if (!format.is_null() && format != "int-quantized" && format != "naive-quantized")
      return other_settings(path, "8-bit weights in the format int-quantized for W8A8");
    return dynamic == true ? Scheme::w8a8_dynamic : Scheme::w8a8_static;
  }
  if (strategy != "channel" && strategy != "group")
    return other_settings(path, "packed weights of strategy channel or group");
  if (dynamic == false) return other_settings(path, "dynamic activations for W4A8");
  // Without a format readers take what they would have written: of W4A8 int-quantized.
  if (int8_inputs ? format != "pack-quantized" : !format.is_null() && format != "pack-quantized")
    return other_settings(path, "W8A16, W4A8 and W4A16 in the format pack-quantized");
  if (bits == 8) return Scheme::w8a16;
  return int8_inputs ? Scheme::w4a8_group : Scheme::w4a16_group;
}

Result<ConfigGroup> read_group(const std::string& path, const Json& group, const Json& format) {
  const Json weights = field(group, "weights"), inputs = field(group, "input_activations");
  if (!weights.is_object()) return other_settings(path, "weights of 4 or 8 bits");
  for (const Json& numbers : {weights, inputs})
    if (numbers.is_object() && field(numbers, "type", "int") != "int")
      return other_settings(path, "symmetric integers");
  const Json symmetric = field(weights, "symmetric", true);
  if (!symmetric.is_boolean() || (symmetric == false && field(weights, "num_bits", 8) != 4) ||
      (inputs.is_object() && field(inputs, "symmetric", true) != true))
    return other_settings(path, "symmetric integers, but for weights of 4 bits");
  const Json strategy =
      field(weights, "strategy", field(weights, "group_size").is_null() ? "tensor" : "group");
  const auto scheme = read_scheme(path, weights, inputs, strategy, format);
  if (!scheme) return scheme.error();
  const auto size = read_group_size(path, weights, strategy);
  if (!size) return size.error();
  if (*scheme == Scheme::w4a8_group && *size % 4 != 0)
    return other_settings(path, "groups of a multiple of 4 for W4A8");
  auto targets = read_names(path, "targets", field(group, "targets"));
  if (!targets) return targets.error();
  return ConfigGroup{
      {}, {*scheme, *size, symmetric == false}, strategy == "tensor", *std::move(targets)};
}

}  // namespace

Result<Json> parse_config(const std::string& path, const std::string& text) {
  if (Status s = check_json(path, text); !s) return s.error();
  // Of two values readers take the one or the other.
  std::set<std::string> keys;
  std::string twice;
  Json config = Json::parse(
      text,
      [&](int depth, Json::parse_event_t event, Json& value) {
        if (event == Json::parse_event_t::key && depth == 1 &&
            !keys.insert(value.get<std::string>()).second)
          twice = value.get<std::string>();
        return true;
      },
      false);
  if (config.is_discarded()) return bad_file(path, "expected JSON");
  if (!config.is_object()) return bad_file(path, "expected a JSON object");
  if (!twice.empty())
    return bad_file(path, fmt::format("expected one value of {}, got two", in_quotes(twice)));
  return config;
}

NamedModules::Match NamedModules::match(const SafetensorsSet& tensors,
                                        const LinearLayer& layer) const {
  const std::string& module = layer.name;
  const auto is_suffix_of = [&](const std::string& entry) {
    // Of a loader's own prefixes the names of tensors have fewer, unless there is a module of that
    // name.
    return entry.ends_with(module) && entry.size() > module.size() &&
           entry[entry.size() - module.size() - 1] == '.' && !tensors.find(entry + ".weight") &&
           !tensors.find(entry + ".weight_packed");
  };
  if (names.contains(module)) return Match::by_name;
  if (std::any_of(names.begin(), names.end(), is_suffix_of)) return Match::by_suffix;
  if (std::any_of(patterns.begin(), patterns.end(),
                  [&](const Pattern& p) { return p.matches(module); }))
    return Match::by_pattern;
  const bool by_class = layer.kind == LayerKind::embedding
                            ? names.contains("Embedding")
                            : names.contains("Linear") || names.contains("Conv1D");
  return by_class ? Match::by_class : Match::none;
}

Result<const ConfigGroup*> ConfigSettings::group_of(const SafetensorsSet& tensors,
                                                    const LinearLayer& layer) const {
  if (ignore.match(tensors, layer) != NamedModules::Match::none) return nullptr;
  const ConfigGroup* best = nullptr;
  const ConfigGroup* rival = nullptr;
  auto closest = NamedModules::Match::none;
  for (const ConfigGroup& group : groups) {
    const auto match = group.targets.match(tensors, layer);
    if (match == NamedModules::Match::none || match < closest) continue;
    if (match == closest) {
      if (group.form != best->form || group.one_scale != best->one_scale) rival = &group;
      continue;
    }
    rival = nullptr;
    best = &group;
    closest = match;
  }
  // Of those that name it alike some readers take the first, others the last.
  if (rival != nullptr)
    return bad_file(
        path, fmt::format("expected one group of settings for {}, got {} and {}",
                          in_quotes(layer.name), in_quotes(best->name), in_quotes(rival->name)));
  return best;
}

Result<ConfigSettings> read_config_settings(const std::string& path, const std::string& text) {
  const auto config = parse_config(path, text);
  if (!config) return config.error();
  const Json quantization = field(*config, "quantization_config");
  if (quantization.is_null())
    return bad_file(path, "expected a quantized checkpoint, got no quantization_config");
  if (!quantization.is_object()) return other_settings(path, "groups of settings");
  if (field(quantization, "quant_method") != "compressed-tensors")
    return other_settings(path, "its quant_method");
  const Json groups = field(quantization, "config_groups");
  if (!groups.is_object() || groups.empty()) return other_settings(path, "groups of settings");
  ConfigSettings out;
  out.path = path;
  Json common = field(quantization, "format");
  if (common == "mixed-precision") common = nullptr;  // (each group says its own)
  for (const auto& [name, settings] : groups.items()) {
    if (!settings.is_object()) return other_settings(path, "groups of settings");
    const Json format = field(settings, "format", common);
    if (!common.is_null() && format != common)
      return other_settings(path, "the format of its groups");
    auto group = read_group(path, settings, format);
    if (!group) return group.error();
    group->name = name;
    out.groups.push_back(*std::move(group));
  }
  auto ignore = read_names(path, "ignore", field(quantization, "ignore", Json::array()));
  if (!ignore) return ignore.error();
  out.ignore = *std::move(ignore);
  return out;
}

}  // namespace octavo::offline
