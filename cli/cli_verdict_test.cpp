// What the command says at the end of a run, and with which exit code.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
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

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

float largest(const std::vector<float>& values) {
  return *std::max_element(values.begin(), values.end());
}

// One row of a layer's input is a million times larger than all others: its static scale is useless
// for them.
class Outlier : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    if (IsSkipped()) return;
    const auto checkpoint = Checkpoint::open(dir / "in");
    // The sample goes by hashes of rows: one is taken that it leaves out.
    std::vector<float> huge(48, 1e6F);
    Statistics statistics;
    do {
      huge[0] += 1.0F;
      statistics = testing::make_statistics(*checkpoint);
      ASSERT_TRUE(statistics.update(Stream::cpu(), broken, TensorRef(huge, {1, 48})));
    } while (largest(statistics.find(broken)->sample()) > 1e5F);
    ASSERT_TRUE(statistics.write(dir / "stats"));
  }
  const std::string broken = "model.layers.1.mlp.down_proj";
};

TEST_F(Outlier, QuantizeAndVerifyEndWithTheSameVerdict) {
  const Ran made =
      octavo(fmt::format("quantize {} {} --scheme w8a8-static --stats {}", in, out, stats));
  EXPECT_EQ(made.code, 3) << made.text;
  EXPECT_TRUE(std::filesystem::exists(out));  // it is kept
  EXPECT_THAT(made.text, HasSubstr("of 14 layers"));
  EXPECT_THAT(made.text, HasSubstr("above the bound of 10 %: " + broken));
  EXPECT_THAT(made.text, HasSubstr("--ignore"));
  const Ran checked = octavo(fmt::format("verify {} {} --stats {}", in, out, stats));
  EXPECT_EQ(checked.code, 3) << checked.text;
  const std::string verdict = made.text.substr(made.text.find("verdict:"));
  EXPECT_THAT(checked.text, HasSubstr(verdict.substr(0, verdict.find('\n'))));
  // The worst is the first row of the table, unless it is sorted by name.
  const auto first_row = [](const std::string& text) { return text.substr(text.find('\n') + 1); };
  EXPECT_THAT(first_row(checked.text), ::testing::StartsWith(broken));
  const Ran sorted = octavo(fmt::format("verify {} {} --stats {} --sort name", in, out, stats));
  EXPECT_EQ(sorted.code, 3);
  EXPECT_THAT(first_row(sorted.text), ::testing::StartsWith("model.layers.0.mlp.down_proj"));
  EXPECT_EQ(octavo(fmt::format("verify {} {} --sort size", in, out)).code, 2);
  // The bound is the user's.
  for (const char* bound : {"none", "2"})
    EXPECT_EQ(
        octavo(fmt::format("verify {} {} --stats {} --max-error {}", in, out, stats, bound)).code,
        0);
  const Json json =
      Json::parse(octavo(fmt::format("verify {} {} --stats {} --json", in, out, stats)).text);
  EXPECT_EQ(json["verdict"]["failed"], true);
  EXPECT_EQ(json["layers"][0]["name"], broken);
  EXPECT_EQ(json["layers"][0]["bound"], 0.1);
  EXPECT_EQ(json["float_layers"], 1);
}

TEST_F(Outlier, AdviceHelps) {
  const std::string base =
      fmt::format("quantize {} {} --scheme w8a8-static --smooth {} --alpha auto", in, out, stats);
  const Ran made = octavo(base + " --ignore " + broken);
  EXPECT_EQ(made.code, 0) << made.text;
  EXPECT_THAT(last_line(made.text), HasSubstr("verdict: good, 13 layers, none above"));
}

TEST_F(Command, QuantizeMeasuresAnySchemeWithSampledRows) {
  const Ran dynamic = octavo(fmt::format("quantize {} {} --stats {}", in, out, stats));
  EXPECT_EQ(dynamic.code, 0) << dynamic.text;
  EXPECT_THAT(last_line(dynamic.text), HasSubstr("verdict: good, 14 layers"));
  const Ran plain = octavo(fmt::format("quantize {} {}1", in, out));
  EXPECT_EQ(plain.code, 0);
  EXPECT_THAT(last_line(plain.text), HasSubstr(fmt::format("not measured: octavo verify {}", in)));
  const Ran lifted = octavo(fmt::format(
      "quantize {} {}2 --max-error none --scheme w8a8-static --stats {}", in, out, stats));
  EXPECT_EQ(lifted.code, 0);
  EXPECT_THAT(lifted.text, Not(HasSubstr("measured")));
  const Ran strict =
      octavo(fmt::format("quantize {} {}3 --max-error 0 --stats {}", in, out, stats));
  EXPECT_EQ(strict.code, 3) << strict.text;
  // Statistics that nothing would use were meant otherwise.
  const auto checkpoint = Checkpoint::open(dir / "in");
  Statistics unsampled;
  const std::vector<float> row(32, 1.0F);
  ASSERT_TRUE(
      unsampled.update(Stream::cpu(), "model.layers.0.mlp.up_proj", TensorRef(row, {1, 32})));
  ASSERT_TRUE(unsampled.write(dir / "unsampled"));
  const Ran refused =
      octavo(fmt::format("quantize {} {}4 --stats {}", in, out, (dir / "unsampled").string()));
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.text, HasSubstr("expected sampled rows of layers of"));
  EXPECT_FALSE(std::filesystem::exists(out + "4"));
}

TEST_F(Command, SaysWhatStaysFloat) {
  const std::string base = fmt::format("quantize {} {} --scheme w4a16-group ", in, out);
  const Ran strict = octavo(base + "--group-size 32 --strict");
  EXPECT_EQ(strict.code, 1) << strict.text;
  EXPECT_THAT(strict.text,
              HasSubstr("2 layers, 18 % of the linear weights, stay float: in = 48 is no "
                        "multiple of 32; --group-size 16 would take them all"));
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_FALSE(std::filesystem::exists(out + ".partial"));
  const Ran dry = octavo(base + "--group-size 32 --dry-run");
  EXPECT_THAT(last_line(dry.text), HasSubstr("warning: 2 layers"));
  const Ran made = octavo(base + "--group-size 32 --stats " + stats);
  EXPECT_EQ(made.code, 0) << made.text;
  EXPECT_THAT(made.text, HasSubstr("\nwarning: 2 layers, 18 % of the linear weights"));
  const Ran fits = octavo(base.substr(0, base.find(" --scheme")) +
                          "5 --scheme w4a16-group --group-size auto --strict");
  EXPECT_EQ(fits.code, 0) << fits.text;
  EXPECT_THAT(fits.text, HasSubstr("14 layers to w4a16-group in groups of 16"));
  EXPECT_THAT(fits.text, Not(HasSubstr("warning")));
  const Ran channel = octavo(base.substr(0, base.find(" --scheme")) +
                             "6 --scheme w4a16-group --group-size channel --asymmetric --strict");
  EXPECT_EQ(channel.code, 0) << channel.text;
  EXPECT_THAT(channel.text,
              HasSubstr("14 layers to w4a16-group with a scale per channel, asymmetric, "));
}

}  // namespace
}  // namespace octavo
