// Checkpoints that were made to do harm: config.json, indexes, names and paths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "octavo/checkpoint.hpp"
#include "offline/testing_checkpoint.hpp"

namespace octavo {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryDirectory;
using Json = nlohmann::json;
namespace fs = std::filesystem;
using namespace std::string_literals;

// Deep enough for a stack of 8 MB, and of more.
std::string nested(char open, char close) {
  constexpr std::size_t depth = 1'000'000;
  return std::string(depth, open) + std::string(depth, close);
}

class Hostile : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::make_safetensors(dir / "in" / "m.safetensors", {{"a.up.weight", {6, 16}}});
  }
  std::string open(const std::string& config) {
    testing::make_file(dir / "in" / "config.json", config);
    const auto checkpoint = Checkpoint::open(dir / "in");
    return checkpoint ? "accepted" : checkpoint.error().message();
  }
  TemporaryDirectory dir;
};

TEST_F(Hostile, NestingIsRefused) {
  EXPECT_THAT(open("{\"quantization_config\":" + nested('[', ']') + "}"),
              HasSubstr("config.json: expected JSON of at most 127 levels of nesting"));
  std::string objects;
  for (int i = 0; i < 150'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(open("{\"quantization_config\":" + objects + "1" + std::string(150'001, '}')),
              HasSubstr("127 levels"));
  EXPECT_EQ(open("{}"), "accepted");
  testing::make_file(
      dir / "in" / "model.safetensors.index.json",
      "{\"metadata\":" + nested('[', ']') + ",\"weight_map\":{\"a.up.weight\":\"m.safetensors\"}}");
  EXPECT_THAT(open("{}"), HasSubstr("index.json: expected JSON of at most 127 levels"));
}

// Before any of it is read into memory.
TEST_F(Hostile, LongFilesAreRefused) {
  EXPECT_EQ(open("{}"), "accepted");
  fs::resize_file(dir / "in" / "config.json", (16U << 20U) + 1);
  EXPECT_THAT(Checkpoint::open(dir / "in").error().message(),
              HasSubstr("config.json: expected at most 16777216 bytes, got 16777217"));
}

TEST_F(Hostile, WhatFollowsTheObjectIsRefused) {
  EXPECT_THAT(open("{\"a\":1}\0}"s), HasSubstr("config.json: expected JSON, got a zero byte"));
  EXPECT_THAT(open("{\"a\":1}\0"s), HasSubstr("zero byte at offset 7"));
  EXPECT_THAT(open("{\"a\":1}}"), HasSubstr("config.json: expected JSON"));
  EXPECT_THAT(open("{\"a\":1} // }"), HasSubstr("config.json: expected JSON"));
  EXPECT_THAT(open(""), HasSubstr("config.json: expected JSON"));
  EXPECT_THAT(open("{\"quantization_config\":null,\"quantization_config\":{}}"),
              HasSubstr("config.json: expected one value of \"quantization_config\", got two"));
  EXPECT_EQ(open("{\"a\":{\"b\":1},\"c\":{\"b\":1}}\r\n \t\n"), "accepted");
}

// Whatever is accepted becomes a config.json that every reader of JSON takes.
TEST_F(Hostile, WhatIsWrittenIsJson) {
  for (const std::string config :
       {"{}", "{ }", "\xEF\xBB\xBF{\"a\": \"}\"}", "{\"a\":1}\n\n  \t\r\n", "\n{\"}\":{}}",
        "{\"b\":\"\\u0000\"}"}) {
    ASSERT_EQ(open(config), "accepted") << config;
    const auto in = Checkpoint::open(dir / "in");
    const auto plan = resolve(*in, {});
    ASSERT_TRUE(plan) << plan.error().message();
    ASSERT_TRUE(quantize(Stream::cpu(), *plan, dir / "out"));
    const std::string written = testing::read_file(dir / "out" / "config.json");
    EXPECT_FALSE(written.starts_with("\xEF")) << config;
    const Json parsed = Json::parse(written, nullptr, false);
    ASSERT_TRUE(parsed.is_object()) << written;
    EXPECT_TRUE(parsed.contains("quantization_config"));
    EXPECT_EQ(parsed.size(), Json::parse(config).size() + 1);
    fs::remove_all(dir / "out");
  }
}

TEST_F(Hostile, NamesWithZeroBytesStayApart) {
  testing::make_safetensors(
      dir / "zero" / "m.safetensors",
      {{"a.weight", {6, 16}}, {"a\0b.weight"s, {6, 16}}, {"a\0c.weight"s, {6, 16}}});
  const auto in = Checkpoint::open(dir / "zero");
  ASSERT_TRUE(in) << in.error().message();
  ASSERT_EQ(in->layers().size(), 3U);
  const auto plan = resolve(*in, {.ignore = {"a"}});
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->layers.size(), 2U);
  ASSERT_TRUE(quantize(Stream::cpu(), *plan, dir / "out"));
  const auto out = Checkpoint::open(dir / "out");
  ASSERT_TRUE(out) << out.error().message();
  const auto report = verify(Stream::cpu(), *in, *out);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->layers.size(), 2U);
  EXPECT_TRUE(report->unexpected.empty());
}

TEST_F(Hostile, PathsWithZeroBytesAreRefused) {
  const fs::path in(dir.path().string() + "/in\0x"s), out(dir.path().string() + "/out\0x"s);
  const auto refused = [](const auto& result) {
    EXPECT_FALSE(result);
    if (result) return;
    EXPECT_EQ(result.error().argument(), "path");
    EXPECT_THAT(result.error().message(), HasSubstr("path: expected one without a zero byte, got"));
    EXPECT_EQ(result.error().message().find('\0'), std::string::npos);
  };
  refused(Checkpoint::open(in));
  refused(SafetensorsSet::open(in));
  refused(SafetensorsFile::open(fs::path((dir / "in" / "m.safetensors").string() + "\0x"s)));
  refused(SafetensorsWriter::create(out, {}));
  refused(Statistics::read(in));
  refused(Statistics().write(out));
  const auto checkpoint = Checkpoint::open(dir / "in");
  const auto plan = resolve(*checkpoint, {});
  refused(quantize(Stream::cpu(), *plan, out));
  EXPECT_FALSE(fs::exists(dir / "out"));
}

// A name that was not meant, and no layer at all.
TEST_F(Hostile, PatternsThatMatchNothing) {
  const auto refusal = [&](const fs::path& path) {
    const auto in = Checkpoint::open(path);
    const auto plan = resolve(*in, {.ignore = {"q"}});
    return plan ? "accepted" : plan.error().message();
  };
  EXPECT_THAT(refusal(dir / "in"),
              HasSubstr("got \"q\", which matches none of 1, the first of which is \"a.up\""));
  testing::make_safetensors(dir / "none" / "m.safetensors", {{"a.bias", {6}}});
  EXPECT_THAT(refusal(dir / "none"), HasSubstr("got \"q\", which matches nothing: "));
  EXPECT_THAT(refusal(dir / "none"), HasSubstr("none has no linear layers"));
}

TEST_F(Hostile, TensorsThatWouldBecomePartsOfALayerAreRefused) {
  for (const char* end : {".weight_packed", ".weight_scale", ".weight_shape", ".weight_g_idx",
                          ".weight_zero_point", ".input_scale", ".input_zero_point"}) {
    testing::make_safetensors(
        dir / "in" / "m.safetensors",
        {{"a.up.weight", {6, 16}}, {"b.weight", {2, 16}}, {"a.up"s + end, {6}}});
    const auto checkpoint = Checkpoint::open(dir / "in");
    const auto plan = resolve(*checkpoint, {});
    ASSERT_FALSE(plan);
    EXPECT_THAT(plan.error().message(), HasSubstr("tensor \"a.up"s + end + "\": expected no such"));
    EXPECT_TRUE(resolve(*checkpoint, {.ignore = {"a.up"}}));
  }
}

// In the list of float layers these would stand for more than themselves, or for something else.
TEST_F(Hostile, NamesThatStandForOthersInConfigAreRefused) {
  for (const char* name : {"Linear", "Conv1D", "re:.*", "re:("}) {
    testing::make_safetensors(dir / "in" / "m.safetensors",
                              {{"a.up.weight", {6, 16}}, {name + ".weight"s, {2, 16}}});
    const auto checkpoint = Checkpoint::open(dir / "in");
    EXPECT_TRUE(resolve(*checkpoint, {}));
    const auto plan = resolve(*checkpoint, {.ignore = {"?"s + (name + 1)}});
    ASSERT_FALSE(plan);
    EXPECT_THAT(plan.error().message(), HasSubstr("can list, got \""s + name + '"'));
  }
}

TEST_F(Hostile, AFloatLayerWhoseNameEndsInThatOfAnotherIsNotTheOther) {
  testing::make_safetensors(dir / "in" / "m.safetensors",
                            {{"up.weight", {6, 16}}, {"a.up.weight", {6, 16}}});
  const auto checkpoint = Checkpoint::open(dir / "in");
  const auto plan = resolve(*checkpoint, {.ignore = {"a.up"}});
  ASSERT_TRUE(plan);
  ASSERT_TRUE(quantize(Stream::cpu(), *plan, dir / "out"));
  const auto verified = verify(Stream::cpu(), *checkpoint, *Checkpoint::open(dir / "out"));
  ASSERT_TRUE(verified) << verified.error().message();
  ASSERT_EQ(verified->layers.size(), 1U);
  EXPECT_EQ(verified->layers[0].name, "up");
}

}  // namespace
}  // namespace octavo
