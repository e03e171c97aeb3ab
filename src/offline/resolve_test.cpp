// From options to a plan: what is refused, and what is chosen.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/checkpoint.hpp"
#include "offline/testing_quantized.hpp"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::make_statistics;
using testing::TemporaryDirectory;

std::string refusal(const fs::path& path, const QuantizeOptions& options) {
  const auto checkpoint = Checkpoint::open(path);
  if (!checkpoint) return checkpoint.error().message();
  const auto plan = resolve(*checkpoint, options);
  return plan ? "accepted" : plan.error().message();
}

TEST(Resolve, RefusesWhatMatchesNothingOrDoesNotFit) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "llama");
  testing::make_bert(dir / "bert");
  const auto llama = dir / "llama";
  EXPECT_EQ(refusal(llama, {}), "accepted");
  EXPECT_THAT(refusal(llama, {.ignore = {"modle.layers*"}}),
              HasSubstr("ignore: expected a pattern that matches a layer, got \"modle.layers*\""));
  // An embedding is no layer.
  EXPECT_THAT(refusal(llama, {.ignore = {"*.embed_tokens"}}), HasSubstr("matches none of 15"));
  EXPECT_THAT(refusal(llama, {.ignore = {"re:("}}), HasSubstr("regular expression"));
  EXPECT_THAT(refusal(llama, {.ignore = {"*"}}), HasSubstr("expected layers to quantize"));
  EXPECT_THAT(refusal(llama, {.ignore = {"*.k_proj"}}), HasSubstr("treated alike"));
  EXPECT_EQ(refusal(llama, {.ignore = {"re:.*[.]layers[.]1[.]", "lm_head", "*.down_proj"}}),
            "accepted");
  EXPECT_THAT(refusal(llama, {.scheme = Scheme::w8a8_static}),
              HasSubstr("statistics: expected statistics of activations for w8a8-static"));
  EXPECT_THAT(refusal(llama, {.smooth = true}), HasSubstr("for smoothing"));
  EXPECT_THAT(refusal(llama, {.scheme = Scheme::w4a16_group, .group_size = 5}),
              HasSubstr("group_size: expected a multiple of 4"));
  EXPECT_THAT(refusal(llama, {.scheme = Scheme::w4a16_group, .group_size = 20}),
              HasSubstr("is no multiple of 20"));
  const Statistics none;
  EXPECT_THAT(refusal(llama, {.statistics = &none, .smooth = true}),
              HasSubstr("expected statistics of model.layers.0.self_attn.q_proj, got none"));
  EXPECT_THAT(
      refusal(dir / "bert", {.statistics = &none, .smooth = true}),
      HasSubstr("smooth: expected pairs of a norm and layers, got none: the output of each"));
  const auto checkpoint = Checkpoint::open(llama);
  const Statistics stats = make_statistics(*checkpoint);
  EXPECT_THAT(refusal(llama, {.statistics = &stats, .smooth = true, .alpha = 1.1}),
              HasSubstr("alpha: expected 0 to 1"));
  EXPECT_THAT(refusal(llama, {.statistics = &stats, .smooth = true, .alpha = -0.1}),
              HasSubstr("alpha: expected 0 to 1, got -0.1"));
  EXPECT_EQ(refusal(llama, {.statistics = &stats, .smooth = true, .alpha = std::nullopt}),
            "accepted");
  Statistics unsampled;
  for (const auto& [layer, s] : stats.layers())
    ASSERT_TRUE(unsampled.update(Stream::cpu(), layer, TensorRef(s.absmax(), {1, s.channels()})));
  EXPECT_THAT(refusal(llama, {.statistics = &unsampled, .smooth = true, .alpha = std::nullopt}),
              HasSubstr("expected sampled rows of"));
  // Of another model: one layer has half as many channels.
  Statistics other;
  for (const auto& [layer, s] : stats.layers())
    ASSERT_TRUE(other.update(
        Stream::cpu(), layer,
        TensorRef(s.absmax().data(), {1, layer.ends_with("0.mlp.up_proj") ? 16 : s.channels()})));
  for (const bool smooth : {true, false})
    EXPECT_EQ(
        refusal(llama, {.scheme = Scheme::w8a8_static, .statistics = &other, .smooth = smooth}),
        "statistics: layer model.layers.0.mlp.up_proj: expected 32 channels, got 16");
}

// Folded into such a norm, a scale would change the residual, too.
TEST(Resolve, DoesNotSmoothNormsThatFeedTheResidual) {
  const TemporaryDirectory dir;
  testing::make_opt(dir / "opt");
  testing::make_safetensors(dir / "bloom" / "m.safetensors",
                            {{"h.0.input_layernorm.weight", {8}},
                             {"h.0.self_attention.query_key_value.weight", {24, 8}}});
  const auto pairs = [&](const char* model, const char* config) {
    testing::make_file(dir / model / "config.json", config);
    return Checkpoint::open(dir / model)->pairs().pairs.size();
  };
  EXPECT_EQ(pairs("opt", R"({"model_type":"opt"})"), 2U);
  EXPECT_EQ(pairs("opt", R"({"model_type":"opt","do_layer_norm_before":true})"), 2U);
  EXPECT_EQ(pairs("opt", R"({"model_type":"opt","do_layer_norm_before":false})"), 0U);
  constexpr const char* key = "apply_residual_connection_post_layernorm";
  EXPECT_EQ(pairs("bloom", R"({"model_type":"bloom"})"), 1U);
  for (const bool feeds : {false, true})
    EXPECT_EQ(
        pairs("bloom", fmt::format(R"({{"model_type":"bloom","{}":{}}})", key, feeds).c_str()),
        feeds ? 0U : 1U);
}

TEST(Resolve, RefusesTensorsThatDoNotBelongTogether) {
  const TemporaryDirectory dir;
  const std::string p = "model.layers.0.";
  const auto message = [&](std::uint64_t norm, std::uint64_t keys, std::uint64_t bias = 8) {
    testing::make_safetensors(dir / "in" / "m.safetensors",
                              {{p + "input_layernorm.weight", {norm}},
                               {p + "input_layernorm.bias", {bias}},
                               {p + "self_attn.q_proj.weight", {8, 8}},
                               {p + "self_attn.k_proj.weight", {8, keys}},
                               {p + "self_attn.v_proj.weight", {8, 8}}});
    testing::make_file(dir / "in" / "config.json", R"({"model_type":"llama"})");
    const auto checkpoint = Checkpoint::open(dir / "in");
    const Statistics stats = make_statistics(*checkpoint);
    return refusal(dir / "in", {.statistics = &stats, .smooth = true});
  };
  EXPECT_EQ(message(8, 8), "accepted");
  EXPECT_THAT(message(9, 8), HasSubstr("m.safetensors: tensor \"model.layers.0.input_layernorm"));
  EXPECT_THAT(message(8, 8, 7),
              HasSubstr("tensor \"model.layers.0.input_layernorm.bias\": expected "
                        "a float tensor of [8]"));
  EXPECT_THAT(message(8, 9),
              HasSubstr("m.safetensors: tensor \"model.layers.0.self_attn.k_proj.weight\": "
                        "expected 8 input channels, as many as "));
  testing::make_file(dir / "in" / "config.json", "{");
  EXPECT_THAT(refusal(dir / "in", {}), HasSubstr("config.json: expected JSON"));
  testing::make_file(dir / "in" / "config.json", R"({"quantization_config":{}})");
  EXPECT_THAT(refusal(dir / "in", {}), HasSubstr("expected a float checkpoint"));
}

// The statistics of one layer stand for all that read the same norm.
TEST(Resolve, AlphaIsSearchedWithTheRowsOfAnyLayerOfAPair) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  const Checkpoint in = testing::open(dir / "in");
  const Statistics all = make_statistics(in);
  Statistics some({.sample_rows = 8});
  for (const char* end : {"self_attn.v_proj", "mlp.up_proj"})
    for (const char* block : {"model.layers.0.", "model.layers.1."}) {
      const std::vector<float> rows = all.find(std::string(block) + end)->sample();
      ASSERT_TRUE(some.update(Stream::cpu(), std::string(block) + end, TensorRef(rows, {8, 32})));
    }
  QuantizeOptions options{.statistics = &some, .smooth = true, .alpha = std::nullopt};
  const QuantizeReport report = testing::run(in, options, dir / "some");
  ASSERT_EQ(report.alphas.size(), 4U);
  for (const double error : report.alpha_errors) EXPECT_GT(error, 0.0);
}

// Without a layer that is quantized there is nothing to smooth, and nothing that it would take.
TEST(Resolve, PairsWithoutQuantizedLayersAreLeftAlone) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  const Checkpoint in = testing::open(dir / "in");
  const Statistics all = make_statistics(in);
  Statistics first;
  for (const auto& [layer, s] : all.layers())
    if (layer.starts_with("model.layers.0.")) {
      ASSERT_TRUE(first.update(Stream::cpu(), layer, TensorRef(s.absmax(), {1, s.channels()})));
    }
  testing::run(in, {.ignore = {"model.layers.1.*"}, .statistics = &first, .smooth = true},
               dir / "out");
  const Checkpoint out = testing::open(dir / "out");
  for (const int block : {0, 1}) {
    const std::string norm = fmt::format("model.layers.{}.input_layernorm.weight", block);
    EXPECT_EQ(testing::bytes_of(out, norm) == testing::bytes_of(in, norm), block == 1) << block;
  }
}

TEST(Resolve, SaysWhichGroupsWouldTakeMore) {
  const TemporaryDirectory dir;
  testing::make_safetensors(
      dir / "in" / "m.safetensors",
      {{"h.0.a.weight", {8, 256}}, {"h.0.b.weight", {8, 192}}, {"h.0.c.weight", {8, 9}}});
  const Checkpoint in = testing::open(dir / "in");
  const auto plan = resolve(in, {.scheme = Scheme::w4a16_group, .group_size = 128});
  ASSERT_TRUE(plan) << plan.error().message();
  const std::vector<LeftFloat> left = left_float(*plan);
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[0].text(),
            "1 layer, 42 % of the linear weights, stays float: in = 192 is no multiple of 128; "
            "--group-size 64 would take more of them");
}

TEST(Resolve, FormatsOfGptBigCodeAreNotTakenForGpt2) {
  const TemporaryDirectory dir;
  testing::make_gpt2(dir / "in");
  const auto transposed = [&](const char* type) {
    testing::make_file(dir / "in" / "config.json", fmt::format(R"({{"model_type":"{}"}})", type));
    const Checkpoint in = testing::open(dir / "in");
    EXPECT_EQ(in.layers().size(), 4U);
    return in.layers()[0].transposed;
  };
  for (const char* type : {"gpt2", "openai-gpt", "imagegpt"}) EXPECT_TRUE(transposed(type)) << type;
  for (const char* type : {"gpt_bigcode", "llama"}) EXPECT_FALSE(transposed(type)) << type;
}

// By every name that they have, for loaders keep them as one weight.
TEST(Resolve, FusedLayersAreTreatedAlike) {
  const TemporaryDirectory dir;
  for (const auto& [one, other] : {std::pair("q_proj", "v_proj"), std::pair("gate_proj", "up_proj"),
                                   std::pair("query", "key"), std::pair("w3", "w1")}) {
    testing::make_safetensors(dir / "in" / "m.safetensors",
                              {{fmt::format("h.0.{}.weight", one), {8, 8}},
                               {fmt::format("h.0.{}.weight", other), {8, 8}}});
    EXPECT_THAT(
        refusal(dir / "in", {.ignore = {fmt::format("*.{}", one)}}),
        HasSubstr(fmt::format("expected h.0.{} and h.0.{} to be treated alike", other, one)));
    EXPECT_EQ(refusal(dir / "in", {}), "accepted");
  }
}

// Nothing can be quantized where there is nothing.
TEST(Resolve, EmptyMatricesStay) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors",
                            {{"a.weight", {8, 8}}, {"b.weight", {8, 0}}, {"c.weight", {0, 8}}});
  const Checkpoint in = testing::open(dir / "in");
  EXPECT_EQ(in.layers().size(), 1U);
  for (const KeptTensor& kept : in.kept()) EXPECT_EQ(kept.reason, "it has no elements");
  EXPECT_EQ(in.kept().size(), 2U);
}

}  // namespace
}  // namespace octavo
