// config.json: what it says of a model, and what is added to it.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "offline/checkpoint_parts.hpp"
#include "offline/config_json.hpp"
#include "offline/files.hpp"
#include "offline/slab.hpp"

namespace octavo::offline {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// The newest release of compressed-tensors whose fields are all written here.
constexpr const char* compressed_tensors_version = "0.12.2";

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

const char* format_of(const LayerForm& form) {
  return is_packed(form.scheme) ? "pack-quantized" : "int-quantized";
}

// Several forms are for layers by name: to vLLM a class means its fused layers sooner than the
// names of their parts. With one form a class will do for linear layers, whatever a loader calls
// them.
std::vector<std::string> targets_of(const QuantizePlan& plan, const LayerForm& form, bool single) {
  std::vector<std::string> names;
  if (single) names.emplace_back("Linear");
  for (const PlannedLayer& planned : plan.layers)
    if (planned.form == form && (!single || planned.layer.kind != LayerKind::linear))
      names.push_back(planned.layer.name);
  return names;
}

OrderedJson group_of(const QuantizePlan& plan, const LayerForm& form, bool single) {
  OrderedJson weights{{"num_bits", weight_bits(form.scheme)},
                      {"type", "int"},
                      {"symmetric", !form.asymmetric},
                      {"strategy", form.group_size > 0 ? "group" : "channel"},
                      {"dynamic", false}};
  if (form.group_size > 0) weights["group_size"] = form.group_size;
  OrderedJson activations;
  if (form.scheme != Scheme::w8a16 && form.scheme != Scheme::w4a16_group) {
    const bool fixed = form.scheme == Scheme::w8a8_static;
    activations = {{"num_bits", 8},
                   {"type", "int"},
                   {"symmetric", true},
                   {"strategy", fixed ? "tensor" : "token"},
                   {"dynamic", !fixed}};
  }
  // The format in the group too: for w4a8 readers would infer another, and for a class derived from
  // nn.Linear (FalconLinear) older ones infer none.
  return {{"targets", targets_of(plan, form, single)},
          {"weights", weights},
          {"input_activations", activations},
          {"output_activations", nullptr},
          {"format", format_of(form)}};
}

OrderedJson quantization_config(const QuantizePlan& plan) {
  const std::vector<FormCount> forms = forms_of(plan);
  OrderedJson groups;
  for (std::size_t i = 0; i < forms.size(); ++i)
    groups[fmt::format("group_{}", i)] = group_of(plan, forms[i].form, forms.size() == 1);
  return {
      {"quant_method", "compressed-tensors"},
      {"format", forms.size() == 1 ? format_of(forms[0].form) : "mixed-precision"},
      {"quantization_status", "compressed"},
      {"version", compressed_tensors_version},
      {"global_compression_ratio", nullptr},
      {"kv_cache_scheme", nullptr},
      {"ignore", ignored(plan)},
      {"sparsity_config", OrderedJson::object()},
      {"transform_config", OrderedJson::object()},
      {"config_groups", groups},
  };
}

}  // namespace

Result<ConfigTraits> read_config_traits(const std::string& path, const std::string& text) {
  const auto config = parse_config(path, text);
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

}  // namespace octavo::offline
