// Quantized checkpoints, tensor by tensor, against plain loops.
#include "octavo/checkpoint.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "offline/testing_quantized.hpp"
#include "testing/threads.hpp"

namespace octavo {
namespace {

using testing::bytes_as;
using testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::made_values;
using testing::make_statistics;
using testing::open;
using testing::quantized_row;
using testing::read_tree;
using testing::rounded;
using testing::Row;
using testing::run;
using testing::shape_of;
using testing::TemporaryDirectory;
using testing::values_of;
using Json = nlohmann::json;

void expect_rows(const Checkpoint& got, const std::string& layer, const std::vector<float>& w,
                 std::size_t n, std::size_t k) {
  const auto q = values_of<std::int8_t>(got, layer + ".weight");
  const auto scales = values_of<float>(got, layer + ".weight_scale");
  ASSERT_EQ(q.size(), n * k) << layer;
  ASSERT_EQ(scales.size(), n);
  for (std::size_t i = 0; i < n; ++i) {
    const Row row = quantized_row({w.begin() + static_cast<std::ptrdiff_t>(i * k),
                                   w.begin() + static_cast<std::ptrdiff_t>(i * k + k)},
                                  127.0F);
    ASSERT_EQ(scales[i], row.scale) << layer << " " << i;
    for (std::size_t j = 0; j < k; ++j) ASSERT_EQ(q[i * k + j], row.q[j]) << layer;
  }
}

TEST(Checkpoint, KnowsLayersAndWhatIsKept) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "llama");
  const Checkpoint llama = open(dir / "llama");
  EXPECT_EQ(llama.layers().size(), 14U);
  EXPECT_EQ(llama.pairs().pairs.size(), 4U);
  ASSERT_EQ(llama.kept().size(), 2U);
  EXPECT_EQ(llama.kept()[0].name, "lm_head.weight");
  EXPECT_THAT(llama.kept()[0].reason, HasSubstr("head"));
  EXPECT_THAT(llama.kept()[1].reason, HasSubstr("embedding"));
  ASSERT_NE(llama.layer("model.layers.0.mlp.down_proj"), nullptr);
  EXPECT_EQ(llama.layer("model.layers.0.mlp.down_proj")->k, 48);
  EXPECT_EQ(llama.layer("lm_head"), nullptr);
  testing::make_gpt2(dir / "gpt2");
  const Checkpoint gpt2 = open(dir / "gpt2" / "model.safetensors");
  ASSERT_EQ(gpt2.layers().size(), 4U);
  EXPECT_TRUE(gpt2.layers()[0].transposed);
  EXPECT_EQ(gpt2.layers()[0].n, 48);
  EXPECT_EQ(gpt2.pairs().pairs.size(), 2U);
  testing::make_bert(dir / "bert");
  const Checkpoint bert = open(dir / "bert");
  EXPECT_EQ(bert.layers().size(), 6U);
  EXPECT_EQ(bert.layer("pooler.dense"), nullptr);
  EXPECT_THAT(bert.pairs().note, HasSubstr("residual"));
}

TEST(Quantize, W8A8DynamicOfALlama) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  std::filesystem::create_directory_symlink(dir.path(), dir / "in" / "around");
  const Checkpoint in = open(dir / "in");
  const QuantizeReport report = run(in, {}, dir / "out");
  EXPECT_THAT(report.skipped, ElementsAre(HasSubstr("around: a link to a directory"),
                                          HasSubstr("pytorch_model.bin")));
  const Checkpoint out = open(dir / "out");
  EXPECT_TRUE(out.is_quantized());
  for (const LinearLayer& layer : in.layers()) {
    const auto shape = shape_of(in, layer.name + ".weight");
    expect_rows(out, layer.name, rounded({layer.name + ".weight", shape, StoredType::BF16}),
                shape[0], shape[1]);
    EXPECT_EQ(shape_of(out, layer.name + ".weight"), shape);
    EXPECT_EQ(shape_of(out, layer.name + ".weight_scale"),
              (std::vector<std::uint64_t>{shape[0], 1}));
    EXPECT_FALSE(out.tensors().find(layer.name + ".input_scale"));
  }
  for (const char* same : {"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight",
                           "model.layers.1.input_layernorm.weight"})
    EXPECT_EQ(bytes_of(out, same), bytes_of(in, same));

  auto files = read_tree(dir / "out");
  EXPECT_EQ(files.size(), 6U);
  EXPECT_EQ(files["tokenizer.json"], "{\"tokens\": []}");
  EXPECT_TRUE(files.contains("1_Pooling/config.json"));
  EXPECT_FALSE(std::filesystem::exists(dir / "out.partial"));
  const Json config = Json::parse(files["config.json"]);
  EXPECT_EQ(config["model_type"], "llama");
  EXPECT_EQ(config["quantization_config"], Json::parse(R"({
      "quant_method": "compressed-tensors", "format": "int-quantized",
      "quantization_status": "compressed", "version": "0.12.2",
      "global_compression_ratio": null, "kv_cache_scheme": null,
      "ignore": ["lm_head"], "sparsity_config": {}, "transform_config": {},
      "config_groups": {"group_0": {"targets": ["Linear"],
        "weights": {"num_bits":8,"type":"int","symmetric":true,"strategy":"channel","dynamic":false},
        "input_activations": {"num_bits":8,"type":"int","symmetric":true,"strategy":"token",
                              "dynamic":true},
        "output_activations": null, "format": "int-quantized"}}})"));
  EXPECT_TRUE(files["config.json"].starts_with("{\n  \"model_type\": \"llama\",\n"));
  const Json index = Json::parse(files["model.safetensors.index.json"]);
  EXPECT_EQ(index["weight_map"]["model.layers.1.mlp.up_proj.weight_scale"],
            "model-00002-of-00002.safetensors");
  std::uint64_t total = 0;
  for (const auto& file : out.tensors().files()) {
    for (const auto& t : file.tensors()) total += t.size();
    EXPECT_EQ(file.metadata().at("format"), "pt");
    EXPECT_EQ(file.metadata().at("octavo.scheme"), "w8a8-dynamic");
  }
  EXPECT_EQ(index["metadata"]["total_size"], total);
}

TEST(Quantize, StaticSmoothedOfAnOpt) {
  const TemporaryDirectory dir;
  testing::make_opt(dir / "in");
  const Checkpoint in = open(dir / "in");
  const Statistics stats = make_statistics(in);
  run(in, {.scheme = Scheme::w8a8_static, .statistics = &stats, .smooth = true, .alpha = 0.7},
      dir / "out");
  const Checkpoint out = open(dir / "out");
  const std::string p = "model.decoder.layers.0.";
  // The scales of the pair by the public function, applied in plain loops.
  const std::vector<std::string> names{"q_proj", "k_proj", "v_proj"};
  std::vector<TensorRef> weights;
  for (const std::string& name : names) {
    const auto e = in.tensors().find(fmt::format("{}self_attn.{}.weight", p, name));
    weights.push_back(*e.file->view(*e.tensor));
  }
  const auto& absmax = stats.find(p + "self_attn.q_proj")->absmax();
  const auto s = smoothing_scales(Stream::cpu(), weights, absmax, 0.7);
  ASSERT_TRUE(s);
  float most = 0;
  for (std::size_t j = 0; j < s->size(); ++j) most = std::max(most, absmax[j] / (*s)[j]);
  for (const std::string& name : names) {
    const std::string layer = fmt::format("{}self_attn.{}", p, name);
    std::vector<float> w = rounded({layer + ".weight", {24, 24}, StoredType::F16});
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = to_float(to_f16(w[i] * (*s)[i % 24]));
    expect_rows(out, layer, w, 24, 24);
    EXPECT_EQ(values_of<float>(out, layer + ".input_scale"), std::vector<float>{most / 127.0F});
    EXPECT_EQ(shape_of(out, layer + ".input_scale"), std::vector<std::uint64_t>{1});
  }
  for (const char* part : {".weight", ".bias"}) {
    const std::string norm = p + "self_attn_layer_norm" + part;
    std::vector<float> v = rounded({norm, {24}, StoredType::F16});
    for (std::size_t j = 0; j < v.size(); ++j) v[j] /= (*s)[j];
    EXPECT_EQ(bytes_of(out, norm), bytes_as(StoredType::F16, v));
  }
  // Not smoothed, but static all the same.
  const auto& plain = stats.find(p + "fc2")->absmax();
  EXPECT_EQ(values_of<float>(out, p + "fc2.input_scale"),
            std::vector<float>{*std::max_element(plain.begin(), plain.end()) / 127.0F});
  expect_rows(out, p + "fc2", rounded({p + "fc2.weight", {24, 30}, StoredType::F16}), 24, 30);
  EXPECT_EQ(bytes_of(out, p + "fc1.bias"), bytes_of(in, p + "fc1.bias"));
  const Json config = Json::parse(testing::read_file(dir / "out" / "config.json"));
  const Json inputs =
      config["quantization_config"]["config_groups"]["group_0"]["input_activations"];
  EXPECT_EQ(inputs["strategy"], "tensor");
  EXPECT_EQ(inputs["dynamic"], false);
  EXPECT_EQ(out.tensors().files()[0].metadata().at("octavo.smoothing"), "absmax");
  EXPECT_EQ(out.tensors().files()[0].metadata().at("octavo.alpha"), "0.7");
}

TEST(Quantize, Conv1DStaysAsItIsStored) {
  const TemporaryDirectory dir;
  testing::make_gpt2(dir / "in");
  const Checkpoint in = open(dir / "in");
  run(in, {}, dir / "out");
  const Checkpoint out = open(dir / "out");
  for (const LinearLayer& layer : in.layers()) {
    const auto n = static_cast<std::size_t>(layer.n), k = static_cast<std::size_t>(layer.k);
    EXPECT_EQ(shape_of(out, layer.name + ".weight"), (std::vector<std::uint64_t>{k, n}));
    const auto stored = rounded({layer.name + ".weight", {k, n}});
    const auto q = values_of<std::int8_t>(out, layer.name + ".weight");
    const auto scales = values_of<float>(out, layer.name + ".weight_scale");
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<float> w(k);
      for (std::size_t j = 0; j < k; ++j) w[j] = stored[j * n + i];
      const Row row = quantized_row(w, 127.0F);
      ASSERT_EQ(scales[i], row.scale);
      for (std::size_t j = 0; j < k; ++j) ASSERT_EQ(q[j * n + i], row.q[j]);
    }
  }
}

// Loaders turn a Conv1D's ".weight" around, and nothing else: what is packed lies [out, in]
// already.
TEST(Quantize, PackedConv1DIsOutByIn) {
  const TemporaryDirectory dir;
  testing::make_gpt2(dir / "in");
  const Checkpoint in = open(dir / "in");
  run(in, {.scheme = Scheme::w4a16_group, .group_size = 4}, dir / "out");
  const Checkpoint out = open(dir / "out");
  for (const LinearLayer& layer : in.layers()) {
    const auto n = static_cast<std::size_t>(layer.n), k = static_cast<std::size_t>(layer.k);
    EXPECT_EQ(shape_of(out, layer.name + ".weight_packed"),
              (std::vector<std::uint64_t>{n, (k + 7) / 8}));
    EXPECT_EQ(values_of<std::int64_t>(out, layer.name + ".weight_shape"),
              (std::vector<std::int64_t>{layer.n, layer.k}));
    const auto stored = rounded({layer.name + ".weight", {k, n}});
    const auto words = values_of<std::uint32_t>(out, layer.name + ".weight_packed");
    const auto scales = values_of<float>(out, layer.name + ".weight_scale");
    ASSERT_EQ(scales.size(), n * k / 4);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t first = 0; first < k; first += 4) {
        std::vector<float> w(4);
        for (std::size_t j = 0; j < 4; ++j) w[j] = stored[(first + j) * n + i];
        const Row row = quantized_row(w, 7.0F);
        ASSERT_EQ(scales[(i * k + first) / 4], row.scale);
        for (std::size_t j = 0; j < 4; ++j) {
          const std::uint32_t word = words[i * ((k + 7) / 8) + (first + j) / 8];
          ASSERT_EQ(static_cast<int>((word >> ((first + j) % 8 * 4)) & 15U) - 8, row.q[j]);
        }
      }
  }
}

TEST(Quantize, W4A16PacksNibbles) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors",
                            {{"a.up.weight", {5, 20}}, {"b.up.weight", {3, 21}}});
  const Checkpoint in = open(dir / "in" / "m.safetensors");
  run(in, {.scheme = Scheme::w4a16_group, .group_size = 4}, dir / "out");
  const Checkpoint out = open(dir / "out");
  EXPECT_FALSE(out.tensors().find("a.up.weight"));
  EXPECT_EQ(shape_of(out, "a.up.weight_packed"), (std::vector<std::uint64_t>{5, 3}));
  EXPECT_EQ(shape_of(out, "a.up.weight_scale"), (std::vector<std::uint64_t>{5, 5}));
  EXPECT_EQ(values_of<std::int64_t>(out, "a.up.weight_shape"), (std::vector<std::int64_t>{5, 20}));
  const auto w = rounded({"a.up.weight", {5, 20}});
  const auto words = values_of<std::uint32_t>(out, "a.up.weight_packed");
  const auto scales = values_of<float>(out, "a.up.weight_scale");
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t g = 0; g < 5; ++g) {
      const auto at = w.begin() + static_cast<std::ptrdiff_t>(i * 20 + g * 4);
      const Row row = quantized_row({at, at + 4}, 7.0F);
      EXPECT_EQ(scales[i * 5 + g], row.scale);
      for (std::size_t j = 0; j < 4; ++j) {
        const std::size_t k = g * 4 + j;
        const auto nibble = (words[i * 3 + k / 8] >> (k % 8 * 4)) & 15U;
        ASSERT_EQ(static_cast<int>(nibble) - 8, row.q[j]);
      }
    }
    EXPECT_EQ(words[i * 3 + 2] >> 16U, 0U) << "padding";
  }
  // 21 channels are no multiple of 4: it stays, and the config says so.
  EXPECT_EQ(bytes_of(out, "b.up.weight"), bytes_of(in, "b.up.weight"));
  const Json config = Json::parse(testing::read_file(dir / "out" / "config.json"));
  EXPECT_EQ(config["quantization_config"]["ignore"], (Json{"b.up", "lm_head"}));
  EXPECT_EQ(config["quantization_config"]["format"], "pack-quantized");
}

TEST(Quantize, EverySourceTypeAndMisalignedFiles) {
  const TemporaryDirectory dir;
  for (const StoredType type :
       {StoredType::F32, StoredType::F64, StoredType::F16, StoredType::BF16}) {
    const std::string data = bytes_as(type, made_values({"x.weight", {3, 8}, type}));
    std::string header = std::string(R"({"x.weight":{"dtype":")") + std::string(name(type)) +
                         R"(","shape":[3,8],"data_offsets":[0,)" + std::to_string(data.size()) +
                         "]}}";
    header.resize(81, ' ');  // the data starts at an odd place
    std::filesystem::remove_all(dir.path());
    testing::make_file(dir / "in" / "m.safetensors", testing::assemble(header, data));
    const Checkpoint in = open(dir / "in");
    run(in, {}, dir / "out");
    const Checkpoint out = open(dir / "out");
    if (type != StoredType::F64) {
      expect_rows(out, "x", rounded({"x.weight", {3, 8}, type}), 3, 8);
    } else {
      EXPECT_EQ(out.tensors().find("x.weight_scale").tensor->type, StoredType::F64);
    }
  }
}

TEST(Quantize, TheSameBytesForAnyNumberOfThreads) {
  [[maybe_unused]] const testing::ManyThreads many;
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in", StoredType::F16, 512, 640);
  const Checkpoint in = open(dir / "in");
  const Statistics stats = make_statistics(in);
  for (const Scheme scheme : {Scheme::w8a8_dynamic, Scheme::w8a8_static, Scheme::w4a16_group}) {
    std::map<std::string, std::string> first;
    for (const int threads : {1, 2, 16}) {
      const auto out = dir / ("out" + std::to_string(threads));
      std::filesystem::remove_all(out);
      run(in,
          {.scheme = scheme,
           .group_size = 64,
           .statistics = &stats,
           .smooth = true,
           .alpha = std::nullopt},
          out, threads);
      const auto tree = read_tree(out);
      if (first.empty()) first = tree;
      EXPECT_TRUE(tree == first) << name(scheme) << " with " << threads;
    }
  }
}

TEST(Quantize, RoutersAreSmoothedAndStayFloat) {
  const TemporaryDirectory dir;
  const std::string p = "model.layers.0.";
  const std::string m = p + "block_sparse_moe.";
  testing::make_safetensors(dir / "in" / "m.safetensors",
                            {{p + "input_layernorm.weight", {8}},
                             {p + "post_attention_layernorm.weight", {8}},
                             {m + "gate.weight", {2, 8}},
                             {m + "experts.0.w1.weight", {16, 8}},
                             {m + "experts.0.w3.weight", {16, 8}},
                             {m + "experts.0.w2.weight", {8, 16}},
                             {m + "experts.1.w1.weight", {16, 8}},
                             {m + "experts.1.w3.weight", {16, 8}},
                             {m + "experts.1.w2.weight", {8, 16}}});
  testing::make_file(dir / "in" / "config.json", R"({"model_type":"mixtral"})");
  const Checkpoint in = open(dir / "in");
  const Statistics stats = make_statistics(in);
  run(in, {.statistics = &stats, .smooth = true, .loader = Loader::vllm}, dir / "out");
  const Checkpoint out = open(dir / "out");
  const auto sidecar = SafetensorsFile::open(dir / "out" / smoothing_file_name);
  ASSERT_TRUE(sidecar);
  std::vector<float> s(8);
  std::memcpy(s.data(), sidecar->bytes(sidecar->tensors()[0]).data(), 32);
  std::vector<float> gate = made_values({m + "gate.weight", {2, 8}});
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= s[i % 8];
  EXPECT_EQ(values_of<float>(out, m + "gate.weight"), gate);
  const Json config = Json::parse(testing::read_file(dir / "out" / "config.json"));
  EXPECT_EQ(config["quantization_config"]["ignore"], (Json{"lm_head", m + "gate"}));
}

}  // namespace
}  // namespace octavo
