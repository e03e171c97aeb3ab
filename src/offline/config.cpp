// config.json: what it says of a model, and what is added to it.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "offline/checkpoint_parts.hpp"
#include "offline/files.hpp"

namespace octavo::offline {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// The newest release of compressed-tensors whose fields are all written here.
constexpr const char* compressed_tensors_version = "0.12.2";

Result<Json> parse_object(const std::string& path, const std::string& text) {
  Json config = Json::parse(text, nullptr, false);
  if (config.is_discarded()) return bad_file(path, "expected JSON");
  if (!config.is_object()) return bad_file(path, "expected a JSON object");
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

Result<ConfigScheme> read_config_scheme(const std::string& path, const std::string& text) {
  const auto config = parse_object(path, text);
  if (!config) return config.error();
  const auto wrong = [&](std::string_view what) {
    return bad_file(path, fmt::format("expected a quantization_config of compressed-tensors with "
                                      "{}, got another",
                                      what));
  };
  if (!config->contains("quantization_config"))
    return bad_file(path, "expected a quantized checkpoint, got no quantization_config");
  const Json quantization = config->value("quantization_config", Json());
  if (!quantization.is_object()) return wrong("one group of settings");
  const Json groups = quantization.value("config_groups", Json());
  if (!groups.is_object() || groups.size() != 1 || !groups.begin()->is_object())
    return wrong("one group of settings");
  const Json& group = *groups.begin();
  const Json weights = group.value("weights", Json());
  if (!weights.is_object() || !weights.value("num_bits", Json()).is_number_integer())
    return wrong("weights of 4 or 8 bits");
  const Json inputs = group.value("input_activations", Json());
  ConfigScheme out;
  if (weights["num_bits"] == 8 && inputs.is_object()) {
    out.scheme = is_true(inputs, "dynamic") ? Scheme::w8a8_dynamic : Scheme::w8a8_static;
    return out;
  }
  const Json size = weights.value("group_size", Json());
  if (weights["num_bits"] == 4 && inputs.is_null() && size.is_number_integer() && size > 0) {
    out.scheme = Scheme::w4a16_group;
    out.group_size = size.get<std::int64_t>();
    return out;
  }
  return wrong("W8A8 or W4A16 per group");
}

}  // namespace octavo::offline
