// What config.json says and what is stored: a loader goes by the one and reads the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "octavo/checkpoint.hpp"
#include "offline/testing_checkpoint.hpp"

namespace octavo {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryDirectory;
using Json = nlohmann::json;

class VerifyConfig : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::make_safetensors(dir / "in" / "m.safetensors",
                              {{"a.up.weight", {6, 16}}, {"a.down.weight", {6, 16}}});
    in.emplace(*Checkpoint::open(dir / "in"));
    stats = testing::make_statistics(*in);
    for (const auto& [name, scheme] :
         {std::pair("dynamic", Scheme::w8a8_dynamic), std::pair("static", Scheme::w8a8_static),
          std::pair("int4", Scheme::w4a16_group)}) {
      const auto plan = resolve(
          *in, {.scheme = scheme, .group_size = 8, .ignore = {"a.down"}, .statistics = &stats});
      ASSERT_TRUE(plan) << plan.error().message();
      ASSERT_TRUE(quantize(Stream::cpu(), *plan, dir / name));
    }
  }
  std::string verified(const std::string& name) {
    const auto out = Checkpoint::open(dir / name);
    if (!out) return out.error().message();
    const auto report = verify(Stream::cpu(), *in, *out);
    if (!report) return report.error().message();
    return report->unexpected.empty() ? "accepted" : "unexpected";
  }
  // The checkpoint with another quantization_config.
  std::string with_config(const std::string& name, const std::function<void(Json&)>& change) {
    const auto path = dir / name / "config.json";
    const std::string before = testing::read_file(path);
    Json config = Json::parse(before);
    change(config["quantization_config"]);
    testing::make_file(path, config.dump());
    std::string said = verified(name);
    testing::make_file(path, before);
    return said;
  }
  static Json& weights(Json& q) { return q["config_groups"]["group_0"]["weights"]; }
  static Json& inputs(Json& q) { return q["config_groups"]["group_0"]["input_activations"]; }

  TemporaryDirectory dir;
  std::optional<Checkpoint> in;
  Statistics stats;
};

TEST_F(VerifyConfig, AcceptsWhatAgrees) {
  for (const char* name : {"dynamic", "static", "int4"}) {
    EXPECT_EQ(verified(name), "accepted") << name;
    EXPECT_EQ(with_config(name,
                          [](Json& q) {
                            q["ignore"] = {"lm_head", "re:.*[.]down$"};
                          }),
              "accepted");
    EXPECT_EQ(with_config(name,
                          [](Json& q) {
                            q["config_groups"]["group_0"]["targets"] = {"a.up"};
                            q["ignore"] = Json::array();
                          }),
              "accepted");
    EXPECT_EQ(
        with_config(name, [](Json& q) { q["config_groups"]["group_0"]["targets"] = {"Conv1D"}; }),
        "accepted");
    // With a prefix that the loader's modules have, and what is the default left out.
    EXPECT_EQ(with_config(name,
                          [](Json& q) {
                            q["ignore"] = {"model.a.down"};
                            q.erase("format");
                            weights(q).erase("type");
                            weights(q).erase("symmetric");
                          }),
              "accepted");
  }
}

TEST_F(VerifyConfig, OtherBits) {
  testing::make_file(dir / "int4" / "kept.json", testing::read_file(dir / "int4" / "config.json"));
  const std::string int8 = testing::read_file(dir / "dynamic" / "config.json");
  testing::make_file(dir / "int4" / "config.json", int8);
  EXPECT_THAT(verified("int4"), HasSubstr("tensor \"a.up.weight_packed\": expected a.up.weight of "
                                          "8-bit integers, as config.json says, got I32 [6, 2]"));
  testing::make_file(dir / "dynamic" / "config.json",
                     testing::read_file(dir / "int4" / "kept.json"));
  EXPECT_THAT(verified("dynamic"), HasSubstr("tensor \"a.up.weight\": expected a.up.weight_packed "
                                             "of 4-bit integers, as config.json says, got I8"));
}

TEST_F(VerifyConfig, OtherActivations) {
  const std::string fixed = testing::read_file(dir / "static" / "config.json");
  testing::make_file(dir / "static" / "config.json",
                     testing::read_file(dir / "dynamic" / "config.json"));
  EXPECT_THAT(verified("static"), HasSubstr("tensor \"a.up.input_scale\": expected no such tensor, "
                                            "for config.json says w8a8-dynamic"));
  testing::make_file(dir / "dynamic" / "config.json", fixed);
  EXPECT_THAT(verified("dynamic"), HasSubstr("a.up.input_scale\": expected this tensor, got none"));
}

TEST_F(VerifyConfig, OtherScales) {
  EXPECT_THAT(
      with_config("dynamic", [](Json& q) { weights(q)["strategy"] = "tensor"; }),
      HasSubstr("tensor \"a.up.weight_scale\": expected [1], for config.json says one scale "
                "for a tensor, got F32 [6, 1]"));
  EXPECT_THAT(with_config("int4", [](Json& q) { weights(q)["group_size"] = 4; }),
              HasSubstr("tensor \"a.up.weight_scale\": expected [6, 4], for groups of 4, got F32 "
                        "[6, 2]"));
  EXPECT_THAT(with_config("int4", [](Json& q) { weights(q)["group_size"] = 12; }),
              HasSubstr("tensor \"a.up.weight_packed\": expected input channels in groups of 12"));
  // As many, but they lie the other way.
  const auto path = dir / "int4" / "m.safetensors";
  std::string bytes = testing::read_file(path);
  bytes.replace(bytes.find("[6,2]", bytes.find("a.up.weight_scale")), 5, "[2,6]");
  testing::make_file(path, bytes);
  EXPECT_THAT(verified("int4"), HasSubstr("tensor \"a.up.weight_scale\": expected [6, 2], for "
                                          "groups of 8, got F32 [2, 6]"));
}

TEST_F(VerifyConfig, OtherLayers) {
  for (const char* name : {"dynamic", "static", "int4"}) {
    EXPECT_THAT(with_config(name,
                            [](Json& q) {
                              q["ignore"] = {"a.down", "a.up"};
                            }),
                HasSubstr("expected a float weight, for config.json has this layer among those it "
                          "ignores"));
    EXPECT_THAT(
        with_config(name, [](Json& q) { q["config_groups"]["group_0"]["targets"] = {"b"}; }),
        HasSubstr("tensor \"a.up.weight"));
    EXPECT_THAT(with_config(name, [](Json& q) { q["ignore"] = {"lm_head"}; }),
                HasSubstr("tensor \"a.down.weight\": expected "));
    EXPECT_THAT(with_config(name, [](Json& q) { q["ignore"] = {"re:(?!a)"}; }),
                HasSubstr("config.json: ignore: expected a regular expression"));
    EXPECT_THAT(with_config(name, [](Json& q) { q["ignore"] = 3; }),
                HasSubstr("config.json: expected ignore of quantization_config to be a list"));
  }
}

TEST_F(VerifyConfig, SettingsThatAreNotMeasured) {
  const auto refused = [&](const char* name, const std::function<void(Json&)>& change,
                           const char* words) {
    EXPECT_THAT(
        with_config(name, change),
        HasSubstr("config.json: expected a quantization_config of compressed-tensors with " +
                  std::string(words)));
  };
  for (const char* name : {"dynamic", "static"})
    refused(
        name, [](Json& q) { weights(q)["symmetric"] = false; }, "symmetric integers");
  for (const char* name : {"dynamic", "static", "int4"}) {
    refused(
        name, [](Json& q) { weights(q)["symmetric"] = "no"; }, "symmetric integers");
    refused(
        name, [](Json& q) { weights(q)["type"] = "float"; }, "symmetric integers");
    refused(
        name, [](Json& q) { weights(q)["num_bits"] = 2; }, "W8A8, W8A16, W4A8 or W4A16");
    refused(
        name, [](Json& q) { q["quant_method"] = "gptq"; }, "its quant_method");
    refused(
        name, [](Json& q) { q["format"] = "float-quantized"; }, "");
  }
  const auto groups = [&](const std::function<void(Json&)>& change) {
    refused(
        "dynamic", [&](Json& q) { change(q["config_groups"]); }, "groups of settings");
  };
  groups([](Json& g) { g = Json::object(); });
  groups([](Json& g) { g = Json::array({g["group_0"]}); });
  groups([](Json& g) { g["group_0"] = Json::array(); });
  groups([](Json& g) { g["group_0"] = 3; });
  refused(
      "dynamic", [](Json& q) { inputs(q)["symmetric"] = false; }, "symmetric integers");
  refused(
      "dynamic", [](Json& q) { inputs(q)["num_bits"] = 4; }, "W8A8, W8A16, W4A8 or W4A16");
  refused(
      "dynamic", [](Json& q) { inputs(q)["strategy"] = "tensor"; }, "activations that are");
  refused(
      "dynamic", [](Json& q) { inputs(q)["dynamic"] = "local"; }, "activations that are");
  refused(
      "dynamic", [](Json& q) { weights(q)["strategy"] = "group"; }, "8-bit weights of");
  refused(
      "int4", [](Json& q) { weights(q)["strategy"] = "channel"; }, "a group_size above 0 for");
  refused(
      "int4", [](Json& q) { weights(q)["group_size"] = 0; }, "a group_size above 0 for");
  refused(
      "int4", [](Json& q) { weights(q)["strategy"] = "tensor"; }, "packed weights of strategy");
  // Readers infer another format for W4A8, and of the activations it has these alone.
  const auto with_inputs = [](Json& q, bool dynamic) {
    inputs(q) = {{"num_bits", 8}, {"strategy", dynamic ? "token" : "tensor"}, {"dynamic", dynamic}};
  };
  refused(
      "int4",
      [&](Json& q) {
        with_inputs(q, true);
        q.erase("format");
        q["config_groups"]["group_0"].erase("format");
      },
      "W8A16, W4A8 and W4A16 in the format pack-quantized");
  refused(
      "int4", [&](Json& q) { with_inputs(q, false); }, "dynamic activations for W4A8");
  refused(
      "int4",
      [&](Json& q) {
        with_inputs(q, true);
        weights(q)["group_size"] = 2;
      },
      "groups of a multiple of 4 for W4A8");
  EXPECT_EQ(with_config("int4", [&](Json& q) { with_inputs(q, true); }), "accepted");
  refused(
      "dynamic", [](Json& q) { inputs(q) = nullptr; }, "W8A16, W4A8 and W4A16 in the format");
}

// Of several groups the one that names a layer most closely: by name, by pattern, by class.
TEST_F(VerifyConfig, SeveralGroups) {
  const auto with_other = [&](const Json& targets, const Json& of_the_right_one) {
    return with_config("dynamic", [&](Json& q) {
      Json& groups = q["config_groups"];
      groups["group_0"]["targets"] = of_the_right_one;
      groups["other"] = groups["group_0"];
      groups["other"]["targets"] = targets;
      groups["other"]["input_activations"]["dynamic"] = false;
      groups["other"]["input_activations"]["strategy"] = "tensor";
      q["format"] = "mixed-precision";
    });
  };
  EXPECT_EQ(with_other({"b"}, {"Linear"}), "accepted");
  EXPECT_EQ(with_other({"Linear"}, {"re:a[.]"}), "accepted");
  EXPECT_EQ(with_other({"re:.*up"}, {"a.up"}), "accepted");
  EXPECT_EQ(with_other({"model.a.up"}, {"a.up"}), "accepted");
  constexpr const char* taken_for_static = "a.up.input_scale\": expected this tensor";
  EXPECT_THAT(with_other({"re:a[.]"}, {"Linear"}), HasSubstr(taken_for_static));
  EXPECT_THAT(with_other({"a.up"}, {"re:a[.]"}), HasSubstr(taken_for_static));
  for (const Json& alike : {Json{"Linear"}, Json{"re:a[.]"}, Json{"a.up"}})
    EXPECT_THAT(
        with_other(alike, alike),
        HasSubstr("config.json: expected one group of settings for \"a.up\", got \"group_0\" "
                  "and \"other\""));
  // Of three, the first differs.
  EXPECT_THAT(with_config("dynamic",
                          [](Json& q) {
                            Json& groups = q["config_groups"];
                            groups["group_1"] = groups["group_2"] = groups["group_0"];
                            groups["group_0"]["input_activations"]["dynamic"] = false;
                            groups["group_0"]["input_activations"]["strategy"] = "tensor";
                          }),
              HasSubstr("expected one group of settings for \"a.up\", got \"group_0\" and "
                        "\"group_2\""));
  // Twice the same is not two.
  EXPECT_EQ(
      with_config("dynamic",
                  [](Json& q) { q["config_groups"]["group_1"] = q["config_groups"]["group_0"]; }),
      "accepted");
  // Without a format of its own, and none for all, a group has that of its scheme.
  EXPECT_EQ(with_config("int4",
                        [](Json& q) {
                          q["format"] = "mixed-precision";
                          q["config_groups"]["group_0"].erase("format");
                        }),
            "accepted");
}

TEST_F(VerifyConfig, ZeroPoints) {
  EXPECT_THAT(with_config("int4", [](Json& q) { weights(q)["symmetric"] = false; }),
              HasSubstr("tensor \"a.up.weight_zero_point\": expected this tensor, for config.json "
                        "says asymmetric, got none"));
  const auto plan = resolve(
      *in,
      {.scheme = Scheme::w4a16_group, .group_size = 8, .asymmetric = true, .ignore = {"a.down"}});
  ASSERT_TRUE(quantize(Stream::cpu(), *plan, dir / "shifted"));
  EXPECT_EQ(verified("shifted"), "accepted");
  const auto other = dir / "shifted" / "z.safetensors";
  testing::make_file(other, testing::assemble(R"({"a.up.input_zero_point":{"dtype":"I8",)"
                                              R"("shape":[1],"data_offsets":[0,1]}})",
                                              "a"));
  EXPECT_THAT(verified("shifted"), HasSubstr("input_zero_point\": expected no zero point"));
  std::filesystem::remove(other);
  EXPECT_THAT(
      with_config("shifted", [](Json& q) { weights(q)["symmetric"] = true; }),
      HasSubstr("tensor \"a.up.weight_zero_point\": expected no zero point, for config.json "
                "says symmetric"));
  const auto path = dir / "shifted" / "m.safetensors";
  const std::string bytes = testing::read_file(path);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string other = bytes;
    const std::size_t at = other.find(from, other.find("weight_zero_point"));
    other.replace(at, from.size(), to);
    testing::make_file(path, other);
    return verified("shifted");
  };
  EXPECT_THAT(with("[1,2]", "[2,1]"), HasSubstr("expected I32 [1, 2], got I32 [2, 1]"));
  EXPECT_THAT(with("I32", "F32"), HasSubstr("expected I32 [1, 2], got F32 [1, 2]"));
}

TEST_F(VerifyConfig, OtherShape) {
  const auto path = dir / "int4" / "m.safetensors";
  std::string bytes = testing::read_file(path);
  const auto file = SafetensorsFile::open(path);
  const std::size_t data = bytes.size() - file->tensors().back().end;
  bytes[data + file->find("a.up.weight_shape")->begin + 8] = 15;
  testing::make_file(path, bytes);
  EXPECT_THAT(verified("int4"), HasSubstr("tensor \"a.up.weight_shape\": expected 6 and 16, the "
                                          "shape of the float weight, got 6 and 15"));
}

TEST_F(VerifyConfig, TensorsThatDoNotBelong) {
  const auto with = [&](const std::string& name, const std::string& tensor) {
    const auto path = dir / name / "z.safetensors";
    testing::make_file(path, testing::assemble("{\"" + tensor +
                                                   R"(":{"dtype":"I8","shape":[1],)"
                                                   R"("data_offsets":[0,1]}})",
                                               "a"));
    std::string said = verified(name);
    std::filesystem::remove(path);
    return said;
  };
  EXPECT_THAT(with("int4", "a.up.weight"), HasSubstr("\"a.up.weight\": expected no such tensor"));
  EXPECT_THAT(with("int4", "a.up.weight_g_idx"), HasSubstr("g_idx\": expected no such tensor"));
  EXPECT_THAT(with("int4", "a.up.input_scale"), HasSubstr("scale\": expected no such tensor"));
}

}  // namespace
}  // namespace octavo
