// A scheme for each layer: what patterns choose, what is refused, and how it is written and read.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "octavo/checkpoint.hpp"
#include "octavo/verdict.hpp"
#include "offline/testing_quantized.hpp"

namespace octavo {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::open;
using testing::run;
using testing::TemporaryDirectory;

std::string refusal(const Checkpoint& checkpoint, const QuantizeOptions& options) {
  const auto plan = resolve(checkpoint, options);
  return plan ? "accepted" : plan.error().message();
}

std::map<std::string, std::string> forms(const QuantizePlan& plan) {
  std::map<std::string, std::string> out;
  for (const PlannedLayer& p : plan.layers) out[p.layer.name] = to_string(p.form);
  return out;
}

Json config_of(const std::filesystem::path& directory) {
  return Json::parse(testing::read_file(directory / "config.json"))["quantization_config"];
}

TEST(LayerChoices, AreParsedAtTheLastSign) {
  const auto choice = parse_layer_choice("re:.*[=]a=w8a16");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->pattern, "re:.*[=]a");
  EXPECT_EQ(choice->scheme, Scheme::w8a16);
  const auto stays = parse_layer_choice("lm_head=float");
  ASSERT_TRUE(stays);
  EXPECT_EQ(stays->scheme, std::nullopt);
  for (const Scheme scheme : {Scheme::w8a8_dynamic, Scheme::w8a8_static, Scheme::w8a16,
                              Scheme::w4a8_group, Scheme::w4a16_group}) {
    EXPECT_EQ(*parse_scheme(name(scheme)), scheme);
    EXPECT_EQ(parse_layer_choice(fmt::format("a={}", name(scheme)))->scheme, scheme);
  }
  const auto message = [](const char* text) { return parse_layer_choice(text).error().message(); };
  EXPECT_EQ(message("lm_head"), "layer: expected PATTERN=SCHEME, got \"lm_head\"");
  EXPECT_EQ(message("=w8a16"), "layer: expected PATTERN=SCHEME, got \"=w8a16\"");
  EXPECT_EQ(message("a=w2"),
            "layer: expected w8a8-dynamic, w8a8-static, w8a16, w4a8-group, w4a16-group or float "
            "after the = of \"a=w2\", got \"w2\"");
  EXPECT_EQ(parse_scheme("w2").error().message(),
            "scheme: expected w8a8-dynamic, w8a8-static, w8a16, w4a8-group or w4a16-group, got w2");
}

TEST(LayerChoices, TheLastCountsAndIgnoredLayersStayFloat) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  const Checkpoint in = open(dir / "in");
  const auto plan = resolve(in, {.scheme = Scheme::w4a16_group,
                                 .group_size = 16,
                                 .layers = {{"*.mlp.*", Scheme::w8a8_dynamic},
                                            {"*.down_proj", Scheme::w8a16},
                                            {"*.1.mlp.down_proj", {}},
                                            {"*.o_proj", Scheme::w8a16}},
                                 .ignore = {"*.0.self_attn.o_proj"}});
  ASSERT_TRUE(plan) << plan.error().message();
  const auto got = forms(*plan);
  EXPECT_EQ(got.at("model.layers.0.self_attn.q_proj"), "w4a16-group in groups of 16");
  EXPECT_EQ(got.at("model.layers.0.mlp.up_proj"), "w8a8-dynamic");
  EXPECT_EQ(got.at("model.layers.0.mlp.down_proj"), "w8a16");
  EXPECT_EQ(got.at("model.layers.1.self_attn.o_proj"), "w8a16");
  EXPECT_FALSE(got.contains("model.layers.1.mlp.down_proj"));
  EXPECT_FALSE(got.contains("model.layers.0.self_attn.o_proj"));
  EXPECT_FALSE(got.contains("lm_head"));
  EXPECT_EQ(plan->layers.size(), 12U);
  EXPECT_THAT(left_float(*plan), IsEmpty());
  std::vector<std::pair<std::string, std::size_t>> counts;
  for (const FormCount& f : forms_of(*plan)) counts.emplace_back(to_string(f.form), f.layers);
  EXPECT_THAT(counts, ElementsAre(::testing::Pair("w4a16-group in groups of 16", 6),
                                  ::testing::Pair("w8a8-dynamic", 4), ::testing::Pair("w8a16", 2)));
}

TEST(LayerChoices, WhatIsRefused) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  testing::make_bert(dir / "bert");
  const Checkpoint in = open(dir / "in"), bert = open(dir / "bert");
  const auto with = [&](const char* pattern, std::optional<Scheme> scheme) {
    return refusal(in, {.layers = {{pattern, scheme}}});
  };
  EXPECT_THAT(with("modle*", Scheme::w8a16),
              HasSubstr("layer: expected a pattern that matches a layer, got \"modle*\", which "
                        "matches none of 16"));
  EXPECT_THAT(with("modle*", {}), HasSubstr("layer: expected a pattern that matches a layer"));
  EXPECT_THAT(with("*.embed_tokens", {}), HasSubstr("matches none of 15"));
  EXPECT_THAT(with("re:(", Scheme::w8a16), HasSubstr("layer: expected a regular expression"));
  // Fused layers are one when they run.
  EXPECT_EQ(with("*.k_proj", Scheme::w8a16),
            "layer: expected model.layers.0.self_attn.k_proj and model.layers.0.self_attn.q_proj "
            "to have one scheme, for they are fused when they run, got w8a16 and w8a8-dynamic");
  EXPECT_THAT(with("*.up_proj", {}), HasSubstr("got only one quantized"));
  EXPECT_EQ(with("re:.*[.](q|k|v)_proj", Scheme::w8a16), "accepted");
  for (const Scheme scheme : {Scheme::w8a8_dynamic, Scheme::w4a16_group})
    EXPECT_THAT(
        with("*.embed_tokens", scheme),
        HasSubstr(fmt::format("layer: expected w8a16 or float for model.embed_tokens, whose "
                              "rows are looked up and not multiplied, got {}; --layer "
                              "model.embed_tokens=float after it leaves it as it is",
                              name(scheme))));
  EXPECT_THAT(with("lm_head", Scheme::w8a8_static), HasSubstr("expected statistics"));
  // A pooler always stays.
  EXPECT_EQ(refusal(bert, {.layers = {{"pooler.dense", Scheme::w8a16}}}),
            "layer: expected a pattern that matches a layer that can be quantized, got "
            "\"pooler.dense\", which matches pooler.dense (a pooler: a small layer beside the "
            "head)");
  EXPECT_THAT(refusal(bert, {.layers = {{"lm_head", Scheme::w8a16}}}),
              HasSubstr("the head is not stored: it is tied to the embedding, or there is none"));
  for (const std::int64_t size : {-4, 2, 7, 30})
    EXPECT_EQ(refusal(in, {.group_size = size, .layers = {{"*.o_proj", Scheme::w4a8_group}}}),
              fmt::format("group_size: expected a multiple of 4, or 0 for a scale per channel, got "
                          "{}",
                          size));
  EXPECT_EQ(refusal(in, {.group_size = 7}), "accepted") << "nothing has groups";
}

TEST(LayerChoices, GroupsAreChosenForTheLayersThatHaveThem) {
  const TemporaryDirectory dir;
  testing::make_safetensors(
      dir / "in" / "m.safetensors",
      {{"a.weight", {8, 256}}, {"b.weight", {8, 192}}, {"lm_head.weight", {8, 48}}});
  const Checkpoint in = open(dir / "in");
  const auto size = [&](const std::vector<LayerChoice>& layers) {
    return resolve(in, {.group_size = std::nullopt, .layers = layers})->group_size;
  };
  EXPECT_EQ(size({}), 0);
  EXPECT_EQ(size({{"a", Scheme::w4a16_group}}), 128);
  EXPECT_EQ(size({{"*", Scheme::w4a16_group}, {"lm_head", {}}}), 64);
  EXPECT_EQ(size({{"a", Scheme::w4a16_group}, {"lm_head", Scheme::w4a8_group}}), 16);
  // A head that was named and does not fit is told, and refused if strict.
  const QuantizeOptions head{.group_size = 32, .layers = {{"lm_head", Scheme::w4a16_group}}};
  const auto plan = resolve(in, head);
  ASSERT_TRUE(plan);
  ASSERT_EQ(left_float(*plan).size(), 1U);
  EXPECT_THAT(left_float(*plan)[0].text(),
              HasSubstr("in = 48 is no multiple of 32; --group-size 16 would take them all"));
  QuantizeOptions strict = head;
  strict.strict = true;
  EXPECT_THAT(refusal(in, strict), HasSubstr("strict: expected a scheme that takes every layer"));
}

TEST(LayerChoices, SeveralSchemesAreSeveralGroups) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  const Checkpoint in = open(dir / "in");
  const Statistics stats = testing::make_statistics(in);
  const QuantizeReport report =
      run(in,
          {.scheme = Scheme::w4a16_group,
           .group_size = 16,
           .layers = {{"*.down_proj", Scheme::w8a8_static}, {"lm_head", Scheme::w8a16}},
           .ignore = {"*.1.self_attn.o_proj"},
           .statistics = &stats,
           .smooth = true,
           .alpha = std::nullopt},
          dir / "out");
  const Json config = config_of(dir / "out");
  EXPECT_EQ(config["format"], "mixed-precision");
  EXPECT_EQ(config["ignore"], Json{"model.layers.1.self_attn.o_proj"});
  ASSERT_EQ(config["config_groups"].size(), 3U);
  const Json &int4 = config["config_groups"]["group_0"],
             &fixed = config["config_groups"]["group_1"],
             &head = config["config_groups"]["group_2"];
  EXPECT_EQ(int4["targets"].size(), 11U);
  EXPECT_EQ(int4["targets"][0], "model.layers.0.mlp.gate_proj");
  EXPECT_EQ(int4["format"], "pack-quantized");
  EXPECT_EQ(fixed["targets"],
            (Json{"model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj"}));
  EXPECT_EQ(fixed["format"], "int-quantized");
  EXPECT_EQ(head["targets"], Json{"lm_head"});
  EXPECT_EQ(head["format"], "pack-quantized");

  const Checkpoint out = open(dir / "out");
  EXPECT_EQ(out.tensors().files()[0].metadata().at("octavo.scheme"),
            "w4a16-group, w8a8-static, w8a16");
  const auto found = verify(Stream::cpu(), in, out, &stats);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_THAT(found->unexpected, IsEmpty());
  EXPECT_THAT(found->added, IsEmpty());
  ASSERT_EQ(found->layers.size(), 14U);
  EXPECT_EQ(found->float_layers, 1U);
  for (std::size_t i = 0; i < 14; ++i) {
    const LayerError& e = found->layers[i];
    EXPECT_EQ(e.error(), report.measured.layers[i].error()) << e.name;
    EXPECT_EQ(e.form(), report.measured.layers[i].form()) << e.name;
    EXPECT_EQ(e.scheme, e.name == "lm_head"             ? Scheme::w8a16
                        : e.name.ends_with("down_proj") ? Scheme::w8a8_static
                                                        : Scheme::w4a16_group);
  }
  EXPECT_THAT(judge(*found).summary, HasSubstr("their bounds of 10 % and 25 %"));
  const auto layers = quantized_layers(out);
  ASSERT_TRUE(layers) << layers.error().message();
  ASSERT_EQ(layers->size(), 14U);
  EXPECT_EQ(layers->front().name, "lm_head");
  EXPECT_EQ(layers->front().form, LayerForm{Scheme::w8a16});
  EXPECT_EQ(layers->front().n, 40);
  EXPECT_EQ(layers->front().k, 32);
}

// vLLM does not take a head for a linear layer by its class.
TEST(LayerChoices, HeadsAreTargetsByName) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  const Checkpoint in = open(dir / "in");
  run(in, {.scheme = Scheme::w8a16, .layers = {{"lm_head", Scheme::w8a16}}}, dir / "out");
  const Json config = config_of(dir / "out");
  EXPECT_EQ(config["format"], "pack-quantized");
  EXPECT_EQ(config["ignore"], Json::array());
  EXPECT_EQ(config["config_groups"]["group_0"]["targets"], (Json{"Linear", "lm_head"}));
  const auto report = verify(Stream::cpu(), in, open(dir / "out"));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->layers.size(), 15U);
  EXPECT_EQ(report->float_layers, 0U);
  EXPECT_EQ(report->float_share, 0.0);
}

TEST(LayerChoices, EmbeddingsInInt8) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  const Checkpoint in = open(dir / "in");
  QuantizeOptions options{.layers = {{"*.embed_tokens", Scheme::w8a16}}};
  EXPECT_THAT(refusal(in, options), HasSubstr("got one that vLLM alone loads: transformers reads "
                                              "nn.Linear alone in int8"));
  // Taken back by a later choice.
  options.layers.push_back({"model.embed_tokens", {}});
  EXPECT_EQ(refusal(in, options), "accepted");
  options.layers.pop_back();
  options.loader = Loader::vllm;
  const auto plan = resolve(in, options);
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_THAT(plan->notes, ::testing::Contains(HasSubstr("vLLM alone loads this")));
  ASSERT_TRUE(quantize(Stream::cpu(), *plan, dir / "out"));
  const Checkpoint out = open(dir / "out");
  EXPECT_EQ(testing::shape_of(out, "model.embed_tokens.weight_packed"),
            (std::vector<std::uint64_t>{40, 8}));
  EXPECT_EQ(testing::shape_of(out, "model.embed_tokens.weight_scale"),
            (std::vector<std::uint64_t>{40, 1}));
  const Json groups = config_of(dir / "out")["config_groups"];
  EXPECT_EQ(groups["group_1"]["targets"], Json{"model.embed_tokens"});
  EXPECT_EQ(groups["group_1"]["input_activations"], nullptr);
  const auto report = verify(Stream::cpu(), in, out);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_THAT(report->unexpected, IsEmpty());
  EXPECT_THAT(report->added, IsEmpty());
  ASSERT_EQ(report->layers.size(), 15U);
  EXPECT_EQ(report->layers[0].name, "model.embed_tokens");
  EXPECT_EQ(report->layers[0].kind, LayerKind::embedding);
  EXPECT_GT(report->layers[0].weight_error, 0);
  EXPECT_LT(report->layers[0].weight_error, 0.02);
  // It is no linear layer: only the head is left.
  EXPECT_EQ(report->float_layers, 1U);
  EXPECT_GT(report->float_share, 0);
  // Its class stands for it in a config, that of linear layers does not.
  const auto with_target = [&](const char* target) {
    Json config = Json::parse(testing::read_file(dir / "out" / "config.json"));
    config["quantization_config"]["config_groups"]["group_1"]["targets"] = {target};
    testing::make_file(dir / "out" / "config.json", config.dump());
    const auto again = verify(Stream::cpu(), in, open(dir / "out"));
    return again ? std::string("accepted") : again.error().message();
  };
  EXPECT_EQ(with_target("Embedding"), "accepted");
  EXPECT_THAT(with_target("Linear"), HasSubstr("embed_tokens.weight_packed\": expected a float"));
}

// A head that is not stored is the embedding itself, which it multiplies with.
TEST(LayerChoices, EmbeddingsThatAreTheHeadAreForOctavoAlone) {
  const TemporaryDirectory dir;
  testing::make_opt(dir / "in");
  const Checkpoint in = open(dir / "in");
  QuantizeOptions options{.layers = {{"*.embed_tokens", Scheme::w8a16}}};
  for (const Loader loader : {Loader::both, Loader::vllm, Loader::transformers}) {
    options.loader = loader;
    EXPECT_THAT(refusal(in, options),
                HasSubstr("layer: expected a table of embeddings that nothing "
                          "else reads, got model.decoder.embed_tokens"));
    EXPECT_THAT(refusal(in, options), HasSubstr("--loader none"));
  }
  options.loader = Loader::none;
  const auto plan = resolve(in, options);
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_THAT(plan->notes, ::testing::Contains(HasSubstr("Octavo alone reads this")));
  ASSERT_TRUE(quantize(Stream::cpu(), *plan, dir / "out"));
  EXPECT_TRUE(verify(Stream::cpu(), in, open(dir / "out")));
}

// Layers that read one norm and have different schemes are smoothed by one search.
TEST(LayerChoices, ASharedNormIsSearchedForAllOfItsSchemes) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors",
                            {{"h.0.input_layernorm.weight", {16}},
                             {"h.0.self_attention.query_key_value.weight", {48, 16}},
                             {"h.0.mlp.dense_h_to_4h.weight", {64, 16}},
                             {"h.0.mlp.dense_4h_to_h.weight", {16, 64}}});
  testing::make_file(dir / "in" / "config.json", R"({"model_type":"falcon"})");
  const Checkpoint in = open(dir / "in");
  ASSERT_EQ(in.pairs().pairs.size(), 1U);
  const Statistics stats = testing::make_statistics(in);
  const auto error = [&](const std::vector<LayerChoice>& layers, const char* out) {
    return run(in,
               {.group_size = 16,
                .layers = layers,
                .statistics = &stats,
                .smooth = true,
                .alpha = std::nullopt,
                .loader = Loader::vllm},
               dir / out)
        .alpha_errors.at(0);
  };
  const double int8 = error({}, "int8"), int4 = error({{"*", Scheme::w4a16_group}}, "int4");
  const double both = error({{"*.dense_h_to_4h", Scheme::w4a16_group}}, "both");
  EXPECT_LT(int8, both);
  EXPECT_LT(both, int4);
}

}  // namespace
}  // namespace octavo
