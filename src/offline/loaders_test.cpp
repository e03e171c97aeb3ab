// What is said of loaders that do not take a result, and what is written for those that do.
// tests/compressed_tensors/models.py shows that transformers agrees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "octavo/checkpoint.hpp"
#include "offline/testing_checkpoint.hpp"

namespace octavo {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TemporaryDirectory;

constexpr const char* gpu_note = "compute capability 10.0";

struct Said {
  std::string refusal;
  std::vector<std::string> notes;
};

Said said(const std::filesystem::path& path, const QuantizeOptions& options) {
  const auto checkpoint = Checkpoint::open(path);
  if (!checkpoint) return {checkpoint.error().message(), {}};
  const auto plan = resolve(*checkpoint, options);
  return plan ? Said{"", plan->notes} : Said{plan.error().message(), {}};
}

const QuantizeOptions int8{};
const QuantizeOptions int4{.scheme = Scheme::w4a16_group, .group_size = 8};

// The same for one loader alone.
QuantizeOptions only(Loader loader, QuantizeOptions options) {
  options.loader = loader;
  return options;
}

TEST(Loaders, TakeALlama) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  EXPECT_THAT(said(dir / "in", int8).notes, ElementsAre(HasSubstr(gpu_note)));
  EXPECT_THAT(said(dir / "in", int4).notes, IsEmpty());
  EXPECT_THAT(said(dir / "in", {.scheme = Scheme::w8a16}).notes, IsEmpty());
  EXPECT_THAT(said(dir / "in", {.scheme = Scheme::w4a8_group, .group_size = 8}).notes,
              ElementsAre(HasSubstr("its kernels for CPUs want int4 weights in bytes")));
  EXPECT_THAT(
      said(dir / "in", {.scheme = Scheme::w8a16, .layers = {{"*.o_proj", Scheme::w8a8_dynamic}}})
          .notes,
      ElementsAre(HasSubstr(gpu_note)));
}

TEST(Loaders, ExpertsInInt8) {
  const TemporaryDirectory dir;
  const std::string m = "model.layers.0.block_sparse_moe.";
  testing::make_safetensors(dir / "in" / "m.safetensors",
                            {{"model.layers.0.self_attn.o_proj.weight", {8, 8}},
                             {m + "gate.weight", {2, 8}},
                             {m + "experts.0.w1.weight", {16, 8}},
                             {m + "experts.0.w2.weight", {8, 16}},
                             {m + "experts.0.w3.weight", {16, 8}}});
  testing::make_file(dir / "in" / "config.json", R"({"model_type":"mixtral"})");
  EXPECT_THAT(
      said(dir / "in", int8).refusal,
      HasSubstr("loader: expected a result that both vLLM and transformers load, got one "
                "that vLLM alone loads: of a quantized model transformers reads experts in int4 "
                "alone; take w4a16-group for all experts; or write it for vLLM alone: "
                "--loader vllm"));
  EXPECT_THAT(said(dir / "in", only(Loader::transformers, int8)).refusal,
              HasSubstr("expected a result that transformers loads, got"));
  EXPECT_THAT(
      said(dir / "in", only(Loader::vllm, int8)).notes,
      ElementsAre(HasSubstr("vLLM alone loads this: of a quantized model"), HasSubstr(gpu_note)));
  EXPECT_THAT(said(dir / "in", int4).notes, IsEmpty());
  // The reason comes before the wish for statistics, which would be gathered in vain.
  const QuantizeOptions fixed{.scheme = Scheme::w8a8_static};
  EXPECT_THAT(
      said(dir / "in", fixed).refusal,
      HasSubstr("scheme: expected w8a8-dynamic or w4a16-group for experts, got w8a8-static"));
  EXPECT_THAT(said(dir / "in", fixed).refusal, HasSubstr("ignore *.experts.*"));
  EXPECT_THAT(
      said(dir / "in",
           {.scheme = Scheme::w8a8_static, .ignore = {"*.experts.*"}, .loader = Loader::vllm})
          .refusal,
      HasSubstr("expected statistics"));
  const QuantizeOptions without{
      .scheme = Scheme::w4a16_group, .group_size = 8, .ignore = {"*.experts.*"}};
  EXPECT_THAT(said(dir / "in", without).refusal, HasSubstr("experts in int4 alone"));
  EXPECT_THAT(said(dir / "in", only(Loader::vllm, without)).notes,
              ElementsAre(HasSubstr("experts in int4 alone")));
  // Packed in 8 bits, or with other schemes elsewhere, transformers does not look for them.
  for (const QuantizeOptions& options :
       {QuantizeOptions{.scheme = Scheme::w8a16}, QuantizeOptions{.scheme = Scheme::w4a16_group,
                                                  .group_size = 8,
                                                  .layers = {{"*.o_proj", Scheme::w8a16}}}}) {
    EXPECT_THAT(said(dir / "in", options).refusal, HasSubstr("experts in int4 alone"));
    EXPECT_THAT(said(dir / "in", only(Loader::vllm, options)).notes,
                ElementsAre(HasSubstr("vLLM alone loads this")));
  }
  QuantizeOptions shifted = int4;
  shifted.asymmetric = true;
  EXPECT_THAT(said(dir / "in", shifted).refusal,
              HasSubstr("transformers alone loads: the int4 experts of vLLM are symmetric"));
  EXPECT_EQ(said(dir / "in", only(Loader::transformers, shifted)).refusal, "");
  const QuantizeOptions int8_inputs{.scheme = Scheme::w4a8_group, .group_size = 8};
  EXPECT_THAT(said(dir / "in", int8_inputs).refusal,
              HasSubstr("expected w8a8-dynamic or w4a16-group for experts, got w4a8-group for "
                        "model.layers.0.block_sparse_moe.experts.*, which nothing loads"));
  EXPECT_THAT(said(dir / "in", only(Loader::none, int8_inputs)).notes,
              ElementsAre(HasSubstr("Octavo alone reads this"), HasSubstr("load w4a8-group")));
  EXPECT_THAT(said(dir / "in", {.layers = {{"*.w2", Scheme::w8a16}}}).refusal,
              HasSubstr("layer: expected all of model.layers.0.block_sparse_moe.experts.* to have "
                        "one scheme, for they run as one, got w8a8-dynamic for "
                        "model.layers.0.block_sparse_moe.experts.0.w1 and w8a16 for "));
  // vLLM wants one scheme for all of a block's experts.
  EXPECT_THAT(said(dir / "in", {.ignore = {"*.w2"}}).refusal,
              HasSubstr("experts.* to be treated alike, for they run as one, got "
                        "model.layers.0.block_sparse_moe.experts.0.w2 float (ignored)"));
}

TEST(Loaders, Conv1D) {
  const TemporaryDirectory dir;
  testing::make_gpt2(dir / "in");
  // Without a config.json nobody could load it anyway.
  EXPECT_THAT(said(dir / "in", int8).notes,
              ElementsAre(HasSubstr("vLLM alone loads this"), HasSubstr(gpu_note)));
  EXPECT_THAT(said(dir / "in", int4).notes, ElementsAre(HasSubstr("quantize_model_")));
  testing::make_file(dir / "in" / "config.json", R"({"model_type":"gpt2"})");
  for (const QuantizeOptions& options : {int8, int4}) {
    EXPECT_THAT(said(dir / "in", options).refusal, HasSubstr("the layers of GPT-2 are Conv1D"));
    EXPECT_EQ(said(dir / "in", only(Loader::vllm, options)).refusal, "");
  }
  testing::make_file(dir / "in" / "config.json", R"({"model_type":"openai-gpt"})");
  EXPECT_THAT(said(dir / "in", int8).refusal,
              HasSubstr("expected layers that vLLM or transformers loads, got h.0.attn.c_attn"));
  EXPECT_THAT(said(dir / "in", only(Loader::none, int4)).notes,
              ElementsAre(HasSubstr("Octavo alone reads this: expected layers that")));
}

TEST(Loaders, FusedAttention) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors",
                            {{"transformer.h.0.self_attention.query_key_value.weight", {24, 8}},
                             {"transformer.h.0.mlp.dense_h_to_4h.weight", {32, 8}}});
  testing::make_file(dir / "in" / "config.json", R"({"model_type":"bloom"})");
  const auto checkpoint = Checkpoint::open(dir / "in");
  ASSERT_TRUE(checkpoint);
  const Statistics stats = testing::make_statistics(*checkpoint);
  EXPECT_THAT(said(dir / "in", int8).notes, ElementsAre(HasSubstr(gpu_note)));
  const QuantizeOptions fixed{.scheme = Scheme::w8a8_static, .statistics = &stats};
  for (const QuantizeOptions& options : {fixed, int4}) {
    EXPECT_THAT(said(dir / "in", options).refusal, HasSubstr("--loader transformers"));
    EXPECT_THAT(
        said(dir / "in", only(Loader::vllm, options)).refusal,
        HasSubstr("expected a result that vLLM loads, got one that transformers alone loads"));
    EXPECT_THAT(said(dir / "in", only(Loader::transformers, options)).notes,
                ::testing::Contains(HasSubstr("transformers alone loads this: vLLM reorders")));
  }
  const QuantizeOptions rest{
      .scheme = Scheme::w4a16_group, .group_size = 8, .ignore = {"*.query_key_value"}};
  EXPECT_THAT(said(dir / "in", rest).notes, IsEmpty());
  testing::make_file(dir / "in" / "config.json", R"({"model_type":"falcon"})");
  EXPECT_THAT(said(dir / "in", int8).notes, ElementsAre(HasSubstr(gpu_note)));
  EXPECT_THAT(said(dir / "in", int4).refusal, HasSubstr("FalconLinear"));
  EXPECT_THAT(said(dir / "in", {.scheme = Scheme::w8a16}).refusal, HasSubstr("FalconLinear"));
  EXPECT_THAT(said(dir / "in", only(Loader::vllm, int4)).notes,
              ElementsAre(HasSubstr("FalconLinear")));
}

// A head that is tied to the embedding is not stored, and still no loader may look for its scales.
TEST(Loaders, HeadsThatAreNotStored) {
  const TemporaryDirectory dir;
  testing::make_bert(dir / "in");
  const auto checkpoint = Checkpoint::open(dir / "in");
  ASSERT_TRUE(checkpoint);
  const auto plan = resolve(*checkpoint, {});
  ASSERT_TRUE(plan);
  ASSERT_TRUE(quantize(Stream::cpu(), *plan, dir / "out"));
  const Json config = Json::parse(testing::read_file(dir / "out" / "config.json"));
  EXPECT_EQ(config["quantization_config"]["ignore"],
            (Json{"cls.predictions.decoder", "lm_head", "lm_head.decoder", "pooler.dense",
                  "vocab_projector"}));
}

}  // namespace
}  // namespace octavo
