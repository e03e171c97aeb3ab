// What a quantized checkpoint says of its layers, without the float one that it came from.
#include <algorithm>
#include <array>
#include <cstring>

#include "octavo/checkpoint.hpp"
#include "offline/checkpoint_parts.hpp"
#include "offline/files.hpp"
#include "offline/measure.hpp"

namespace octavo {

using namespace offline;

namespace {

// Its sizes: of packed weights as they are stored beside them, or else as the words allow.
void read_sizes(const SafetensorsSet& tensors, const StoredTensor& t, const LayerForm& form,
                LinearLayer& layer) {
  layer.n = static_cast<std::int64_t>(t.shape[0]);
  layer.k = static_cast<std::int64_t>(t.shape[1]);
  if (!is_packed(form.scheme)) {
    // Scales are per output channel: what is stored [in, out] has as many as columns.
    const auto scale = tensors.find(layer.name + ".weight_scale");
    if (scale && scale.tensor->shape.size() == 2 && scale.tensor->shape[0] != t.shape[0] &&
        scale.tensor->shape[0] == t.shape[1])
      std::swap(layer.n, layer.k);
    return;
  }
  const auto stored = tensors.find(layer.name + ".weight_shape");
  std::array<std::int64_t, 2> sizes{};
  if (stored && stored.tensor->type == StoredType::I64 && stored.tensor->size() == sizeof(sizes)) {
    std::memcpy(sizes.data(), stored.file->bytes(*stored.tensor).data(), sizeof(sizes));
  }
  layer.k *= weight_bits(form.scheme) == 4 ? 8 : 4;
  if (sizes[0] == layer.n && sizes[1] > 0 && sizes[1] < layer.k) layer.k = sizes[1];
}

}  // namespace

Result<std::vector<QuantizedLayer>> quantized_layers(const Checkpoint& quantized) {
  return guarded(quantized.path().string(), [&]() -> Result<std::vector<QuantizedLayer>> {
    const SafetensorsSet& tensors = quantized.tensors();
    const auto config =
        read_config_settings((tensors.directory() / "config.json").string(), quantized.config());
    if (!config) return config.error();
    std::vector<QuantizedLayer> out;
    for (const SafetensorsFile& file : tensors.files())
      for (const StoredTensor& t : file.tensors()) {
        LinearLayer layer;
        layer.name = parent(t.name);
        layer.kind = kind_of(layer.name);
        const std::string_view last = last_part(t.name);
        if (t.shape.size() != 2 || t.size() == 0 || !StoredLayer::exists(tensors, layer.name) ||
            (last != "weight_packed" && (last != "weight" || t.type != StoredType::I8)))
          continue;
        const auto group = config->group_of(tensors, layer);
        if (!group) return group.error();
        if (*group == nullptr || is_packed((*group)->form.scheme) != (last == "weight_packed"))
          continue;
        const LayerForm& form = (*group)->form;
        read_sizes(tensors, t, form, layer);
        std::uint64_t bytes = t.size();
        for (const char* end :
             {".weight_scale", ".weight_zero_point", ".weight_shape", ".input_scale"})
          if (const auto part = tensors.find(layer.name + end)) bytes += part.tensor->size();
        out.push_back({layer.name, layer.n, layer.k, form, stored_bits(layer, bytes)});
      }
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return out;
  });
}

}  // namespace octavo
