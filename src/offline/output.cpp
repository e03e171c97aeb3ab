#include "offline/output.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "offline/checkpoint_parts.hpp"
#include "offline/files.hpp"
#include "offline/slab.hpp"
#include "offline/smooth_parts.hpp"

namespace octavo::offline {
namespace {

std::uint64_t unsigned_size(std::int64_t n) { return static_cast<std::uint64_t>(n); }

// The tensors of a layer that the scheme stores.
void add_layer(const QuantizePlan& plan, const PlannedLayer& planned, const StoredTensor& source,
               std::vector<OutputTensor>& out) {
  const LinearLayer& l = planned.layer;
  const std::uint64_t n = unsigned_size(l.n), k = unsigned_size(l.k);
  const StoredType scale_type = stored_type(compute_type(l.type));
  const auto add = [&](const char* suffix, StoredType type, std::vector<std::uint64_t> shape,
                       bool main) {
    out.push_back({{l.name + suffix, type, std::move(shape)},
                   OutputTensor::Kind::quantized,
                   main ? &source : nullptr,
                   &planned,
                   0});
  };
  if (plan.options.scheme == Scheme::w4a16_group) {
    add(".weight_packed", StoredType::I32, {n, (k + 7) / 8}, true);
    add(".weight_scale", scale_type, {n, k / unsigned_size(plan.group_size)}, false);
    add(".weight_shape", StoredType::I64, {2}, false);
    return;
  }
  add(".weight", StoredType::I8, source.shape, true);
  add(".weight_scale", scale_type, {n, 1}, false);
  if (plan.options.scheme == Scheme::w8a8_static) add(".input_scale", StoredType::F32, {1}, false);
}

}  // namespace

OutputIndex::OutputIndex(const QuantizePlan& plan) : plan_(plan) {
  for (const PlannedLayer& planned : plan.layers)
    layers_.emplace(planned.layer.name + ".weight", &planned);
  for (std::size_t i = 0; i < plan.pairs.size(); ++i) {
    const SmoothingPair& names = plan.pairs[i].names;
    smoothed_.emplace(names.norm + ".weight", Smoothed{OutputTensor::Kind::norm, i});
    smoothed_.emplace(names.norm + ".bias", Smoothed{OutputTensor::Kind::norm, i});
    for (const std::string& linear : names.linears)
      smoothed_.emplace(linear + ".weight", Smoothed{OutputTensor::Kind::scaled, i});
  }
}

std::vector<OutputTensor> OutputIndex::tensors_of(const SafetensorsFile& file) const {
  std::vector<OutputTensor> out;
  out.reserve(file.tensors().size());
  for (const StoredTensor& t : file.tensors()) {
    if (const auto layer = layers_.find(t.name); layer != layers_.end()) {
      add_layer(plan_, *layer->second, t, out);
      continue;
    }
    OutputTensor tensor{{t.name, t.type, t.shape}, OutputTensor::Kind::copy, &t, nullptr, 0};
    if (const auto found = smoothed_.find(t.name); found != smoothed_.end()) {
      tensor.kind = found->second.kind;
      tensor.pair = found->second.pair;
    }
    out.push_back(std::move(tensor));
  }
  return out;
}

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

Status resolve_pair(const Stream& stream, const QuantizePlan& plan, const PlannedPair& pair,
                    ResolvedScales& out) {
  std::vector<TensorRef> weights;
  std::vector<const SafetensorsFile*> files;
  const SafetensorsSet& tensors = plan.checkpoint->tensors();
  for (const std::string& name : pair.names.linears) {
    const auto entry = tensors.find(name + ".weight");
    const LinearLayer* layer = plan.checkpoint->layer(name);
    files.push_back(entry.file);
    weights.push_back(matrix_view(*entry.file, *entry.tensor, *dtype_of_stored(entry.tensor->type),
                                  layer != nullptr && layer->transposed));
  }
  const auto k = static_cast<std::int64_t>(pair.absmax.size());
  double alpha = pair.alpha.value_or(0.0);
  double error = 0;
  if (!pair.alpha) {
    std::vector<float> storage;
    // Only layers that are quantized lose something.
    std::vector<TensorRef> measured;
    for (const std::string& name : pair.names.linears)
      if (const PlannedLayer* planned = find_layer(plan, name))
        measured.push_back(weight_view(tensors, planned->layer));
    const auto found = search_alpha_of(stream,
                                       {.weights = measured,
                                        .absmax = pair.absmax,
                                        .rows = sampled_rows(plan, pair, storage),
                                        .scheme = plan.options.scheme,
                                        .group_size = plan.group_size},
                                       weights);
    if (!found) return found.error();
    alpha = found->alpha;
    error = found->error;
  }
  const auto most = column_absmax(stream, weights, k);
  if (!most) return most.error();
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
  // One value for all layers that read the same input: loaders that fuse them keep only one.
  float scale = 0;
  for (const std::string& name : input_sharers(plan, planned))
    if (const LayerStatistics* s = plan.options.statistics->find(name))
      scale =
          std::max(scale, static_scale(s->absmax(), planned.pair ? scales.smoothing[*planned.pair]
                                                                 : std::vector<float>()));
  return scale;
}

bool has_rows(const QuantizePlan& plan, const LinearLayer& layer) {
  if (plan.options.statistics == nullptr) return false;
  const LayerStatistics* s = plan.options.statistics->find(layer.name);
  return s != nullptr && s->sample_count() > 0 && s->channels() == layer.k;
}

Probe probe_of(const QuantizePlan& plan, const ResolvedScales& scales,
               const PlannedLayer& planned) {
  const bool fixed = plan.options.scheme == Scheme::w8a8_static;
  return make_probe(planned.layer, {plan.options.scheme, plan.group_size},
                    planned.pair ? scales.smoothing[*planned.pair] : std::vector<float>(),
                    fixed ? double{input_scale(plan, scales, planned)} : 1.0,
                    plan.options.statistics->find(planned.layer.name));
}

}  // namespace octavo::offline
