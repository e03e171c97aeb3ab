// From options to a plan: which layers, which pairs, which statistics.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/check.hpp"
#include "octavo/checkpoint.hpp"
#include "octavo/pattern.hpp"
#include "offline/checkpoint_parts.hpp"
#include "offline/files.hpp"
#include "offline/output.hpp"
#include "offline/words.hpp"

namespace octavo {

using detail::invalid;
using namespace offline;

namespace {

// The modules that the patterns name.
Result<std::set<std::string>> ignored(const Checkpoint& checkpoint,
                                      const std::vector<std::string>& patterns) {
  std::vector<std::string> modules;
  for (const LinearLayer& layer : checkpoint.layers()) modules.push_back(layer.name);
  for (const KeptTensor& kept : checkpoint.kept())
    if (kept.is_linear) modules.emplace_back(parent(kept.name));
  std::set<std::string> out;
  for (const std::string& text : patterns) {
    const auto pattern = Pattern::parse("ignore", text);
    if (!pattern) return pattern.error();
    bool any = false;
    for (const std::string& module : modules) {
      if (!pattern->matches(module)) continue;
      out.insert(module);
      any = true;
    }
    if (!any)
      return invalid(
          "ignore",
          fmt::format("expected a pattern that matches a layer, got {}, which matches "
                      "{}",
                      in_quotes(text),
                      modules.empty() ? fmt::format("nothing: {} has no linear layers",
                                                    checkpoint.path().string())
                                      : fmt::format("none of {}, the first of which is {}",
                                                    modules.size(), in_quotes(modules.front()))));
  }
  return out;
}

// Why a layer of this shape cannot have this scheme; empty if it can.
std::string unfit(const LinearLayer& layer, const QuantizePlan& plan) {
  if (plan.options.scheme != Scheme::w4a16_group || layer.k % plan.group_size == 0) return {};
  return fmt::format("in = {} is no multiple of {}", layer.k, plan.group_size);
}

// The weights that groups of this size leave float, of the layers that are not ignored.
double left_by(const Checkpoint& checkpoint, const std::set<std::string>& ignore,
               std::int64_t group_size) {
  double left = 0;
  for (const LinearLayer& layer : checkpoint.layers())
    if (!ignore.contains(layer.name) && layer.k % group_size != 0)
      left += static_cast<double>(layer.n) * static_cast<double>(layer.k);
  return left;
}

// Powers of two: kernels have no others, and few know groups below 32.
constexpr std::array<std::int64_t, 4> usual_group_sizes{128, 64, 32, 16};

std::int64_t best_group_size(const Checkpoint& checkpoint, const std::set<std::string>& ignore) {
  return *std::min_element(usual_group_sizes.begin(), usual_group_sizes.end(),
                           [&](std::int64_t a, std::int64_t b) {
                             return left_by(checkpoint, ignore, a) < left_by(checkpoint, ignore, b);
                           });
}

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
  for (const KeptTensor& kept : plan.kept)
    if (const std::string_view module = parent(kept.name);
        kept.is_linear && (module == "Linear" || module == "Conv1D" || module.starts_with("re:")))
      return invalid(
          "checkpoint",
          fmt::format("expected names of float layers that config.json can list, got {}, "
                      "which stands for others there; rename it, or quantize it, too",
                      in_quotes(module)));
  return {};
}

Status choose_layers(const Checkpoint& checkpoint, const std::set<std::string>& ignore,
                     QuantizePlan& plan) {
  plan.kept = checkpoint.kept();
  for (KeptTensor& kept : plan.kept)
    if (!kept.meant && ignore.contains(std::string(parent(kept.name)))) {
      kept.meant = true;
      kept.reason = "ignored";
    }
  std::set<std::string> chosen;
  std::string example;
  for (const LinearLayer& layer : checkpoint.layers()) {
    const bool meant = ignore.contains(layer.name);
    std::string reason = meant ? "ignored" : unfit(layer, plan);
    if (reason.empty()) {
      plan.layers.push_back({layer, std::nullopt});
      chosen.insert(layer.name);
    } else {
      example = fmt::format(": {}: {}", layer.name, reason);
      plan.kept.push_back({layer.name + ".weight", std::move(reason), true, meant,
                           static_cast<std::uint64_t>(layer.n * layer.k)});
    }
  }
  std::sort(plan.kept.begin(), plan.kept.end(),
            [](const KeptTensor& a, const KeptTensor& b) { return a.name < b.name; });
  if (plan.layers.empty())
    return invalid("checkpoint", fmt::format("expected layers to quantize in {}, got none{}",
                                             checkpoint.path().string(), example));
  for (const PlannedLayer& planned : plan.layers)
    for (const std::string& other : fused_with(planned.layer.name))
      if (!chosen.contains(other) && checkpoint.tensors().find(other + ".weight"))
        return invalid("ignore", fmt::format("expected {} and {} to be treated alike, for they are "
                                             "fused when they run, got only one quantized",
                                             planned.layer.name, other));
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

// What would take the layers that these groups leave float.
std::string group_size_remedy(const QuantizePlan& plan) {
  std::set<std::string> ignored;
  for (const KeptTensor& kept : plan.kept)
    if (kept.meant) ignored.emplace(parent(kept.name));
  const std::int64_t best = best_group_size(*plan.checkpoint, ignored);
  const double left = left_by(*plan.checkpoint, ignored, best);
  if (left == 0) return fmt::format("--group-size {} would take them all", best);
  if (left < left_by(*plan.checkpoint, ignored, plan.group_size))
    return fmt::format("--group-size {} would take more of them", best);
  return {};
}

}  // namespace

std::string LeftFloat::text() const {
  return fmt::format("{}, {} % of the linear weights, {} float: {}{}{}",
                     counted(layers, "layer", "layers"),
                     fmt::format("{:.{}f}", 100 * share, share < 0.1 ? 1 : 0),
                     layers == 1 ? "stays" : "stay", reason, remedy.empty() ? "" : "; ", remedy);
}

std::vector<LeftFloat> left_float(const QuantizePlan& plan) {
  std::map<std::string, LeftFloat> reasons;
  const double all = linear_weights(*plan.checkpoint).elements;
  const std::string remedy = plan.group_size > 0 ? group_size_remedy(plan) : "";
  for (const KeptTensor& kept : plan.kept) {
    if (kept.meant) continue;
    LeftFloat& left = reasons[kept.reason];
    left.reason = kept.reason;
    ++left.layers;
    left.share += static_cast<double>(kept.elements) / all;
    // Of the reasons only this one is the plan's own; the others are the checkpoint's.
    if (plan.checkpoint->layer(parent(kept.name)) != nullptr) left.remedy = remedy;
  }
  std::vector<LeftFloat> out;
  out.reserve(reasons.size());
  for (auto& [reason, left] : reasons) out.push_back(std::move(left));
  std::stable_sort(out.begin(), out.end(),
                   [](const LeftFloat& a, const LeftFloat& b) { return a.share > b.share; });
  return out;
}

Result<QuantizePlan> resolve(const Checkpoint& checkpoint, const QuantizeOptions& options) {
  if (checkpoint.is_quantized())
    return invalid("checkpoint",
                   fmt::format("expected a float checkpoint, got {}, whose config.json "
                               "has a quantization_config",
                               checkpoint.path().string()));
  if (options.scheme == Scheme::w4a16_group && options.group_size && *options.group_size <= 0)
    return invalid("group_size", fmt::format("expected 1 or more, got {}", *options.group_size));
  return guarded(checkpoint.path().string(), [&]() -> Result<QuantizePlan> {
    QuantizePlan plan;
    plan.checkpoint = &checkpoint;
    plan.options = options;
    const auto ignore = ignored(checkpoint, options.ignore);
    if (!ignore) return ignore.error();
    if (options.scheme == Scheme::w4a16_group)
      plan.group_size = options.group_size.value_or(best_group_size(checkpoint, *ignore));
    if (Status s = choose_layers(checkpoint, *ignore, plan); !s) return s.error();
    if (options.strict) {
      std::vector<std::string> left;
      for (const LeftFloat& layers : left_float(plan)) left.push_back(layers.text());
      if (!left.empty())
        return invalid("strict", fmt::format("expected a scheme that takes every layer, got {}",
                                             fmt::join(left, ", and ")));
    }
    if (Status s = check_loaders(plan); !s) return s.error();
    const bool needs = options.smooth || options.scheme == Scheme::w8a8_static;
    if (needs && options.statistics == nullptr)
      return invalid("statistics",
                     fmt::format("expected statistics of activations for {}, got none",
                                 options.smooth ? "smoothing" : name(options.scheme)));
    if (options.smooth) {
      if (Status s = choose_pairs(checkpoint, plan); !s) return s.error();
      if (Status s = check_search(plan); !s) return s.error();
    }
    if (options.scheme == Scheme::w8a8_static)
      for (const PlannedLayer& planned : plan.layers)
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

LinearWeights linear_weights(const Checkpoint& checkpoint) {
  LinearWeights all;
  const auto add = [&](double elements) {
    ++all.layers;
    all.elements += elements;
  };
  for (const LinearLayer& layer : checkpoint.layers())
    add(static_cast<double>(layer.n) * static_cast<double>(layer.k));
  for (const KeptTensor& kept : checkpoint.kept())
    if (kept.is_linear) add(static_cast<double>(kept.elements));
  return all;
}

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
