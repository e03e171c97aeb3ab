#include "offline/output.hpp"

#include "offline/checkpoint_parts.hpp"
#include "offline/packed_rows.hpp"

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
    add(".weight_packed", StoredType::I32, {n, unsigned_size(packed_words(l.k))}, true);
    add(".weight_scale", scale_type, {n, k / unsigned_size(plan.group_size)}, false);
    add(".weight_shape", StoredType::I64, {2}, false);
    return;
  }
  add(".weight", StoredType::I8, source.shape, true);
  add(".weight_scale", scale_type, {n, 1}, false);
  if (plan.options.scheme == Scheme::w8a8_static) add(".input_scale", StoredType::F32, {1}, false);
}

// The layer whose weight a tensor is; null if it is not to be quantized.
const PlannedLayer* planned_for(const QuantizePlan& plan, const StoredTensor& t) {
  return t.name.ends_with(".weight") ? find_layer(plan, parent(t.name)) : nullptr;
}

}  // namespace

std::uint64_t output_bytes(const QuantizePlan& plan) {
  std::uint64_t bytes = 0;
  std::vector<OutputTensor> stored;
  for (const SafetensorsFile& file : plan.checkpoint->tensors().files())
    for (const StoredTensor& t : file.tensors()) {
      const PlannedLayer* layer = planned_for(plan, t);
      stored.clear();
      if (layer != nullptr) add_layer(plan, *layer, t, stored);
      for (const OutputTensor& tensor : stored) bytes += tensor.bytes();
      if (layer == nullptr) bytes += t.size();  // whether it is smoothed or not
    }
  return bytes;
}

OutputIndex::OutputIndex(const QuantizePlan& plan) : plan_(plan) {
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
    if (const PlannedLayer* layer = planned_for(plan_, t)) {
      add_layer(plan_, *layer, t, out);
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

}  // namespace octavo::offline
