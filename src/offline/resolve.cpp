// From options to a plan: which layers, which pairs, which statistics.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/check.hpp"
#include "octavo/checkpoint.hpp"
#include "offline/checkpoint_parts.hpp"
#include "offline/files.hpp"
#include "offline/output.hpp"

namespace octavo {

using detail::invalid;
using namespace offline;

namespace {

// What would make of the result another one than was meant. A loader takes tensors of these names
// for a part of a quantized layer; and in the list of what is float, config.json has classes and
// patterns beside names.
Status check_names(const Checkpoint& checkpoint, const QuantizePlan& plan) {
  for (const PlannedLayer& planned : plan.layers)
    for (const char* end : {".weight_packed", ".weight_scale", ".weight_shape", ".weight_g_idx",
                            ".weight_zero_point", ".input_scale", ".input_zero_point"})
      if (const auto other = checkpoint.tensors().find(planned.layer.name + end))
        return bad_tensor(other.file->path(), other.tensor->name,
                          fmt::format("expected no such tensor beside a float weight, for it would "
                                      "be taken for a part of the quantized one; remove it, or "
                                      "ignore {}",
                                      planned.layer.name));
  const auto stands_for_others = [](std::string_view module) {
    return module == "Linear" || module == "Conv1D" || module.starts_with("re:");
  };
  for (const KeptTensor& kept : plan.kept)
    if (const std::string_view module = parent(kept.name);
        kept.is_linear && stands_for_others(module))
      return invalid(
          "checkpoint",
          fmt::format("expected names of float layers that config.json can list, got {}, "
                      "which stands for others there; rename it, or quantize it, too",
                      in_quotes(module)));
  // With one scheme linear layers are listed by their class.
  const bool by_name = forms_of(plan).size() > 1;
  for (const PlannedLayer& planned : plan.layers)
    if ((by_name || planned.layer.kind != LayerKind::linear) &&
        stands_for_others(planned.layer.name))
      return invalid("checkpoint",
                     fmt::format("expected names of layers that config.json can list, got {}, "
                                 "which stands for others there; rename it, or take one scheme "
                                 "for all layers",
                                 in_quotes(planned.layer.name)));
  return {};
}

bool is_int4(Scheme scheme) { return weight_bits(scheme) == 4; }

// What a layer is to have, none for float.
std::optional<Scheme> wanted(const Choices& choices, const QuantizeOptions& options,
                             const LinearLayer& layer) {
  if (const auto named = choices.find(layer.name); named != choices.end()) return named->second;
  if (layer.kind != LayerKind::linear) return std::nullopt;
  return options.scheme;
}

Status check_group_size(const QuantizeOptions& options) {
  const std::int64_t size = options.group_size.value_or(128);
  const bool any = is_int4(options.scheme) ||
                   std::any_of(options.layers.begin(), options.layers.end(),
                               [](const LayerChoice& c) { return c.scheme && is_int4(*c.scheme); });
  // The products by weights in groups go four channels at a time.
  if (!any || (size >= 0 && size % 4 == 0)) return {};
  return invalid(
      "group_size",
      fmt::format("expected a multiple of 4, or 0 for a scale per channel, got {}", size));
}

std::int64_t group_size_of(const Checkpoint& checkpoint, const QuantizeOptions& options,
                           const Choices& choices) {
  std::vector<const LinearLayer*> layers;
  for (const auto* list : {&checkpoint.layers(), &checkpoint.named_layers()})
    for (const LinearLayer& layer : *list)
      if (const auto scheme = wanted(choices, options, layer); scheme && is_int4(*scheme))
        layers.push_back(&layer);
  if (layers.empty()) return 0;
  return options.group_size ? *options.group_size : best_group_size(layers);
}

LayerForm form_of(const QuantizePlan& plan, Scheme scheme) {
  if (!is_int4(scheme)) return {scheme};
  return {scheme, plan.group_size, plan.options.asymmetric};
}

// Loaders keep fused layers as one weight, with one set of settings.
Status check_fused(const Checkpoint& checkpoint, const QuantizePlan& plan) {
  for (const PlannedLayer& planned : plan.layers)
    for (const std::string& other : fused_with(planned.layer.name)) {
      if (!checkpoint.tensors().find(other + ".weight")) continue;
      const PlannedLayer* beside = find_layer(plan, other);
      if (beside == nullptr)
        return invalid("ignore", fmt::format("expected {} and {} to be treated alike, for they are "
                                             "fused when they run, got only one quantized",
                                             planned.layer.name, other));
      if (beside->form != planned.form)
        return invalid("layer",
                       fmt::format("expected {} and {} to have one scheme, for they are fused when "
                                   "they run, got {} and {}",
                                   planned.layer.name, other, name(planned.form.scheme),
                                   name(beside->form.scheme)));
    }
  return {};
}

// Heads and embeddings that a choice names.
Status choose_named(const Checkpoint& checkpoint, const Choices& choices, QuantizePlan& plan) {
  for (const LinearLayer& layer : checkpoint.named_layers()) {
    const auto scheme = wanted(choices, plan.options, layer);
    if (!scheme) continue;
    if (layer.kind == LayerKind::embedding && *scheme != Scheme::w8a16)
      return invalid("layer", fmt::format("expected w8a16 or float for {}, whose rows are looked "
                                          "up and not multiplied, got {}; --layer {}=float after "
                                          "it leaves it as it is",
                                          layer.name, name(*scheme), layer.name));
    const LayerForm form = form_of(plan, *scheme);
    const auto kept = std::find_if(plan.kept.begin(), plan.kept.end(), [&](const KeptTensor& k) {
      return k.name == layer.name + ".weight";
    });
    if (std::string reason = unfit(layer, form); !reason.empty()) {
      kept->reason = std::move(reason);
      kept->meant = false;
    } else {
      plan.kept.erase(kept);
      plan.layers.push_back({layer, std::nullopt, form});
    }
  }
  return {};
}

Status choose_layers(const Checkpoint& checkpoint, const Choices& choices, QuantizePlan& plan) {
  plan.kept = checkpoint.kept();
  for (KeptTensor& kept : plan.kept)
    if (const auto named = choices.find(std::string(parent(kept.name)));
        !kept.meant && named != choices.end() && !named->second) {
      kept.meant = true;
      kept.reason = "ignored";
    }
  std::string example;
  for (const LinearLayer& layer : checkpoint.layers()) {
    const auto scheme = wanted(choices, plan.options, layer);
    const LayerForm form = form_of(plan, scheme.value_or(plan.options.scheme));
    std::string reason = scheme ? unfit(layer, form) : "ignored";
    if (reason.empty()) {
      plan.layers.push_back({layer, std::nullopt, form});
    } else {
      example = fmt::format(": {}: {}", layer.name, reason);
      plan.kept.push_back({layer.name + ".weight", std::move(reason), true, !scheme,
                           static_cast<std::uint64_t>(layer.n * layer.k)});
    }
  }
  if (Status s = choose_named(checkpoint, choices, plan); !s) return s;
  std::sort(plan.layers.begin(), plan.layers.end(),
            [](const auto& a, const auto& b) { return a.layer.name < b.layer.name; });
  std::sort(plan.kept.begin(), plan.kept.end(),
            [](const KeptTensor& a, const KeptTensor& b) { return a.name < b.name; });
  if (plan.layers.empty())
    return invalid("checkpoint", fmt::format("expected layers to quantize in {}, got none{}",
                                             checkpoint.path().string(), example));
  if (Status s = check_fused(checkpoint, plan); !s) return s;
  return check_names(checkpoint, plan);
}

// The extremes of the input that layers share: of those that have statistics.
Result<std::vector<float>> shared_absmax(const Statistics& statistics,
                                         const std::vector<std::string>& layers, std::int64_t k) {
  std::vector<float> out;
  for (const std::string& name : layers) {
    const LayerStatistics* s = statistics.find(name);
    if (s == nullptr) continue;
    if (s->channels() != k)
      return invalid("statistics",
                     fmt::format("layer {}: expected {} channels, got {}", name, k, s->channels()));
    if (out.empty()) out.assign(s->absmax().size(), 0.0F);
    for (std::size_t j = 0; j < out.size(); ++j) out[j] = std::max(out[j], s->absmax()[j]);
  }
  if (out.empty())
    return invalid("statistics",
                   fmt::format("expected statistics of {}, got none{}", layers.front(),
                               layers.size() > 1 ? " nor of the layers beside it" : ""));
  return out;
}

Status check_norm(const Checkpoint& checkpoint, const std::string& norm, std::int64_t k) {
  for (const char* suffix : {".weight", ".bias"}) {
    const auto entry = checkpoint.tensors().find(norm + suffix);
    if (!entry) continue;
    const auto type = dtype_of_stored(entry.tensor->type);
    if (!type || !is_float(*type) || entry.tensor->shape.size() != 1 ||
        entry.tensor->shape[0] != static_cast<std::uint64_t>(k))
      return bad_tensor(entry.file->path(), entry.tensor->name,
                        fmt::format("expected a float tensor of [{}], as many as the input "
                                    "channels of the layers after it",
                                    k));
  }
  return {};
}

// Input channels of any linear layer, quantized or not.
Result<std::int64_t> channels_of(const Checkpoint& checkpoint, const std::string& module) {
  if (const LinearLayer* layer = checkpoint.layer(module)) return layer->k;
  const auto entry = checkpoint.tensors().find(module + ".weight");
  const auto type = dtype_of_stored(entry.tensor->type);
  if (entry.tensor->shape.size() != 2 || !type || !is_float(*type))
    return bad_tensor(entry.file->path(), entry.tensor->name,
                      "expected a float matrix, for it is to be smoothed");
  return static_cast<std::int64_t>(entry.tensor->shape[1]);
}

Status choose_pairs(const Checkpoint& checkpoint, QuantizePlan& plan) {
  const QuantizeOptions& options = plan.options;
  if (options.alpha && !(*options.alpha >= 0.0 && *options.alpha <= 1.0))
    return invalid("alpha", fmt::format("expected 0 to 1, got {}", *options.alpha));
  const SmoothingPairs& found = checkpoint.pairs();
  std::map<std::string, std::size_t> pair_of;
  for (const SmoothingPair& names : found.pairs) {
    const bool quantized =
        std::any_of(names.linears.begin(), names.linears.end(),
                    [&](const std::string& l) { return find_layer(plan, l) != nullptr; });
    if (!quantized) continue;
    const auto k = channels_of(checkpoint, names.linears.front());
    if (!k) return k.error();
    for (const std::string& linear : names.linears) {
      const auto other = channels_of(checkpoint, linear);
      if (!other) return other.error();
      if (*other != *k)
        return bad_tensor(checkpoint.tensors().find(linear + ".weight").file->path(),
                          linear + ".weight",
                          fmt::format("expected {} input channels, as many as {} has, which reads "
                                      "the same norm, got {}",
                                      *k, names.linears.front(), *other));
      pair_of[linear] = plan.pairs.size();
    }
    if (Status s = check_norm(checkpoint, names.norm, *k); !s) return s;
    auto absmax = shared_absmax(*options.statistics, names.linears, *k);
    if (!absmax) return absmax.error();
    plan.pairs.push_back({names, *std::move(absmax), options.alpha});
  }
  if (plan.pairs.empty())
    return invalid(
        "smooth", fmt::format("expected pairs of a norm and layers, got none: {}; quantize without "
                              "smoothing",
                              found.note.empty() ? "all their layers are ignored" : found.note));
  for (PlannedLayer& planned : plan.layers)
    if (const auto at = pair_of.find(planned.layer.name); at != pair_of.end())
      planned.pair = at->second;
  return {};
}

Status check_search(const QuantizePlan& plan) {
  for (const PlannedPair& pair : plan.pairs) {
    if (pair.alpha) continue;
    const bool sampled =
        std::any_of(pair.names.linears.begin(), pair.names.linears.end(), [&](const auto& linear) {
          const LayerStatistics* s = plan.options.statistics->find(linear);
          return s != nullptr && s->sample_count() > 0;
        });
    if (!sampled)
      return invalid("statistics", fmt::format("expected sampled rows of {} to search alpha with, "
                                               "got none; name an alpha, or gather them",
                                               pair.names.linears.front()));
  }
  return {};
}

// Whether there are rows to measure a layer with.
bool has_rows(const QuantizePlan& plan, const LinearLayer& layer) {
  if (plan.options.statistics == nullptr) return false;
  const LayerStatistics* s = plan.options.statistics->find(layer.name);
  return s != nullptr && s->sample_count() > 0 && s->channels() == layer.k;
}

}  // namespace

Result<QuantizePlan> resolve(const Checkpoint& checkpoint, const QuantizeOptions& options) {
  if (checkpoint.is_quantized())
    return invalid("checkpoint",
                   fmt::format("expected a float checkpoint, got {}, whose config.json "
                               "has a quantization_config",
                               checkpoint.path().string()));
  if (Status s = check_group_size(options); !s) return s.error();
  return guarded(checkpoint.path().string(), [&]() -> Result<QuantizePlan> {
    QuantizePlan plan;
    plan.checkpoint = &checkpoint;
    plan.options = options;
    const auto choices = choose_schemes(checkpoint, options);
    if (!choices) return choices.error();
    plan.group_size = group_size_of(checkpoint, options, *choices);
    if (Status s = choose_layers(checkpoint, *choices, plan); !s) return s.error();
    if (options.strict) {
      std::vector<std::string> left;
      for (const LeftFloat& layers : left_float(plan)) left.push_back(layers.text());
      if (!left.empty())
        return invalid("strict", fmt::format("expected a scheme that takes every layer, got {}",
                                             fmt::join(left, ", and ")));
    }
    if (Status s = check_loaders(plan); !s) return s.error();
    const auto is_static = [](const PlannedLayer& planned) {
      return planned.form.scheme == Scheme::w8a8_static;
    };
    const bool any_static = std::any_of(plan.layers.begin(), plan.layers.end(), is_static);
    if ((options.smooth || any_static) && options.statistics == nullptr)
      return invalid("statistics",
                     fmt::format("expected statistics of activations for {}, got none",
                                 options.smooth ? "smoothing" : name(Scheme::w8a8_static)));
    if (options.smooth) {
      if (Status s = choose_pairs(checkpoint, plan); !s) return s.error();
      if (Status s = check_search(plan); !s) return s.error();
    }
    for (const PlannedLayer& planned : plan.layers)
      if (is_static(planned))
        if (const auto absmax =
                shared_absmax(*options.statistics, input_sharers(plan, planned), planned.layer.k);
            !absmax)
          return absmax.error();
    plan.measured = options.measure &&
                    std::any_of(plan.layers.begin(), plan.layers.end(),
                                [&](const PlannedLayer& p) { return has_rows(plan, p.layer); });
    plan.output_bytes = output_bytes(plan);
    return plan;
  });
}

namespace offline {

const PlannedLayer* find_layer(const QuantizePlan& plan, std::string_view name) {
  const auto found = std::lower_bound(
      plan.layers.begin(), plan.layers.end(), name,
      [](const PlannedLayer& p, std::string_view wanted) { return p.layer.name < wanted; });
  return found != plan.layers.end() && found->layer.name == name ? &*found : nullptr;
}

std::vector<std::string> input_sharers(const QuantizePlan& plan, const PlannedLayer& planned) {
  if (planned.pair) return plan.pairs[*planned.pair].names.linears;
  // Queries, keys and values read one input even where it is not smoothed.
  std::vector<std::string> names = fused_with(planned.layer.name);
  if (names.empty()) names.push_back(planned.layer.name);
  return names;
}

}  // namespace offline
}  // namespace octavo
