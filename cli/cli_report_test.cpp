// What inspect, verify and report show of the files themselves.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include "cli/testing_command.hpp"

namespace octavo {
namespace {

using testing::Command;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::octavo;
using testing::Ran;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST_F(Command, InspectAddsUpTypesAndSaysWhatIsTurned) {
  testing::make_gpt2(dir / "gpt2");
  const Ran ran = octavo("inspect " + (dir / "gpt2").string());
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_EQ(count(ran.text, "stored [in, out]\n"), 4U);
  EXPECT_THAT(ran.text, HasSubstr("\ntype  tensors     size\nF32        11  14.5 kB\n"));
  EXPECT_THAT(ran.text, HasSubstr("\nh.0.ln_2  mlp.c_fc\n"));
  EXPECT_THAT(octavo("inspect " + in).text, Not(HasSubstr("stored [in, out]")));
}

TEST_F(Command, QuantizeSaysWhatItKept) {
  const auto checkpoint = Checkpoint::open(in);
  const auto plan = resolve(*checkpoint, {});
  ASSERT_FALSE(quantize(Stream::cpu({.threads = 1}), *plan, out, [](const Progress& p) {
    if (p.what.starts_with("model-00002")) throw std::runtime_error("stop");
  }));
  const Ran again = octavo(fmt::format("quantize {} {}", in, out));
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_THAT(again.text, HasSubstr("1 files were kept from a run that was stopped\n"));
  EXPECT_THAT(octavo(fmt::format("quantize {} {}2", in, out)).text, Not(HasSubstr("were kept")));
}

TEST_F(Command, VerifyNamesWhatHasChanged) {
  ASSERT_EQ(octavo(fmt::format("quantize {} {}", in, out)).code, 0);
  EXPECT_EQ(octavo(fmt::format("verify {} {} --json", in, out)).code, 0);
  const auto path = dir / "out" / "model-00001-of-00002.safetensors";
  std::string bytes = testing::read_file(path);
  const auto file = SafetensorsFile::open(path);
  const std::size_t data = bytes.size() - file->tensors().back().end;
  bytes[data + file->find("model.norm.weight")->begin] ^= 1;
  testing::make_file(path, bytes);
  const Ran changed = octavo(fmt::format("verify {} {}", in, out));
  EXPECT_EQ(changed.code, 3);
  EXPECT_THAT(changed.text, HasSubstr("\nmodel.norm.weight should not have changed, but did\n"));
  EXPECT_EQ(octavo(fmt::format("verify {} {} --json", in, out)).code, 3);
}

// Weights of 1 and -1 in turn: the largest integer and the least but one, as often as each other.
TEST_F(Command, ReportShowsTheIntegersThatAreStored) {
  std::vector<float> w(256, 1.0F);
  for (std::size_t i = 1; i < w.size(); i += 2) w[i] = -1.0F;
  testing::make_file(
      dir / "ones" / "m.safetensors",
      testing::assemble(R"({"a.weight":{"dtype":"F32","shape":[8,32],"data_offsets":[0,1024]}})",
                        testing::bytes_as(StoredType::F32, w)));
  const std::string ones = (dir / "ones").string(), page = (dir / "r.html").string();
  ASSERT_EQ(octavo(fmt::format("quantize {} {}", ones, out)).code, 0);
  ASSERT_EQ(octavo(fmt::format("report {} {} -o {}", ones, out, page)).code, 0);
  std::string html = testing::read_file(page);
  EXPECT_THAT(html, HasSubstr("\"M0 100V0.0H1.56V100.0H3.12V100.0"));
  EXPECT_THAT(html, HasSubstr("V100.0H98.44V0.0H100.00V100z\""));
  const std::string int4 = "--scheme w4a16-group --group-size 32";
  ASSERT_EQ(octavo(fmt::format("quantize {} {}4 {}", ones, out, int4)).code, 0);
  ASSERT_EQ(octavo(fmt::format("report {} {}4 -o {}", ones, out, page)).code, 0);
  html = testing::read_file(page);
  EXPECT_THAT(html, HasSubstr("\"M0 100V100.0H6.25V0.0H12.50V100.0"));
  EXPECT_THAT(html, HasSubstr("V100.0H93.75V0.0H100.00V100z\""));
}

// One channel is 40 times larger than others; smoothing is there to make that less.
TEST_F(Command, ReportShowsThatSmoothingHelps) {
  const std::string page = (dir / "r.html").string();
  ASSERT_EQ(octavo(fmt::format("quantize {} {} --smooth {}", in, out, stats)).code, 0);
  ASSERT_EQ(octavo(fmt::format("report {} {} --stats {} -o {}", in, out, stats, page)).code, 0);
  const std::string html = testing::read_file(page);
  const std::size_t at = html.find("<dt>largest outlier channel</dt><dd>");
  ASSERT_NE(at, std::string::npos);
  const std::size_t arrow = html.find("\u2192", at);
  const double before = std::stod(html.substr(at + 36));
  const double after = std::stod(html.substr(arrow + 3));
  EXPECT_GT(before, 20);
  EXPECT_LT(after, before / 2);
  EXPECT_GT(after, 1);
}

}  // namespace
}  // namespace octavo
