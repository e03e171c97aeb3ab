// A scheme for each layer, from the command line to what every subcommand shows of it.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/testing_command.hpp"

namespace octavo {
namespace {

using testing::Command;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::octavo;
using testing::Ran;
using Json = nlohmann::json;

TEST_F(Command, SchemesOfLayersAreShownEverywhere) {
  const std::string options =
      "--scheme w4a8-group --group-size 16 --layer '*.down_proj=w8a16' lm_head=w8a16";
  const Ran dry = octavo(fmt::format("quantize {} {} {} --dry-run", in, out, options));
  EXPECT_EQ(dry.code, 0) << dry.text;
  EXPECT_THAT(dry.text, HasSubstr("15 layers: 12 to w4a8-group in groups of 16, 3 to w8a16, "));
  EXPECT_THAT(dry.text, ::testing::ContainsRegex("model.layers.0.mlp.down_proj +w8a16 +bf16"));
  EXPECT_THAT(dry.text, HasSubstr("note: of vLLM the newest releases load w4a8-group"));
  const Ran made = octavo(fmt::format("quantize {} {} {}", in, out, options));
  EXPECT_EQ(made.code, 0) << made.text;
  EXPECT_THAT(made.text, HasSubstr("12 to w4a8-group in groups of 16, 3 to w8a16, "));
  EXPECT_THAT(made.text, HasSubstr(" bits per weight"));
  const Json config = Json::parse(testing::read_file(dir / "out" / "config.json"));
  EXPECT_EQ(config["quantization_config"]["format"], "mixed-precision");

  const Ran checked = octavo(fmt::format("verify {} {} --stats {}", in, out, stats));
  EXPECT_EQ(checked.code, 0) << checked.text;
  EXPECT_THAT(checked.text, ::testing::ContainsRegex("lm_head +w8a16 +8\\.[0-9]+ "));
  EXPECT_THAT(checked.text, ::testing::ContainsRegex("0.mlp.up_proj +w4a8-group +5\\.[0-9]+ "));
  const Json json =
      Json::parse(octavo(fmt::format("verify {} {} --sort name --json", in, out)).text);
  EXPECT_EQ(json["layers"][0]["name"], "lm_head");
  EXPECT_EQ(json["layers"][0]["scheme"], "w8a16");
  EXPECT_EQ(json["layers"][0]["group_size"], 0);
  EXPECT_EQ(json["layers"][2]["scheme"], "w4a8-group");
  EXPECT_EQ(json["layers"][2]["group_size"], 16);
  EXPECT_EQ(json["layers"][2]["asymmetric"], false);
  EXPECT_EQ(json["layers"][2]["bits"], 5.0 + 128.0 / (48 * 32));
  EXPECT_GT(json["bits_per_weight"], 5.0);
  EXPECT_LT(json["bits_per_weight"], 8.0);

  const Ran inspected = octavo("inspect " + out);
  EXPECT_EQ(inspected.code, 0) << inspected.text;
  EXPECT_THAT(inspected.text, HasSubstr("15 layers are quantized, "));
  EXPECT_THAT(inspected.text, ::testing::ContainsRegex("lm_head +w8a16 +40 +32 +8\\.[0-9]+"));
  EXPECT_THAT(inspected.text, HasSubstr("w4a8-group in groups of 16"));
  EXPECT_THAT(inspected.text, HasSubstr("\n0 layers are float\n"));
  EXPECT_THAT(inspected.text, Not(HasSubstr("weight_packed")));
  const Json listed = Json::parse(octavo("inspect --json " + out).text);
  EXPECT_EQ(listed["quantized_layers"].size(), 15U);
  EXPECT_EQ(listed["quantized_layers"][0]["scheme"], "w8a16");

  const std::string page = (dir / "r.html").string();
  EXPECT_EQ(octavo(fmt::format("report {} {} -o {}", in, out, page)).code, 0);
  const std::string html = testing::read_file(page);
  EXPECT_THAT(html, HasSubstr("<small>12 w4a8-group, 3 w8a16</small>"));
  EXPECT_THAT(html, HasSubstr("<dt>bits per weight</dt>"));
  EXPECT_THAT(html, HasSubstr("<td>w4a8-group in groups of 16<td>"));
}

// Its settings are another's, which is no reason to show nothing.
TEST_F(Command, InspectShowsWhatItDoesNotKnow) {
  testing::make_file(dir / "in" / "config.json",
                     R"({"quantization_config":{"quant_method":"gptq"}})");
  const Ran ran = octavo("inspect " + in);
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_THAT(ran.text, HasSubstr("its layers are not known: "));
  EXPECT_THAT(ran.text, HasSubstr("its quant_method"));
  EXPECT_TRUE(Json::parse(octavo("inspect --json " + in).text).contains("quantized_note"));
}

// Bytes of one integer each, and words that rows do not fill.
TEST_F(Command, ReportCountsPackedIntegersAndNoPadding) {
  std::vector<float> w(std::size_t{8} * 30, 1.0F);
  for (std::size_t i = 1; i < w.size(); i += 2) w[i] = -1.0F;
  testing::make_file(
      dir / "ones" / "m.safetensors",
      testing::assemble(R"({"a.weight":{"dtype":"F32","shape":[8,30],"data_offsets":[0,960]}})",
                        testing::bytes_as(StoredType::F32, w)));
  const std::string ones = (dir / "ones").string(), page = (dir / "r.html").string();
  ASSERT_EQ(octavo(fmt::format("quantize {} {} --scheme w8a16", ones, out)).code, 0);
  ASSERT_EQ(octavo(fmt::format("report {} {} -o {}", ones, out, page)).code, 0);
  std::string html = testing::read_file(page);
  EXPECT_THAT(html, HasSubstr("\"M0 100V0.0H1.56V100.0H3.12V100.0"));
  EXPECT_THAT(html, HasSubstr("V100.0H98.44V0.0H100.00V100z\""));
  const std::string int4 = "--scheme w4a16-group --group-size channel";
  ASSERT_EQ(octavo(fmt::format("quantize {} {}4 {}", ones, out, int4)).code, 0);
  ASSERT_EQ(octavo(fmt::format("report {} {}4 -o {}", ones, out, page)).code, 0);
  html = testing::read_file(page);
  EXPECT_THAT(html, HasSubstr("\"M0 100V100.0H6.25V0.0H12.50V100.0"));
  EXPECT_THAT(html, HasSubstr("V100.0H93.75V0.0H100.00V100z\""));
}

}  // namespace
}  // namespace octavo
