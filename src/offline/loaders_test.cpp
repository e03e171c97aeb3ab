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

constexpr QuantizeOptions int8{};
const QuantizeOptions int4{.scheme = Scheme::w4a16_group, .group_size = 8};

TEST(Loaders, TakeALlama) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  EXPECT_THAT(said(dir / "in", int8).notes, ElementsAre(HasSubstr(gpu_note)));
  EXPECT_THAT(said(dir / "in", int4).notes, IsEmpty());
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
      said(dir / "in", int8).notes,
      ElementsAre(
          HasSubstr("transformers does not load this: of a quantized model it reads experts"),
          HasSubstr(gpu_note)));
  EXPECT_THAT(said(dir / "in", int4).notes, IsEmpty());
  // The reason comes before the wish for statistics, which would be gathered in vain.
  const QuantizeOptions fixed{.scheme = Scheme::w8a8_static};
  EXPECT_THAT(
      said(dir / "in", fixed).refusal,
      HasSubstr("scheme: expected w8a8-dynamic or w4a16-group for experts, got w8a8-static"));
  EXPECT_THAT(said(dir / "in", fixed).refusal, HasSubstr("ignore *.experts.*"));
  EXPECT_THAT(said(dir / "in", {.scheme = Scheme::w8a8_static, .ignore = {"*.experts.*"}}).refusal,
              HasSubstr("expected statistics"));
  const QuantizeOptions without{
      .scheme = Scheme::w4a16_group, .group_size = 8, .ignore = {"*.experts.*"}};
  EXPECT_THAT(said(dir / "in", without).notes, ElementsAre(HasSubstr("experts in int4 alone")));
  // vLLM wants one scheme for all of a block's experts.
  EXPECT_THAT(said(dir / "in", {.ignore = {"*.w2"}}).refusal,
              HasSubstr("experts.* to be treated alike, for they run as one, got "
                        "model.layers.0.block_sparse_moe.experts.0.w2 float (ignored)"));
}

TEST(Loaders, Conv1D) {
  const TemporaryDirectory dir;
  testing::make_gpt2(dir / "in");
  EXPECT_THAT(said(dir / "in", int8).notes,
              ElementsAre(HasSubstr("transformers cannot run this"), HasSubstr(gpu_note)));
  EXPECT_THAT(said(dir / "in", int4).notes, ElementsAre(HasSubstr("quantize_model_")));
  testing::make_file(dir / "in" / "config.json", R"({"model_type":"openai-gpt"})");
  EXPECT_THAT(said(dir / "in", int8).refusal,
              HasSubstr("expected layers that vLLM or transformers loads, got h.0.attn.c_attn"));
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
  EXPECT_THAT(said(dir / "in", {.scheme = Scheme::w8a8_static, .statistics = &stats}).notes,
              ElementsAre(HasSubstr("vLLM does not load BLOOM so"), HasSubstr(gpu_note)));
  EXPECT_THAT(said(dir / "in", int4).notes, ElementsAre(HasSubstr("vLLM does not load BLOOM so")));
  const QuantizeOptions rest{
      .scheme = Scheme::w4a16_group, .group_size = 8, .ignore = {"*.query_key_value"}};
  EXPECT_THAT(said(dir / "in", rest).notes, IsEmpty());
  testing::make_file(dir / "in" / "config.json", R"({"model_type":"falcon"})");
  EXPECT_THAT(said(dir / "in", int8).notes, ElementsAre(HasSubstr(gpu_note)));
  EXPECT_THAT(said(dir / "in", int4).notes,
              ElementsAre(HasSubstr("transformers does not load Falcon in int4")));
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
