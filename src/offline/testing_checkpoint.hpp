// For tests: small checkpoints of several architectures, and their statistics.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "octavo/checkpoint.hpp"
#include "offline/testing_files.hpp"

namespace octavo::testing {

/// A tensor of random values; they depend on its name only.
struct MadeTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  StoredType type = StoredType::F32;
};

inline std::vector<float> made_values(const MadeTensor& t) {
  std::uint64_t count = 1;
  for (const std::uint64_t n : t.shape) count *= n;
  std::mt19937 rng(static_cast<unsigned>(std::hash<std::string>()(t.name)));
  std::vector<float> out(count);
  for (float& x : out) x = static_cast<float>(static_cast<std::int32_t>(rng())) * 0x1p-32F;
  if (t.shape.size() == 1)  // norms and biases
    for (float& x : out) x += 1.0F;
  return out;
}

inline std::string bytes_as(StoredType type, const std::vector<float>& values) {
  std::string out;
  const auto add = [&](const auto& v) { out.append(reinterpret_cast<const char*>(&v), sizeof(v)); };
  for (const float x : values) {
    if (type == StoredType::F16) add(to_f16(x));
    if (type == StoredType::BF16) add(to_bf16(x));
    if (type == StoredType::F32) add(x);
    if (type == StoredType::F64) add(double{x});
  }
  return out;
}

inline void make_safetensors(const std::filesystem::path& path,
                             const std::vector<MadeTensor>& tensors) {
  std::vector<StoredTensorSpec> specs;
  specs.reserve(tensors.size());
  for (const MadeTensor& t : tensors) specs.push_back({t.name, t.type, t.shape});
  std::filesystem::create_directories(path.parent_path());
  auto writer = SafetensorsWriter::create(path, specs, {{"format", "pt"}});
  ASSERT_TRUE(writer) << writer.error().message();
  for (const MadeTensor& t : tensors) {
    const std::string bytes = bytes_as(t.type, made_values(t));
    ASSERT_TRUE(writer->write(t.name, std::as_bytes(std::span(bytes.data(), bytes.size()))));
  }
  ASSERT_TRUE(writer->finish());
}

/// Two layers of a Llama in two shards with an index, a tokenizer and old weights beside them.
inline void make_llama(const std::filesystem::path& dir, StoredType type = StoredType::BF16,
                       std::uint64_t hidden = 32, std::uint64_t wide = 48) {
  std::vector<MadeTensor> shards[2];
  shards[0].push_back({"model.embed_tokens.weight", {40, hidden}, type});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    auto& s = shards[layer];
    s.push_back({p + "input_layernorm.weight", {hidden}, type});
    for (const char* name : {"q_proj", "o_proj"})
      s.push_back({p + "self_attn." + name + ".weight", {hidden, hidden}, type});
    for (const char* name : {"k_proj", "v_proj"})
      s.push_back({p + "self_attn." + name + ".weight", {hidden / 2, hidden}, type});
    s.push_back({p + "post_attention_layernorm.weight", {hidden}, type});
    // The norm of the second layer lies in the first shard, away from its linears.
    for (const char* name : {"gate_proj", "up_proj"})
      s.push_back({p + "mlp." + name + ".weight", {wide, hidden}, type});
    s.push_back({p + "mlp.down_proj.weight", {hidden, wide}, type});
  }
  shards[0].push_back({"model.norm.weight", {hidden}, type});
  shards[1].push_back({"lm_head.weight", {40, hidden}, type});
  std::swap(shards[0][1], shards[1][0]);  // the two input_layernorm
  std::string map;
  for (int i = 0; i < 2; ++i) {
    const std::string name = "model-0000" + std::to_string(i + 1) + "-of-00002.safetensors";
    make_safetensors(dir / name, shards[i]);
    for (const MadeTensor& t : shards[i])
      map.append(map.empty() ? "" : ",").append("\"" + t.name + "\":\"" + name + "\"");
  }
  make_file(dir / "model.safetensors.index.json",
            R"({"metadata":{"total_size":1},"weight_map":{)" + map + "}}");
  make_file(dir / "config.json", "{\n  \"model_type\": \"llama\",\n  \"hidden_size\": 32\n}\n");
  make_file(dir / "tokenizer.json", "{\"tokens\": []}");
  make_file(dir / "1_Pooling" / "config.json", "{}");
  make_file(dir / "pytorch_model.bin", "old");
}

/// One layer of GPT-2, whose weights are stored [in, out]; no config.json.
inline void make_gpt2(const std::filesystem::path& dir, StoredType type = StoredType::F32) {
  make_safetensors(dir / "model.safetensors", {{"wte.weight", {20, 16}, type},
                                               {"wpe.weight", {8, 16}, type},
                                               {"h.0.ln_1.weight", {16}, type},
                                               {"h.0.ln_1.bias", {16}, type},
                                               {"h.0.attn.c_attn.weight", {16, 48}, type},
                                               {"h.0.attn.c_attn.bias", {48}, type},
                                               {"h.0.attn.c_proj.weight", {16, 16}, type},
                                               {"h.0.ln_2.weight", {16}, type},
                                               {"h.0.ln_2.bias", {16}, type},
                                               {"h.0.mlp.c_fc.weight", {16, 64}, type},
                                               {"h.0.mlp.c_proj.weight", {64, 16}, type}});
}

/// One layer of OPT.
inline void make_opt(const std::filesystem::path& dir, StoredType type = StoredType::F16) {
  const std::string p = "model.decoder.layers.0.";
  std::vector<MadeTensor> tensors{{"model.decoder.embed_tokens.weight", {20, 24}, type},
                                  {p + "self_attn_layer_norm.weight", {24}, type},
                                  {p + "self_attn_layer_norm.bias", {24}, type},
                                  {p + "final_layer_norm.weight", {24}, type},
                                  {p + "final_layer_norm.bias", {24}, type},
                                  {p + "fc1.weight", {30, 24}, type},
                                  {p + "fc1.bias", {30}, type},
                                  {p + "fc2.weight", {24, 30}, type}};
  for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
    tensors.push_back({p + "self_attn." + name + ".weight", {24, 24}, type});
  make_safetensors(dir / "model.safetensors", tensors);
  make_file(dir / "config.json", R"({"model_type":"opt","do_layer_norm_before":true})");
}

/// One layer of BERT.
inline void make_bert(const std::filesystem::path& dir) {
  const std::string p = "encoder.layer.0.";
  std::vector<MadeTensor> tensors{{"embeddings.word_embeddings.weight", {20, 8}},
                                  {"embeddings.LayerNorm.weight", {8}},
                                  {p + "attention.output.dense.weight", {8, 8}},
                                  {p + "attention.output.LayerNorm.weight", {8}},
                                  {p + "intermediate.dense.weight", {16, 8}},
                                  {p + "output.dense.weight", {8, 16}},
                                  {p + "output.LayerNorm.weight", {8}},
                                  {"pooler.dense.weight", {8, 8}}};
  for (const char* name : {"query", "key", "value"})
    tensors.push_back({p + "attention.self." + name + ".weight", {8, 8}});
  make_safetensors(dir / "model.safetensors", tensors);
  make_file(dir / "config.json", R"({"model_type":"bert"})");
}

/// Statistics of every layer of a checkpoint; inputs of one norm are the same, with outliers.
inline Statistics make_statistics(const Checkpoint& checkpoint, std::int64_t rows = 12) {
  Statistics out({.sample_rows = 8});
  const Stream stream = Stream::cpu({.threads = 1});
  for (const LinearLayer& layer : checkpoint.layers()) {
    std::string input = layer.name;
    for (const SmoothingPair& pair : checkpoint.pairs().pairs)
      for (const std::string& linear : pair.linears)
        if (linear == layer.name) input = pair.norm;
    std::vector<float> x =
        made_values({input + " input",
                     {static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(layer.k)}});
    for (std::size_t i = 0; i < x.size(); ++i)
      if (i % static_cast<std::size_t>(layer.k) == 3) x[i] *= 40.0F;
    EXPECT_TRUE(out.update(stream, layer.name, TensorRef(x, {rows, layer.k})));
  }
  return out;
}

/// All files below a directory, by name.
inline std::map<std::string, std::string> read_tree(const std::filesystem::path& dir) {
  std::map<std::string, std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir))
    if (entry.is_regular_file())
      out[entry.path().lexically_relative(dir).string()] = read_file(entry.path());
  return out;
}

}  // namespace octavo::testing
