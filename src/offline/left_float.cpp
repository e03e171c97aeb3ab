// What a plan leaves float, what would take it, and what it makes of the rest.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "octavo/checkpoint.hpp"
#include "offline/checkpoint_parts.hpp"
#include "offline/words.hpp"

namespace octavo {

using namespace offline;

namespace {

using Layers = std::vector<const LinearLayer*>;

// The weights of these layers that groups of this size leave float.
double left_by(const Layers& layers, std::int64_t group_size) {
  double left = 0;
  for (const LinearLayer* layer : layers)
    if (layer->k % group_size != 0)
      left += static_cast<double>(layer->n) * static_cast<double>(layer->k);
  return left;
}

// Powers of two: kernels have no others, and few know groups below 32.
constexpr std::array<std::int64_t, 4> usual_group_sizes{128, 64, 32, 16};

// What would take the layers that these groups leave float.
std::string group_size_remedy(const QuantizePlan& plan) {
  Layers layers;
  for (const PlannedLayer& planned : plan.layers)
    if (weight_bits(planned.form.scheme) == 4) layers.push_back(&planned.layer);
  for (const KeptTensor& kept : plan.kept)
    if (const LinearLayer* layer = plan.checkpoint->any_layer(parent(kept.name));
        layer != nullptr && !kept.meant)
      layers.push_back(layer);
  const std::int64_t best = best_group_size(layers);
  const double left = left_by(layers, best);
  if (left == 0) return fmt::format("--group-size {} would take them all", best);
  if (left < left_by(layers, plan.group_size))
    return fmt::format("--group-size {} would take more of them", best);
  return "--group-size channel would take them all";
}

}  // namespace

namespace offline {

std::string unfit(const LinearLayer& layer, const LayerForm& form) {
  if (form.group_size == 0 || layer.k % form.group_size == 0) return {};
  return fmt::format("in = {} is no multiple of {}", layer.k, form.group_size);
}

std::int64_t best_group_size(const Layers& layers) {
  return *std::min_element(
      usual_group_sizes.begin(), usual_group_sizes.end(),
      [&](std::int64_t a, std::int64_t b) { return left_by(layers, a) < left_by(layers, b); });
}

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

}  // namespace offline

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
    if (all > 0) left.share += static_cast<double>(kept.elements) / all;
    // Of the reasons only this one is the plan's own; the others are the checkpoint's.
    if (plan.checkpoint->any_layer(parent(kept.name)) != nullptr) left.remedy = remedy;
  }
  std::vector<LeftFloat> out;
  out.reserve(reasons.size());
  for (auto& [reason, left] : reasons) out.push_back(std::move(left));
  std::stable_sort(out.begin(), out.end(),
                   [](const LeftFloat& a, const LeftFloat& b) { return a.share > b.share; });
  return out;
}

std::vector<FormCount> forms_of(const QuantizePlan& plan) {
  std::vector<FormCount> forms;
  for (const PlannedLayer& planned : plan.layers) {
    auto known = std::find_if(forms.begin(), forms.end(),
                              [&](const FormCount& f) { return f.form == planned.form; });
    if (known == forms.end()) known = forms.insert(known, {planned.form, 0});
    ++known->layers;
  }
  std::stable_sort(forms.begin(), forms.end(), [](const FormCount& a, const FormCount& b) {
    return std::pair(b.layers, a.form.scheme) < std::pair(a.layers, b.form.scheme);
  });
  return forms;
}

}  // namespace octavo
