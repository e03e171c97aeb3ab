// Who loads what: which results neither vLLM nor transformers would take, and which only one of
// them. docs/offline.md has the table; tests/compressed_tensors/models.py holds transformers to it.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "offline/checkpoint_parts.hpp"

namespace octavo::offline {
namespace {

Error refuse(const char* argument, const std::string& text) {
  return {ErrorCode::unsupported, argument, fmt::format("{}: {}", argument, text)};
}

template <class Wanted>
const LinearLayer* first_layer(const QuantizePlan& plan, const Wanted& wanted) {
  const auto found =
      std::find_if(plan.layers.begin(), plan.layers.end(),
                   [&](const PlannedLayer& planned) { return wanted(planned.layer); });
  return found == plan.layers.end() ? nullptr : &found->layer;
}

// What holds the experts that a name belongs to; empty if it is no part of one.
std::string_view experts_of(std::string_view name) {
  constexpr std::string_view word = ".experts.";
  const std::size_t at = name.find(word);
  return at == std::string_view::npos ? std::string_view() : name.substr(0, at + word.size());
}

// Loaders join all experts of a block: vLLM in one layer, transformers 5 in one parameter.
Status check_experts(QuantizePlan& plan) {
  const Scheme scheme = plan.options.scheme;
  std::set<std::string_view> quantized;
  for (const PlannedLayer& planned : plan.layers)
    if (const auto experts = experts_of(planned.layer.name); !experts.empty())
      quantized.insert(experts);
  bool any_float = false;
  for (const KeptTensor& kept : plan.kept) {
    const auto experts = experts_of(kept.name);
    if (experts.empty() || !kept.is_linear) continue;
    any_float = true;
    if (quantized.contains(experts))
      return refuse("ignore",
                    fmt::format("expected all of {}* to be treated alike, for they run as "
                                "one, got {} float ({}) and others quantized",
                                experts, parent(kept.name), kept.reason));
  }
  if (!quantized.empty() && scheme == Scheme::w8a8_static)
    return refuse(
        "scheme",
        fmt::format("expected w8a8-dynamic or w4a16-group for experts, got w8a8-static for "
                    "{}*, which nothing loads: vLLM finds the scales of their inputs while "
                    "running, and transformers reads no int8 experts. Take another scheme, "
                    "or ignore *.experts.*",
                    *quantized.begin()));
  if (any_float || (!quantized.empty() && scheme != Scheme::w4a16_group))
    plan.notes.emplace_back(
        "transformers does not load this: of a quantized model it reads experts in int4 alone; "
        "vLLM "
        "loads it. For transformers, take w4a16-group for all experts");
  return {};
}

}  // namespace

Status check_loaders(QuantizePlan& plan) {
  const Scheme scheme = plan.options.scheme;
  const std::string_view architecture = plan.checkpoint->pairs().architecture;
  const bool int4 = scheme == Scheme::w4a16_group;
  if (Status s = check_experts(plan); !s) return s;
  // compressed-tensors treats nn.Linear alone, and transformers loads what is left as it may.
  if (const LinearLayer* conv1d =
          first_layer(plan, [](const LinearLayer& layer) { return layer.transposed; })) {
    if (architecture != "gpt2")
      return refuse(
          "checkpoint",
          fmt::format("expected layers that vLLM or transformers loads, got {}, a Conv1D "
                      "with weights [in, out]: transformers loads nn.Linear alone, and "
                      "vLLM turns the weights of GPT-2 alone. octavo.torch.quantize_model_ "
                      "quantizes such a model in Python",
                      conv1d->name));
    plan.notes.emplace_back(
        "transformers cannot run this: the layers of GPT-2 are Conv1D, and it loads nn.Linear "
        "alone "
        "(in int4 it starts with random weights). vLLM turns them. For PyTorch, "
        "octavo.torch.quantize_model_ quantizes the float model in place");
  }
  if (architecture == "falcon" && int4)
    plan.notes.emplace_back(
        "transformers does not load Falcon in int4: its FalconLinear insists on a float weight; "
        "vLLM "
        "loads it. For transformers, take w8a8-dynamic or w8a8-static");
  if (architecture == "bloom" && scheme != Scheme::w8a8_dynamic &&
      first_layer(plan, [](const LinearLayer& layer) {
        return last_part(layer.name) == "query_key_value";
      }) != nullptr)
    plan.notes.emplace_back(
        "vLLM does not load BLOOM so: it reorders every tensor of query_key_value as rows of the "
        "heads; transformers loads it. For vLLM, take w8a8-dynamic, or ignore *.query_key_value");
  if (!int4)
    plan.notes.emplace_back("vLLM has no int8 matrix product for GPUs of compute capability 10.0");
  return {};
}

}  // namespace octavo::offline
