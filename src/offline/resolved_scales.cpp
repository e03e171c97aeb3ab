#include "offline/resolved_scales.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/fp_environment.hpp"
#include "numerics/smooth.hpp"
#include "offline/checkpoint_parts.hpp"
#include "offline/files.hpp"
#include "offline/output.hpp"
#include "offline/smooth_parts.hpp"

namespace octavo::offline {
namespace {

// The rows of the first layer of a pair that has some.
TensorRef sampled_rows(const QuantizePlan& plan, const PlannedPair& pair,
                       std::vector<float>& storage) {
  for (const std::string& linear : pair.names.linears) {
    const LayerStatistics* s = plan.options.statistics->find(linear);
    if (s == nullptr || s->sample_count() == 0) continue;
    storage = s->sample();
    return {storage, {s->sample_count(), s->channels()}};
  }
  return {};
}

Result<AlphaSearch> search(const Stream& stream, const QuantizePlan& plan, const PlannedPair& pair,
                           const std::vector<double>& weight_absmax) {
  // Only layers that are quantized lose something.
  std::vector<SearchedWeight> measured;
  for (const std::string& name : pair.names.linears)
    if (const PlannedLayer* planned = find_layer(plan, name))
      measured.push_back({weight_view(plan.checkpoint->tensors(), planned->layer), planned->form});
  std::vector<float> storage;
  return search_alpha_of(
      stream, measured,
      {.weights = {}, .absmax = pair.absmax, .rows = sampled_rows(plan, pair, storage)},
      weight_absmax);
}

Status resolve_pair(const Stream& stream, const QuantizePlan& plan, const PlannedPair& pair,
                    ResolvedScales& out) {
  std::vector<TensorRef> weights;
  std::vector<const SafetensorsFile*> files;
  for (const std::string& name : pair.names.linears) {
    const auto entry = plan.checkpoint->tensors().find(name + ".weight");
    const LinearLayer* layer = plan.checkpoint->layer(name);
    files.push_back(entry.file);
    weights.push_back(matrix_view(*entry.file, *entry.tensor, *dtype_of_stored(entry.tensor->type),
                                  layer != nullptr && layer->transposed));
  }
  const auto most = column_absmax(stream, weights, static_cast<std::int64_t>(pair.absmax.size()));
  if (!most) return most.error();
  double alpha = pair.alpha.value_or(0.0);
  double error = 0;
  if (!pair.alpha) {
    const auto found = search(stream, plan, pair, *most);
    if (!found) return found.error();
    alpha = found->alpha;
    error = found->error;
  }
  std::vector<float> scales = scales_from(*most, pair.absmax, alpha);
  for (std::size_t i = 0; i < weights.size(); ++i)
    for (std::size_t j = 0; j < scales.size(); ++j)
      if (column_overflows(weights[i].dtype, (*most)[j], scales[j]))
        return bad_tensor(files[i]->path(), pair.names.linears[i] + ".weight",
                          fmt::format("channel {} would overflow {} when it is smoothed; take "
                                      "another alpha",
                                      j, name(weights[i].dtype)));
  out.smoothing.push_back(std::move(scales));
  out.alphas.push_back(alpha);
  out.errors.push_back(error);
  return {};
}

}  // namespace

Result<ResolvedScales> resolve_scales(const Stream& stream, const QuantizePlan& plan,
                                      const ProgressCallback& progress) {
  return guarded("pairs", [&]() -> Result<ResolvedScales> {
    ResolvedScales out;
    for (std::size_t i = 0; i < plan.pairs.size(); ++i) {
      if (progress) progress({i, plan.pairs.size(), "smoothing scales"});
      if (Status s = resolve_pair(stream, plan, plan.pairs[i], out); !s) return s.error();
    }
    return out;
  });
}

float input_scale(const QuantizePlan& plan, const ResolvedScales& scales,
                  const PlannedLayer& planned) {
  const detail::FpEnvironment environment;
  const std::vector<float> smoothing = scales.of(planned);
  // One value for all layers that read the same input: loaders that fuse them keep only one.
  float scale = 0;
  for (const std::string& name : input_sharers(plan, planned))
    if (const LayerStatistics* s = plan.options.statistics->find(name))
      scale = std::max(scale, numerics::static_scale(s->absmax(), smoothing));
  return scale;
}

Probe probe_of(const QuantizePlan& plan, const ResolvedScales& scales,
               const PlannedLayer& planned) {
  const bool fixed = planned.form.scheme == Scheme::w8a8_static;
  return make_probe({.layer = planned.layer,
                     .form = planned.form,
                     .bytes = stored_bytes(plan, planned),
                     .smoothing = scales.of(planned),
                     .input_scale = fixed ? double{input_scale(plan, scales, planned)} : 1.0,
                     .statistics = plan.options.statistics->find(planned.layer.name)});
}

}  // namespace octavo::offline
