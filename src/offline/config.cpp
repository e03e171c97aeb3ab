// config.json: what it says of a model, and what is added to it.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "offline/checkpoint_parts.hpp"
#include "offline/files.hpp"
#include "offline/json_text.hpp"

namespace octavo::offline {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// The newest release of compressed-tensors whose fields are all written here.
constexpr const char* compressed_tensors_version = "0.12.2";

Result<Json> parse_object(const std::string& path, const std::string& text) {
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

bool is_true(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}
bool is_false(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && !found->get<bool>();
}

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

// Layers that stay float. Heads are named even if they are tied to the embedding and not stored:
// loaders would look for their scales.
std::vector<std::string> ignored(const QuantizePlan& plan) {
  std::set<std::string> names{"lm_head"};
  if (plan.checkpoint->pairs().architecture == "bert")
    names.insert({"cls.predictions.decoder", "lm_head.decoder", "vocab_projector"});
  for (const KeptTensor& kept : plan.kept)
    if (kept.is_linear) names.insert(kept.name.substr(0, kept.name.rfind('.')));
  for (const PlannedLayer& planned : plan.layers) names.erase(planned.layer.name);
  return {names.begin(), names.end()};
}

OrderedJson quantization_config(const QuantizePlan& plan) {
  const Scheme scheme = plan.options.scheme;
  OrderedJson weights{{"num_bits", 8},
                      {"type", "int"},
                      {"symmetric", true},
                      {"strategy", "channel"},
                      {"dynamic", false}};
  OrderedJson activations;
  if (scheme == Scheme::w4a16_group) {
    weights["num_bits"] = 4;
    weights["strategy"] = "group";
    weights["group_size"] = plan.group_size;
  } else {
    const bool fixed = scheme == Scheme::w8a8_static;
    activations = {{"num_bits", 8},
                   {"type", "int"},
                   {"symmetric", true},
                   {"strategy", fixed ? "tensor" : "token"},
                   {"dynamic", !fixed}};
  }
  const char* format = scheme == Scheme::w4a16_group ? "pack-quantized" : "int-quantized";
  // In the group too: for a class derived from nn.Linear (FalconLinear) older readers infer none.
  OrderedJson group{{"targets", {"Linear"}},
                    {"weights", weights},
                    {"input_activations", activations},
                    {"output_activations", nullptr},
                    {"format", format}};
  return {
      {"quant_method", "compressed-tensors"},
      {"format", format},
      {"quantization_status", "compressed"},
      {"version", compressed_tensors_version},
      {"global_compression_ratio", nullptr},
      {"kv_cache_scheme", nullptr},
      {"ignore", ignored(plan)},
      {"sparsity_config", OrderedJson::object()},
      {"transform_config", OrderedJson::object()},
      {"config_groups", {{"group_0", group}}},
  };
}

}  // namespace

Result<ConfigTraits> read_config_traits(const std::string& path, const std::string& text) {
  const auto config = parse_object(path, text);
  if (!config) return config.error();
  ConfigTraits out;
  if (const auto type = config->find("model_type"); type != config->end() && type->is_string())
    out.traits.model_type = type->get<std::string>();
  out.traits.norm_feeds_residual = is_false(*config, "do_layer_norm_before") ||
                                   is_true(*config, "apply_residual_connection_post_layernorm");
  out.quantized = config->contains("quantization_config");
  return out;
}

Result<std::string> quantized_config(const QuantizePlan& plan) {
  // Added as text before the last brace, so that nothing else of the file changes.
  std::string text = plan.checkpoint->config().empty() ? "{\n}\n" : plan.checkpoint->config();
  const std::size_t brace = text.rfind('}');
  if (brace == std::string::npos) return bad_file("config.json", "expected a JSON object");
  const std::size_t last = text.find_last_not_of(" \t\r\n", brace - 1);
  std::string added = quantization_config(plan).dump(2);
  for (std::size_t at = added.find('\n'); at != std::string::npos; at = added.find('\n', at + 3))
    added.insert(at + 1, "  ");
  const std::string_view comma = text[last] == '{' ? "" : ",";
  return fmt::format("{}{}\n  \"quantization_config\": {}\n{}", text.substr(0, last + 1), comma,
                     added, text.substr(brace));
}

bool NamedModules::contains(const SafetensorsSet& tensors, std::string_view module) const {
  const auto is_named = [&](const std::string& entry) {
    // Of a loader's own prefixes the names of tensors have fewer, unless there is a module of that
    // name.
    return entry == module ||
           (entry.ends_with(module) && entry[entry.size() - module.size() - 1] == '.' &&
            !tensors.find(entry + ".weight") && !tensors.find(entry + ".weight_packed"));
  };
  return names.contains("Linear") || names.contains("Conv1D") ||
         std::any_of(names.begin(), names.end(), is_named) ||
         std::any_of(patterns.begin(), patterns.end(),
                     [&](const Pattern& p) { return p.matches(module); });
}

Result<ConfigScheme> read_config_scheme(const std::string& path, const std::string& text) {
  const auto config = parse_object(path, text);
  if (!config) return config.error();
  const auto wrong = [&](std::string_view what) {
    return bad_file(path, fmt::format("expected a quantization_config of compressed-tensors with "
                                      "{}, got another",
                                      what));
  };
  const Json quantization = field(*config, "quantization_config");
  if (quantization.is_null())
    return bad_file(path, "expected a quantized checkpoint, got no quantization_config");
  if (!quantization.is_object()) return wrong("one group of settings");
  if (field(quantization, "quant_method") != "compressed-tensors") return wrong("its quant_method");
  const Json groups = field(quantization, "config_groups");
  if (!groups.is_object() || groups.size() != 1 || !groups.begin()->is_object())
    return wrong("one group of settings");
  const Json& group = *groups.begin();
  const Json weights = field(group, "weights"), inputs = field(group, "input_activations");
  if (!weights.is_object()) return wrong("weights of 4 or 8 bits");
  for (const Json& numbers : {weights, inputs})
    if (numbers.is_object() &&
        (field(numbers, "type", "int") != "int" || field(numbers, "symmetric", true) != true))
      return wrong("symmetric integers");

  ConfigScheme out;
  auto targets = read_names(path, "targets", field(group, "targets"));
  if (!targets) return targets.error();
  auto ignore = read_names(path, "ignore", field(quantization, "ignore", Json::array()));
  if (!ignore) return ignore.error();
  out.targets = *std::move(targets);
  out.ignore = *std::move(ignore);

  const Json bits = field(weights, "num_bits", 8), size = field(weights, "group_size");
  const Json strategy = field(weights, "strategy", size.is_null() ? "tensor" : "group");
  const Json format = field(quantization, "format");
  if (bits == 8 && inputs.is_object() && field(inputs, "num_bits", 8) == 8) {
    const Json dynamic = field(inputs, "dynamic", false);
    if (strategy != "channel" && strategy != "tensor")
      return wrong("8-bit weights of strategy channel or tensor");
    if (!dynamic.is_boolean() ||
        field(inputs, "strategy", "tensor") != (dynamic == true ? "token" : "tensor"))
      return wrong("activations that are dynamic per token, or static per tensor");
    if (!format.is_null() && format != "int-quantized" && format != "naive-quantized")
      return wrong("8-bit weights in the format int-quantized");
    out.scheme = dynamic == true ? Scheme::w8a8_dynamic : Scheme::w8a8_static;
    out.one_scale = strategy == "tensor";
    return out;
  }
  if (bits == 4 && inputs.is_null() && strategy == "group" && size.is_number_integer() &&
      size > 0) {
    if (!format.is_null() && format != "pack-quantized")
      return wrong("4-bit weights in the format pack-quantized");
    out.scheme = Scheme::w4a16_group;
    out.group_size = size.get<std::int64_t>();
    return out;
  }
  return wrong("W8A8 or W4A16 per group");
}

}  // namespace octavo::offline
