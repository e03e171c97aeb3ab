// Opening a checkpoint: which of its tensors are layers, and which are not.
#include "octavo/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "offline/checkpoint_parts.hpp"
#include "offline/files.hpp"
#include "offline/json_text.hpp"
#include "offline/safetensors_header.hpp"

namespace octavo {

using namespace offline;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t max_config_bytes = std::uint64_t{16} << 20;
constexpr std::string_view weight_suffix = ".weight";

bool contains(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Why a module is not one to quantize; no reason if it is.
KeptTensor classify(std::string_view module) {
  const std::string_view last = last_part(module);
  const LayerKind kind = kind_of(module);
  if (kind == LayerKind::head) return {"", "the head: its error goes straight to the output", true};
  // vLLM runs BERT's pooler in float whatever the config says.
  if (last == "dense" && last_part(parent(module)) == "pooler")
    return {"", "a pooler: a small layer beside the head", true};
  if (kind == LayerKind::embedding || contains(last, "conv") || last == "relative_attention_bias")
    return {"", "an embedding or a convolution, not a linear layer", false};
  if (is_one_of(last, {"gate", "router", "shared_expert_gate"}))
    return {"", "a router: a small layer that chooses experts", true};
  return {"", "", true};
}

// Conv1D of GPT-2 stores [in, out]. GPT-BigCode has the same names and does not.
bool stores_transposed(const SafetensorsSet& tensors, const ModelTraits& traits,
                       const std::string& module) {
  const std::string_view last = last_part(module);
  if (last != "c_attn" && last != "c_proj" && last != "c_fc" && last != "q_attn") return false;
  if (!traits.model_type.empty())
    return traits.model_type == "gpt2" || traits.model_type == "openai-gpt" ||
           traits.model_type == "imagegpt";
  const std::string block(parent(parent(module)));
  const auto attention = tensors.find(block + ".attn.c_attn.weight");
  return attention && attention.tensor->shape.size() == 2 &&
         attention.tensor->shape[1] == 3 * attention.tensor->shape[0];
}

bool is_float_type(StoredType type) {
  const auto known = dtype_of_stored(type);
  return known && is_float(*known);
}

struct Found {
  std::vector<LinearLayer> layers, named;
  std::vector<KeptTensor> kept;
};

std::uint64_t elements_of(const StoredTensor& t) {
  std::uint64_t elements = 1;  // (the header was refused if this overflows)
  for (const std::uint64_t size : t.shape) elements *= size;
  return elements;
}

// A tensor that stays as it is, and why; no reason if it can be quantized.
KeptTensor why_kept(const StoredTensor& t) {
  // All experts of a block in one tensor: linear layers, whatever it is called.
  if (t.shape.size() > 2 && contains(t.name, "experts"))
    return {"", "experts that are stored in one tensor", true, false};
  if (!t.name.ends_with(weight_suffix)) return {"", "not the weight of a layer"};
  if (t.shape.size() > 2) return {"", "more than two dimensions"};
  KeptTensor kept = classify(parent(t.name));
  if (kept.reason.empty() && !is_float_type(t.type))
    return {"", fmt::format("{} is not a float type", name(t.type)), true, false};
  return kept;
}

void classify_tensor(const SafetensorsSet& tensors, const ModelTraits& traits,
                     const StoredTensor& t, Found& found) {
  if (t.shape.size() < 2) return;
  KeptTensor kept = why_kept(t);
  const std::string module(parent(t.name));
  const LayerKind kind = kind_of(module);
  const bool can_be_named = kind != LayerKind::linear && t.name.ends_with(weight_suffix) &&
                            t.shape.size() == 2 && is_float_type(t.type);
  if (kept.reason.empty() || can_be_named) {
    LinearLayer layer{module, *dtype_of_stored(t.type), 0, 0, false, kind};
    layer.transposed = stores_transposed(tensors, traits, module);
    layer.n = static_cast<std::int64_t>(t.shape[layer.transposed ? 1 : 0]);
    layer.k = static_cast<std::int64_t>(t.shape[layer.transposed ? 0 : 1]);
    if (layer.n > 0 && layer.k > 0) {
      (can_be_named ? found.named : found.layers).push_back(std::move(layer));
      if (!can_be_named) return;
    } else if (!can_be_named) {
      kept.reason = "it has no elements";
    }
  }
  kept.name = t.name;
  kept.elements = elements_of(t);
  found.kept.push_back(std::move(kept));
}

const LinearLayer* find_by_name(const std::vector<LinearLayer>& layers, std::string_view name) {
  const auto found = std::lower_bound(
      layers.begin(), layers.end(), name,
      [](const LinearLayer& l, std::string_view wanted) { return l.name < wanted; });
  return found != layers.end() && found->name == name ? &*found : nullptr;
}

}  // namespace

namespace offline {

LayerKind kind_of(std::string_view module) {
  const std::string_view last = last_part(module);
  if (module.starts_with("cls.") || module.starts_with("lm_head.") ||
      module.starts_with("classifier.") ||
      is_one_of(last, {"lm_head", "embed_out", "score", "classifier", "qa_outputs", "output_layer",
                       "head"}))
    return LayerKind::head;
  return contains(last, "embed") || is_one_of(last, {"wte", "wpe", "shared"}) ? LayerKind::embedding
                                                                              : LayerKind::linear;
}

std::string_view last_part(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}
std::string_view parent(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

TensorRef matrix_view(const SafetensorsFile& file, const StoredTensor& tensor, DType type,
                      bool transposed) {
  const auto rows = static_cast<std::int64_t>(tensor.shape[0]);
  const auto columns = static_cast<std::int64_t>(tensor.shape[1]);
  const void* data = file.bytes(tensor).data();
  return transposed ? TensorRef(data, type, {columns, rows}, {1, columns})
                    : TensorRef(data, type, {rows, columns});
}

TensorRef weight_view(const SafetensorsSet& tensors, const LinearLayer& layer) {
  const auto entry = tensors.find(layer.name + ".weight");
  return matrix_view(*entry.file, *entry.tensor, layer.type, layer.transposed);
}

std::vector<std::string> fused_with(const std::string& layer) {
  static const std::vector<std::vector<std::string>> groups{{"q_proj", "k_proj", "v_proj"},
                                                            {"gate_proj", "up_proj"},
                                                            {"query", "key", "value"},
                                                            {"w1", "w3"}};
  const std::string_view last = last_part(layer);
  const std::string before = layer.substr(0, layer.size() - last.size());
  for (const auto& group : groups) {
    if (std::find(group.begin(), group.end(), last) == group.end()) continue;
    std::vector<std::string> names;
    names.reserve(group.size());
    for (const std::string& part : group) names.push_back(before + part);
    return names;
  }
  return {};
}

Result<std::map<std::string, std::vector<float>>> read_smoothing(const fs::path& directory) {
  std::map<std::string, std::vector<float>> scales;
  const fs::path path = directory / smoothing_file_name;
  if (!is_there(path)) return scales;
  const auto file = SafetensorsFile::open(path);
  if (!file) return file.error();
  constexpr std::string_view suffix = ".smoothing_scale";
  for (const StoredTensor& t : file->tensors()) {
    if (!t.name.ends_with(suffix) || t.type != StoredType::F32 || t.shape.size() != 1)
      return bad_tensor(path.string(), t.name, "expected NORM.smoothing_scale, F32 [channels]");
    std::vector<float> values(t.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), file->bytes(t).data(), t.size());
    scales.emplace(t.name.substr(0, t.name.size() - suffix.size()), std::move(values));
  }
  return scales;
}

}  // namespace offline

Result<Checkpoint> Checkpoint::open(const fs::path& path) {
  auto tensors = SafetensorsSet::open(path);
  if (!tensors) return tensors.error();
  return guarded(path.string(), [&]() -> Result<Checkpoint> {
    Checkpoint checkpoint(*std::move(tensors));
    checkpoint.path_ = path;
    const fs::path config = checkpoint.tensors_.directory() / config_name;
    ModelTraits traits;
    if (is_there(config)) {
      auto text = read_text(config, max_config_bytes, &checkpoint.config_stamp_);
      if (!text) return text.error();
      // JSON has none, and most readers refuse it: what is written has none either.
      if (text->starts_with(byte_order_mark)) text->erase(0, byte_order_mark.size());
      const auto read = read_config_traits(config.string(), *text);
      if (!read) return read.error();
      checkpoint.config_ = *std::move(text);
      checkpoint.quantized_ = read->quantized;
      traits = read->traits;
    }
    Found found;
    std::vector<std::string> names;
    for (const SafetensorsFile& file : checkpoint.tensors_.files())
      for (const StoredTensor& t : file.tensors()) {
        names.push_back(t.name);
        classify_tensor(checkpoint.tensors_, traits, t, found);
      }
    const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
    std::sort(found.layers.begin(), found.layers.end(), by_name);
    std::sort(found.named.begin(), found.named.end(), by_name);
    std::sort(found.kept.begin(), found.kept.end(), by_name);
    checkpoint.layers_ = std::move(found.layers);
    checkpoint.named_ = std::move(found.named);
    checkpoint.kept_ = std::move(found.kept);
    checkpoint.pairs_ = smoothing_pairs(names, traits);
    return checkpoint;
  });
}

const LinearLayer* Checkpoint::layer(std::string_view name) const noexcept {
  return find_by_name(layers_, name);
}

const LinearLayer* Checkpoint::any_layer(std::string_view name) const noexcept {
  const LinearLayer* found = layer(name);
  return found != nullptr ? found : find_by_name(named_, name);
}

Status Checkpoint::unchanged() const {
  if (Status s = check_unchanged(tensors_.directory() / config_name, config_stamp_); !s) return s;
  return tensors_.unchanged();
}

std::uint64_t Checkpoint::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const SafetensorsFile& file : tensors_.files()) sum += file.size();
  return sum;
}

}  // namespace octavo
