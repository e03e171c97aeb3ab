// Who loads what: results that neither vLLM nor transformers would take are refused, and those that
// only one of them takes unless it is the one that was asked for. docs/offline.md has the table;
// tests/compressed_tensors/models.py holds transformers to it.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/check.hpp"
#include "offline/checkpoint_parts.hpp"
#include "offline/slab.hpp"

namespace octavo::offline {

using detail::unsupported;

namespace {

std::string_view name(Loader loader) { return loader == Loader::vllm ? "vLLM" : "transformers"; }

// `loader` alone takes the result; `why` says what the other one does, and what it would take.
Status taken_by(Loader loader, QuantizePlan& plan, const std::string& why) {
  // Without a config.json there is nothing to load: tensors are all that is wanted.
  if (plan.options.loader == loader || plan.options.loader == Loader::none ||
      plan.checkpoint->config().empty()) {
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

// Nothing takes the result: `expected` says so, and what to do instead.
Status taken_by_nobody(QuantizePlan& plan, const char* argument, const std::string& expected) {
  if (plan.options.loader != Loader::none) return unsupported(argument, expected);
  plan.notes.push_back(fmt::format("Octavo alone reads this: {}", expected));
  return {};
}

template <class Wanted>
const PlannedLayer* first_layer(const QuantizePlan& plan, const Wanted& wanted) {
  const auto found = std::find_if(plan.layers.begin(), plan.layers.end(), wanted);
  return found == plan.layers.end() ? nullptr : &*found;
}

bool uses(const QuantizePlan& plan, Scheme scheme) {
  return first_layer(plan, [&](const PlannedLayer& p) { return p.form.scheme == scheme; }) !=
         nullptr;
}

// What holds the experts that a name belongs to; empty if it is no part of one.
std::string_view experts_of(std::string_view name) {
  constexpr std::string_view word = ".experts.";
  const std::size_t at = name.find(word);
  return at == std::string_view::npos ? std::string_view() : name.substr(0, at + word.size());
}

// Loaders join all experts of a block: vLLM in one layer, transformers 5 in one parameter.
Status check_experts(QuantizePlan& plan) {
  std::map<std::string_view, const PlannedLayer*> quantized;
  for (const PlannedLayer& planned : plan.layers) {
    const auto experts = experts_of(planned.layer.name);
    if (experts.empty()) continue;
    const auto [first, added] = quantized.emplace(experts, &planned);
    if (!added && first->second->form != planned.form)
      return unsupported(
          "layer", fmt::format("expected all of {}* to have one scheme, for they "
                               "run as one, got {} for {} and {} for {}",
                               experts, name(first->second->form.scheme), first->second->layer.name,
                               name(planned.form.scheme), planned.layer.name));
  }
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
  bool only_int4 = forms_of(plan).size() == 1;
  const PlannedLayer* unread = nullptr;
  const PlannedLayer* asymmetric = nullptr;
  for (const auto& [experts, planned] : quantized) {
    const LayerForm& form = planned->form;
    only_int4 = only_int4 && form.scheme == Scheme::w4a16_group;
    if (form.scheme == Scheme::w8a8_static || form.scheme == Scheme::w4a8_group) unread = planned;
    if (form.asymmetric) asymmetric = planned;
  }
  if (unread != nullptr) {
    const Scheme scheme = unread->form.scheme;
    return taken_by_nobody(
        plan, "scheme",
        fmt::format("expected w8a8-dynamic or w4a16-group for experts, got {} for {}*, which "
                    "nothing loads: {}. Take another scheme, or ignore *.experts.*",
                    name(scheme), experts_of(unread->layer.name),
                    scheme == Scheme::w8a8_static
                        ? "vLLM finds the scales of their inputs while running, and transformers "
                          "reads no int8 experts"
                        : "vLLM reads int4 experts with int8 inputs from bytes, and transformers "
                          "with float inputs alone"));
  }
  if (asymmetric != nullptr)
    if (Status s = taken_by(Loader::transformers, plan,
                            "the int4 experts of vLLM are symmetric; leave --asymmetric out");
        !s)
      return s;
  if (any_float || (!quantized.empty() && !only_int4))
    return taken_by(Loader::vllm, plan,
                    "of a quantized model transformers reads experts in int4 alone; take "
                    "w4a16-group for all experts");
  return {};
}

// Tables of embeddings in int8.
Status check_embeddings(QuantizePlan& plan) {
  const PlannedLayer* table =
      first_layer(plan, [](const PlannedLayer& p) { return p.layer.kind == LayerKind::embedding; });
  if (table == nullptr) return {};
  const auto is_head = [](const LinearLayer& l) { return l.kind == LayerKind::head; };
  const std::vector<LinearLayer>& named = plan.checkpoint->named_layers();
  if (!plan.checkpoint->config().empty() && std::none_of(named.begin(), named.end(), is_head))
    return taken_by_nobody(
        plan, "layer",
        fmt::format(
            "expected a table of embeddings that nothing else reads, got {} in a checkpoint "
            "without a head: where the head is tied to it neither vLLM nor transformers "
            "loads it in int8; leave it float, or write it for Octavo alone: --loader none",
            table->layer.name));
  return taken_by(
      Loader::vllm, plan,
      "transformers reads nn.Linear alone in int8, and embeddings as floats; vLLM reads "
      "them from 0.29 on, on GPUs, in models that hand the settings to their "
      "embeddings; leave " +
          table->layer.name + " float");
}

}  // namespace

Status check_loaders(QuantizePlan& plan) {
  const std::string_view architecture = plan.checkpoint->pairs().architecture;
  if (Status s = check_experts(plan); !s) return s;
  if (Status s = check_embeddings(plan); !s) return s;
  // compressed-tensors treats nn.Linear alone, and transformers loads what is left as it may.
  if (const PlannedLayer* conv1d =
          first_layer(plan, [](const PlannedLayer& p) { return p.layer.transposed; })) {
    Status s =
        architecture == "gpt2"
            ? taken_by(Loader::vllm, plan,
                       "the layers of GPT-2 are Conv1D, and transformers loads nn.Linear alone "
                       "(int8 weights stop it, in int4 it starts with random ones); for PyTorch, "
                       "octavo.torch.quantize_model_ quantizes the float model in place")
            : taken_by_nobody(
                  plan, "checkpoint",
                  fmt::format("expected layers that vLLM or transformers loads, got {}, a Conv1D "
                              "with weights [in, out]: transformers loads nn.Linear alone, and "
                              "vLLM turns the weights of GPT-2 alone. octavo.torch.quantize_model_ "
                              "quantizes such a model in Python",
                              conv1d->layer.name));
    if (!s) return s;
  }
  if (architecture == "falcon" && first_layer(plan, [](const PlannedLayer& p) {
                                    return p.layer.kind == LayerKind::linear &&
                                           is_packed(p.form.scheme);
                                  }) != nullptr)
    if (Status s = taken_by(Loader::vllm, plan,
                            "the FalconLinear of transformers insists on a float weight; take "
                            "w8a8-dynamic or w8a8-static");
        !s)
      return s;
  if (architecture == "bloom" && first_layer(plan, [](const PlannedLayer& p) {
                                   return p.form.scheme != Scheme::w8a8_dynamic &&
                                          last_part(p.layer.name) == "query_key_value";
                                 }) != nullptr)
    if (Status s = taken_by(Loader::transformers, plan,
                            "vLLM reorders every tensor of BLOOM's query_key_value as rows of the "
                            "heads; take w8a8-dynamic, or --ignore '*.query_key_value'");
        !s)
      return s;
  if (uses(plan, Scheme::w8a8_dynamic) || uses(plan, Scheme::w8a8_static))
    plan.notes.emplace_back("vLLM has no int8 matrix product for GPUs of compute capability 10.0");
  if (uses(plan, Scheme::w4a8_group))
    plan.notes.emplace_back(
        "of vLLM the newest releases load w4a8-group, on GPUs of compute capability 7.5 and above; "
        "its kernels for CPUs want int4 weights in bytes (the format int-quantized)");
  return {};
}

}  // namespace octavo::offline
