// Who loads what: results that neither vLLM nor transformers would take are refused, and those that
// only one of them takes unless it is the one that was asked for. docs/offline.md has the table;
// tests/compressed_tensors/models.py holds transformers to it.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/check.hpp"
#include "offline/checkpoint_parts.hpp"

namespace octavo::offline {

using detail::unsupported;

namespace {

std::string_view name(Loader loader) { return loader == Loader::vllm ? "vLLM" : "transformers"; }

// `loader` alone takes the result; `why` says what the other one does, and what it would take.
Status taken_by(Loader loader, QuantizePlan& plan, const std::string& why) {
  // Without a config.json there is nothing to load: tensors are all that is wanted.
  if (plan.options.loader == loader || plan.checkpoint->config().empty()) {
    plan.notes.push_back(fmt::format("{} alone loads this: {}", name(loader), why));
    return {};
  }
  return unsupported(
      "loader", fmt::format("expected a result that {}, got one that {} alone loads: {}; or write "
                            "it for {} alone: --loader {}",
                            plan.options.loader == Loader::both
                                ? "both vLLM and transformers load"
                                : fmt::format("{} loads", name(plan.options.loader)),
                            name(loader), why, name(loader),
                            loader == Loader::vllm ? "vllm" : "transformers"));
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
      return unsupported("ignore",
                         fmt::format("expected all of {}* to be treated alike, for they run as "
                                     "one, got {} float ({}) and others quantized",
                                     experts, parent(kept.name), kept.reason));
  }
  if (!quantized.empty() && scheme == Scheme::w8a8_static)
    return unsupported(
        "scheme",
        fmt::format("expected w8a8-dynamic or w4a16-group for experts, got w8a8-static for "
                    "{}*, which nothing loads: vLLM finds the scales of their inputs while "
                    "running, and transformers reads no int8 experts. Take another scheme, "
                    "or ignore *.experts.*",
                    *quantized.begin()));
  if (any_float || (!quantized.empty() && scheme != Scheme::w4a16_group))
    return taken_by(Loader::vllm, plan,
                    "of a quantized model transformers reads experts in int4 alone; take "
                    "w4a16-group for all experts");
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
      return unsupported(
          "checkpoint",
          fmt::format("expected layers that vLLM or transformers loads, got {}, a Conv1D "
                      "with weights [in, out]: transformers loads nn.Linear alone, and "
                      "vLLM turns the weights of GPT-2 alone. octavo.torch.quantize_model_ "
                      "quantizes such a model in Python",
                      conv1d->name));
    if (Status s = taken_by(
            Loader::vllm, plan,
            "the layers of GPT-2 are Conv1D, and transformers loads nn.Linear alone (int8 weights "
            "stop it, in int4 it starts with random ones); for PyTorch, "
            "octavo.torch.quantize_model_ quantizes the float model in place");
        !s)
      return s;
  }
  if (architecture == "falcon" && int4)
    if (Status s = taken_by(Loader::vllm, plan,
                            "the FalconLinear of transformers insists on a float weight; take "
                            "w8a8-dynamic or w8a8-static");
        !s)
      return s;
  if (architecture == "bloom" && scheme != Scheme::w8a8_dynamic &&
      first_layer(plan, [](const LinearLayer& layer) {
        return last_part(layer.name) == "query_key_value";
      }) != nullptr)
    if (Status s = taken_by(Loader::transformers, plan,
                            "vLLM reorders every tensor of BLOOM's query_key_value as rows of the "
                            "heads; take w8a8-dynamic, or --ignore '*.query_key_value'");
        !s)
      return s;
  if (!int4)
    plan.notes.emplace_back("vLLM has no int8 matrix product for GPUs of compute capability 10.0");
  return {};
}

}  // namespace octavo::offline
