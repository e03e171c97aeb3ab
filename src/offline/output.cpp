#include "offline/output.hpp"

#include "offline/checkpoint_parts.hpp"
#include "offline/packed_rows.hpp"
#include "offline/slab.hpp"

namespace octavo::offline {
namespace {

std::uint64_t unsigned_size(std::int64_t n) { return static_cast<std::uint64_t>(n); }

// The tensors of a layer in its form.
void add_layer(const PlannedLayer& planned, const StoredTensor& source,
               std::vector<OutputTensor>& out) {
  const LinearLayer& l = planned.layer;
  const LayerForm& form = planned.form;
  const std::uint64_t n = unsigned_size(l.n), k = unsigned_size(l.k);
  const std::uint64_t groups = form.group_size > 0 ? k / unsigned_size(form.group_size) : 1;
  const StoredType scales = stored_type(scale_type(form.scheme, l.type));
  const auto add = [&](const char* suffix, StoredType type, std::vector<std::uint64_t> shape,
                       bool main) {
    out.push_back({{l.name + suffix, type, std::move(shape)},
                   OutputTensor::Kind::quantized,
                   main ? &source : nullptr,
                   &planned,
                   0});
  };
  if (is_packed(form.scheme)) {
    const auto words = unsigned_size(packed_words(code_of(form.scheme), l.k));
    add(".weight_packed", StoredType::I32, {n, words}, true);
    add(".weight_scale", scales, {n, groups}, false);
    if (form.asymmetric) add(".weight_zero_point", StoredType::I32, {(n + 7) / 8, groups}, false);
    add(".weight_shape", StoredType::I64, {2}, false);
    return;
  }
  add(".weight", StoredType::I8, source.shape, true);
  add(".weight_scale", scales, {n, groups}, false);
  if (form.scheme == Scheme::w8a8_static) add(".input_scale", StoredType::F32, {1}, false);
}

// The layer whose weight a tensor is; null if it is not to be quantized.
const PlannedLayer* planned_for(const QuantizePlan& plan, const StoredTensor& t) {
  return t.name.ends_with(".weight") ? find_layer(plan, parent(t.name)) : nullptr;
}

}  // namespace

std::uint64_t output_bytes(const QuantizePlan& plan) {
  std::uint64_t bytes = 0;
  for (const SafetensorsFile& file : plan.checkpoint->tensors().files())
    for (const StoredTensor& t : file.tensors()) {
      const PlannedLayer* layer = planned_for(plan, t);
      if (layer != nullptr) bytes += stored_bytes(plan, *layer);
      if (layer == nullptr) bytes += t.size();  // whether it is smoothed or not
    }
  return bytes;
}

std::uint64_t stored_bytes(const QuantizePlan& plan, const PlannedLayer& planned) {
  std::vector<OutputTensor> stored;
  add_layer(planned, *plan.checkpoint->tensors().find(planned.layer.name + ".weight").tensor,
            stored);
  std::uint64_t bytes = 0;
  for (const OutputTensor& tensor : stored) bytes += tensor.bytes();
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
      add_layer(*layer, t, out);
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

namespace octavo {

double bits_per_weight(const QuantizePlan& plan) {
  double bits = 0, weights = 0;
  for (const PlannedLayer& planned : plan.layers) {
    bits += 8.0 * static_cast<double>(offline::stored_bytes(plan, planned));
    weights += static_cast<double>(planned.layer.n) * static_cast<double>(planned.layer.k);
  }
  return bits / weights;
}

}  // namespace octavo
