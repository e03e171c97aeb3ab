// The command as a user runs it: what it prints, writes and returns.
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

TEST_F(Command, Info) {
  const Ran text = octavo("info");
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.text, HasSubstr("targets"));
  const Ran json = octavo("--threads 3 info --json");
  EXPECT_EQ(json.code, 0);
  EXPECT_EQ(Json::parse(json.text)["threads"], 3);
  EXPECT_EQ(Json::parse(octavo("info --json --threads 3").text)["threads"], 3);
}

TEST_F(Command, Inspect) {
  const Ran text = octavo("inspect " + in);
  EXPECT_EQ(text.code, 0) << text.text;
  EXPECT_THAT(text.text, HasSubstr("architecture llama"));
  EXPECT_THAT(text.text, HasSubstr("14 layers can be quantized"));
  EXPECT_THAT(text.text, HasSubstr("self_attn.q_proj self_attn.k_proj self_attn.v_proj\n"));
  EXPECT_THAT(text.text, HasSubstr("lm_head.weight             the head"));
  const Json json = Json::parse(octavo("inspect --json " + in).text);
  EXPECT_EQ(json["layers"].size(), 14U);
  EXPECT_EQ(json["pairs"].size(), 4U);
  EXPECT_EQ(json["files"][0]["tensors"].size(), 11U);
  EXPECT_THAT(octavo("inspect --tensors " + in).text, HasSubstr("model.norm.weight"));
}

TEST_F(Command, NamesAreInNaturalOrder) {
  testing::make_safetensors(dir / "names" / "m.safetensors",
                            {{"h.10.up.weight", {8, 8}}, {"h.9.up.weight", {8, 8}}});
  const Ran ran = octavo("inspect " + (dir / "names").string());
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_LT(ran.text.find("h.9.up"), ran.text.find("h.10.up"));
}

TEST_F(Command, FromFloatToReport) {
  const Ran dry =
      octavo(fmt::format("quantize {} {} --smooth {} --alpha auto --dry-run", in, out, stats));
  EXPECT_EQ(dry.code, 0) << dry.text;
  EXPECT_THAT(dry.text, HasSubstr("4 pairs are smoothed with alpha searched for each"));
  EXPECT_FALSE(std::filesystem::exists(out));
  const Ran made = octavo(fmt::format(
      "quantize {} {} --scheme w8a8-static --smooth {} --alpha auto --ignore '*.down_proj'", in,
      out, stats));
  EXPECT_EQ(made.code, 0) << made.text;
  EXPECT_THAT(made.text, HasSubstr("12 layers to w8a8-static"));
  EXPECT_THAT(made.text, HasSubstr("not carried over: pytorch_model.bin"));
  EXPECT_THAT(made.text, ::testing::StartsWith("smoothed after"));
  const Ran checked =
      octavo(fmt::format("verify {} {} --stats {} --max-error 0.1", in, out, stats));
  EXPECT_EQ(checked.code, 0) << checked.text;
  EXPECT_THAT(checked.text, HasSubstr("SQNR dB"));
  const Ran failed =
      octavo(fmt::format("verify {} {} --stats {} --max-error 0.0001 --json", in, out, stats));
  EXPECT_EQ(failed.code, 3);
  EXPECT_EQ(Json::parse(failed.text)["verdict"]["above"], 12);
  const std::string page = (dir / "r.html").string();
  const Ran report = octavo(fmt::format("report {} {} --stats {} -o {}", in, out, stats, page));
  EXPECT_EQ(report.code, 0) << report.text;
  EXPECT_THAT(report.text, HasSubstr(page + "\nverdict: good, "));
  // The verdict is told, but the page is what was asked for.
  const Ran bad = octavo(fmt::format("report {} {} --max-error 0.0001 -o {}.bad", in, out, page));
  EXPECT_EQ(bad.code, 0) << bad.text;
  EXPECT_THAT(bad.text, HasSubstr("above the bound of 0.01 %"));
  EXPECT_THAT(testing::read_file(page + ".bad"), HasSubstr("verdict failed"));
  EXPECT_EQ(octavo(fmt::format("report {} {} --max-error -1 -o {}.no", in, out, page)).code, 2);
  const std::string html = testing::read_file(page);
  EXPECT_THAT(html, HasSubstr("Outlier channels"));
  EXPECT_THAT(html, HasSubstr("model.layers.1.mlp.up_proj"));
  EXPECT_THAT(html, Not(HasSubstr("http")));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
}

TEST_F(Command, WritesWhatOneLoaderTakesOnlyForThatOne) {
  testing::make_gpt2(dir / "gpt2");
  testing::make_file(dir / "gpt2" / "config.json", R"({"model_type":"gpt2"})");
  const std::string quantize = fmt::format("quantize {} {}", (dir / "gpt2").string(), out);
  for (const char* option : {" --dry-run", "", " --loader transformers"}) {
    const Ran ran = octavo(quantize + option);
    EXPECT_EQ(ran.code, 1) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("got one that vLLM alone loads: the layers of GPT-2"));
    EXPECT_THAT(ran.text, HasSubstr("--loader vllm"));
    EXPECT_FALSE(std::filesystem::exists(out));
  }
  for (const char* option : {" --loader vllm --dry-run", " --loader vllm"}) {
    const Ran ran = octavo(quantize + option);
    EXPECT_EQ(ran.code, 0) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("\nnote: vLLM alone loads this"));
  }
  EXPECT_THAT(octavo(quantize + "2 --loader transformers").text,
              HasSubstr("expected a result that transformers loads"));
  EXPECT_EQ(octavo(quantize + " --loader nobody").code, 2);
}

TEST_F(Command, Bench) {
  const Ran text = octavo("bench --shape 64x32 --rows 1,8 --seconds 0.001");
  EXPECT_EQ(text.code, 0) << text.text;
  EXPECT_THAT(text.text, HasSubstr("[64 x 32]"));
  EXPECT_THAT(text.text, HasSubstr("limited by"));
  EXPECT_THAT(octavo("bench --shape 9999999x9999999 --rows 1").text,
              HasSubstr("expected layers that fit into memory, got 9999999x9999999"));
  EXPECT_EQ(octavo("bench --shape 64x32 --seconds 0").code, 2);
  const Ran warm = octavo("bench --shape 64x32 --rows 8,2,8 --warm --seconds 0.001 --json");
  EXPECT_EQ(warm.code, 0) << warm.text;
  const Json layer = Json::parse(warm.text)["layers"][0];
  EXPECT_EQ(layer["rows"].size(), 2U);  // sorted, each once
  EXPECT_EQ(layer["rows"][0]["m"], 2);
  EXPECT_THAT(layer["rows"][0]["limited_by"], ::testing::AnyOf("memory", "int8 peak"));
  EXPECT_EQ(layer["rows"][0]["schemes"].size(), 5U);
  const Ran json = octavo("bench --json --rows 4 --seconds 0.001 " + in);
  EXPECT_EQ(json.code, 0) << json.text;
  const Json parsed = Json::parse(json.text);
  EXPECT_EQ(parsed["layers"].size(), 4U);
  EXPECT_GT(parsed["layers"][0]["rows"][0]["int8_seconds"], 0.0);
  EXPECT_EQ(octavo("bench").code, 1);
  EXPECT_THAT(octavo("bench --shape 3").text, HasSubstr("expected OUTxIN"));
}

TEST_F(Command, BenchOfSchemes) {
  const std::string bench = "bench --shape 64x96 --rows 1,8 --seconds 0.001";
  const Ran text = octavo(bench);
  EXPECT_EQ(text.code, 0) << text.text;
  EXPECT_THAT(text.text, HasSubstr("int8 / it"));
  // (128 does not divide 96, nor does 64.)
  for (const char* title : {"w4a8, groups of 32 ", "w4a16, groups of 32 ",
                            "w8a16, a scale per channel ", "f32, by octavo ", "bf16, by octavo "})
    EXPECT_THAT(text.text, HasSubstr(title));
  const Ran chosen = octavo(bench + " --scheme w4a8-group,f32 --group-size 16 --json");
  EXPECT_EQ(chosen.code, 0) << chosen.text;
  const Json parsed = Json::parse(chosen.text);
  EXPECT_TRUE(parsed["float_operations_per_second"].is_number());
  for (const Json& row : parsed["layers"][0]["rows"]) {
    const Json& schemes = row["schemes"];
    ASSERT_EQ(schemes.size(), 2U);
    EXPECT_EQ(schemes[0]["scheme"], "w4a8-group");
    EXPECT_EQ(schemes[0]["group_size"], 16);
    EXPECT_THAT(schemes[0]["limited_by"], ::testing::AnyOf("memory", "int8 peak"));
    EXPECT_EQ(schemes[1]["scheme"], "f32");
    EXPECT_TRUE(schemes[1]["group_size"].is_null());
    EXPECT_THAT(schemes[1]["limited_by"], ::testing::AnyOf("memory", "f32 peak"));
    for (const Json& scheme : schemes) {
      EXPECT_GT(scheme["seconds"], 0.0);
      EXPECT_LT(scheme["seconds"], 60.0);
      EXPECT_GT(scheme["limit_seconds"], 0.0);
    }
  }
  // Groups that would be whole rows, and inputs that nothing divides.
  for (const char* shape : {"8x16", "7x29"}) {
    const Ran ran =
        octavo(fmt::format("bench --shape {} --rows 3 --seconds 0.001 --group-size 32", shape));
    EXPECT_EQ(ran.code, 0) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("w4a8, a scale per channel"));
  }
  const Ran none = octavo(bench + " --scheme none");
  EXPECT_EQ(none.code, 0) << none.text;
  EXPECT_THAT(none.text, Not(HasSubstr("int8 / it")));
  EXPECT_EQ(octavo(bench + " --scheme w2").code, 2);
  EXPECT_EQ(octavo(bench + " --group-size 7").code, 2);
}

TEST_F(Command, WrongUseAndRefusals) {
  EXPECT_EQ(octavo("").code, 2);
  EXPECT_EQ(octavo("nonsense").code, 2);
  EXPECT_THAT(octavo("nonsense").text, HasSubstr("got nonsense"));
  EXPECT_EQ(octavo("quantize " + in).code, 2);
  EXPECT_EQ(octavo("--help").code, 0);
  const auto refused = [&](const std::string& options, const char* words) {
    const Ran ran = octavo(fmt::format("quantize {} {} {}", in, out, options));
    EXPECT_EQ(ran.code, 1) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr(words));
    EXPECT_FALSE(std::filesystem::exists(out));
  };
  refused("--scheme w2",
          "expected w8a8-dynamic, w8a8-static, w8a16, w4a8-group or w4a16-group, got w2");
  refused("--layer lm_head", "layer: expected PATTERN=SCHEME, got");
  refused("--layer lm_head=w2", "or float after the = of");
  refused("--layer nothing=w8a16", "matches none of 16");
  refused("--alpha high --smooth " + stats, "expected a number from 0 to 1, or auto, got high");
  refused("--alpha 0.5x --smooth " + stats, "expected a number from 0 to 1, or auto, got 0.5x");
  for (const char* size : {"32.5", "0", "-4", "6", "many"})
    refused(fmt::format("--scheme w4a16-group --group-size={}", size),
            fmt::format("group_size: expected a multiple of 4 (input channels), channel or auto, "
                        "got {}",
                        size)
                .c_str());
  refused("--ignore nothing", "matches none of");
  refused("--smooth " + in + "/config.json", "config.json: ");
  refused("--scheme w8a8-static", "expected statistics of activations");
  EXPECT_EQ(octavo("inspect " + out).code, 1);
}

// A setting that has no effect was meant otherwise.
TEST_F(Command, SettingsThatWouldBeIgnored) {
  const auto wrong = [&](const std::string& arguments, const char* words) {
    const Ran ran = octavo(arguments);
    EXPECT_EQ(ran.code, 2) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr(words));
    EXPECT_FALSE(std::filesystem::exists(out));
  };
  const std::string quantize = fmt::format("quantize {} {} ", in, out);
  wrong(quantize + "--alpha 0.7", "--smooth");
  wrong(fmt::format("{} --smooth {} --stats {}", quantize, stats, stats),
        "--smooth excludes --stats");
  wrong(quantize + "--max-error none --stats " + stats, "only --scheme w8a8-static");
  wrong(quantize + "--group-size 32", "only --scheme w4a16-group");
  wrong(quantize + "--asymmetric --layer lm_head=w8a16", "only --scheme w4a16-group");
  wrong(fmt::format("verify {} {} --max-error -1", in, in), "--max-error");
  wrong(fmt::format("verify {} {} --max-error nan", in, in), "--max-error");
}

// Killed again and again at any point, with any number of threads: never a half checkpoint under
// the final name, and in the end the same bytes.
TEST_F(Command, KilledAtAnyPoint) {
  const std::string options = " --scheme w8a8-static --smooth " + stats;
  ASSERT_EQ(octavo(fmt::format("quantize {} {} {}", in, (dir / "whole").string(), options)).code,
            0);
  const auto whole = testing::read_tree(dir / "whole");
  std::uint32_t random = 1;
  for (int i = 0; i < 20; ++i) {
    random = random * 1664525U + 1013904223U;
    octavo(fmt::format("--threads {} quantize {} {} {} & p=$!; sleep 0.0{:02}; kill -9 $p; wait $p",
                       1 + i % 3, in, out, options, random % 50U + 1U));
    if (!std::filesystem::exists(out)) continue;
    auto got = testing::read_tree(out);
    got.erase(".octavo-run");  // killed between the last two steps
    ASSERT_EQ(got, whole) << i;
    std::filesystem::remove_all(out);
  }
  ASSERT_EQ(octavo(fmt::format("quantize {} {} {}", in, out, options)).code, 0);
  EXPECT_EQ(testing::read_tree(out), whole);
}

}  // namespace
}  // namespace octavo
