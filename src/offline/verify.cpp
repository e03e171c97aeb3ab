// How far a quantized checkpoint is from the float one.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "offline/checkpoint_parts.hpp"
#include "offline/files.hpp"
#include "offline/measure.hpp"
#include "offline/safetensors_header.hpp"
#include "offline/smooth_parts.hpp"

namespace octavo {

using namespace offline;

namespace {

// The scales of norms and of the layers after them, by module.
struct Smoothing {
  using Scales = std::map<std::string, std::vector<float>>;
  Smoothing(const Checkpoint& original, Scales scales) : norms(std::move(scales)) {
    for (const SmoothingPair& pair : original.pairs().pairs)
      if (const auto found = norms.find(pair.norm); found != norms.end())
        for (const std::string& linear : pair.linears) layers.emplace(linear, &found->second);
  }
  // Of the norm before a layer; empty if there are none.
  [[nodiscard]] std::vector<float> of_layer(const std::string& layer) const {
    const auto found = layers.find(layer);
    return found == layers.end() ? std::vector<float>() : *found->second;
  }
  Scales norms;
  std::unordered_map<std::string, const std::vector<float>*> layers;
};

// What smoothing makes of a tensor that is not quantized; empty if nothing.
Result<std::vector<std::byte>> smoothed_bytes(const Stream& stream, const Smoothing& smoothing,
                                              const SafetensorsSet::Entry& entry) {
  const std::string module(parent(entry.tensor->name));
  const std::vector<std::uint64_t>& shape = entry.tensor->shape;
  const auto type = dtype_of_stored(entry.tensor->type);
  std::vector<std::byte> out;
  if (!type || !is_float(*type)) return out;
  const auto bytes = entry.file->bytes(*entry.tensor);
  if (const auto norm = smoothing.norms.find(module); norm != smoothing.norms.end()) {
    if (shape != std::vector<std::uint64_t>{norm->second.size()}) return out;
    out.assign(bytes.begin(), bytes.end());
    const TensorMut values(out.data(), *type, {static_cast<std::int64_t>(shape[0])});
    if (Status s = divide_vector(entry.file->path(), entry.tensor->name, values, norm->second); !s)
      return s.error();
    return out;
  }
  const std::vector<float> scales = smoothing.of_layer(module);
  if (scales.empty() || !entry.tensor->name.ends_with(".weight") || shape.size() != 2) return out;
  if (shape[1] != scales.size()) return out;
  out.resize(bytes.size());
  scale_columns(stream, *type, bytes.data(), static_cast<std::int64_t>(shape[0]), scales,
                out.data());
  return out;
}

// How much of the model is not quantized, once its quantized layers are known.
void count_float_layers(const Checkpoint& original, VerifyReport& report) {
  LinearWeights quantized;
  for (const LayerError& e : report.layers) {
    if (e.kind == LayerKind::embedding) continue;
    ++quantized.layers;
    quantized.elements += static_cast<double>(e.n) * static_cast<double>(e.k);
  }
  const LinearWeights all = linear_weights(original);
  report.float_layers = all.layers - quantized.layers;
  report.float_share = all.elements > 0 ? 1.0 - quantized.elements / all.elements : 0.0;
}

// Tensors that neither the original has nor a quantized layer.
void find_added(const Checkpoint& original, const Checkpoint& quantized, VerifyReport& report) {
  std::unordered_set<std::string> known;
  for (const LayerError& e : report.layers)
    for (const char* end :
         {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_shape", ".input_scale"})
      known.insert(e.name + end);
  for (const SafetensorsFile& file : quantized.tensors().files())
    for (const StoredTensor& t : file.tensors())
      if (!original.tensors().find(t.name) && !known.contains(t.name))
        report.added.push_back(t.name);
  std::sort(report.added.begin(), report.added.end());
}

}  // namespace

double VerifyReport::bits_per_weight() const {
  double bits = 0, weights = 0;
  for (const LayerError& e : layers) {
    const double elements = static_cast<double>(e.n) * static_cast<double>(e.k);
    bits += e.bits * elements;
    weights += elements;
  }
  return weights > 0 ? bits / weights : 0;
}

Result<VerifyReport> verify(const Stream& stream, const Checkpoint& original,
                            const Checkpoint& quantized, const Statistics* statistics,
                            const ProgressCallback& progress) {
  return guarded(quantized.path().string(), [&]() -> Result<VerifyReport> {
    const std::string config_path = (quantized.tensors().directory() / "config.json").string();
    const auto config = read_config_settings(config_path, quantized.config());
    if (!config) return config.error();
    auto scales = read_smoothing(quantized.tensors().directory());
    if (!scales) return scales.error();
    const Smoothing smoothing(original, *std::move(scales));
    const std::uint64_t total = original.bytes();
    VerifyReport report;
    std::uint64_t done = 0;
    for (const SafetensorsFile& file : original.tensors().files())
      for (const StoredTensor& t : file.tensors()) {
        const auto source = original.tensors().find(t.name);
        const std::string module(parent(t.name));
        const LinearLayer* layer =
            t.name.ends_with(".weight") ? original.any_layer(module) : nullptr;
        if (progress) progress({done += t.size(), total, t.name});
        const ConfigGroup* group = nullptr;
        if (layer != nullptr) {
          const auto listed = StoredLayer::listed(quantized.tensors(), *layer, *config);
          if (!listed) return listed.error();
          group = *listed;
        }
        if (group != nullptr) {
          const auto stored =
              StoredLayer::open(quantized.tensors(), *layer, group->form, group->one_scale);
          if (!stored) return stored.error();
          std::vector<float> by = smoothing.of_layer(module);
          if (!by.empty() && by.size() != static_cast<std::size_t>(layer->k))
            return bad_file(quantized.path().string(),
                            fmt::format("{}: expected {} smoothing scales, got {}", module,
                                        layer->k, by.size()));
          const Probe probe = make_probe(
              {.layer = *layer,
               .form = group->form,
               .bytes = stored->bytes,
               .smoothing = std::move(by),
               .input_scale = stored->input_scale,
               .statistics = statistics == nullptr ? nullptr : statistics->find(module)});
          auto error =
              measure_stored(stream, probe, weight_view(original.tensors(), *layer), *stored);
          if (!error) return error.error();
          report.layers.push_back(*std::move(error));
          continue;
        }
        const auto other = quantized.tensors().find(t.name);
        if (!other)
          return bad_tensor(quantized.path().string(), t.name,
                            fmt::format("expected this tensor of {}, got none", file.path()));
        const auto smoothed = smoothed_bytes(stream, smoothing, source);
        if (!smoothed) return smoothed.error();
        const std::span<const std::byte> expected =
            smoothed->empty() ? file.bytes(t) : std::span<const std::byte>(*smoothed);
        const auto got = other.file->bytes(*other.tensor);
        if (other.tensor->type != t.type || other.tensor->shape != t.shape ||
            !std::equal(got.begin(), got.end(), expected.begin(), expected.end()))
          report.unexpected.push_back(t.name);
      }
    if (report.layers.empty())
      return bad_file(quantized.path().string(), "expected quantized layers, got none");
    std::sort(report.unexpected.begin(), report.unexpected.end());
    complete(original, report);
    count_float_layers(original, report);
    find_added(original, quantized, report);
    return report;
  });
}

}  // namespace octavo
