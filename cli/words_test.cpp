// What the command says, where it can be said and where not; and names that were made to do harm.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/testing_command.hpp"

namespace octavo {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::octavo;
using testing::Ran;
using Json = nlohmann::json;
using namespace std::string_literals;

class Words : public testing::Command {
 protected:
  void quantized() {
    const Ran ran = octavo(fmt::format("quantize {} {}", in, out));
    ASSERT_EQ(ran.code, 0) << ran.text;
  }
};

TEST_F(Words, OutputThatCannotBeWritten) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  for (const std::string& arguments : {"inspect " + in, "inspect --json " + in, "info --json"s,
                                       "--help"s, "--version"s, "quantize --help"s}) {
    const Ran full = octavo(arguments + " 2>&1 >/dev/full #");
    EXPECT_EQ(full.code, 1) << arguments;
    EXPECT_THAT(full.text, HasSubstr("octavo: cannot write")) << arguments;
    const Ran closed = octavo(arguments + " 2>&1 >&- #");
    EXPECT_EQ(closed.code, 1) << arguments;
    EXPECT_THAT(closed.text, HasSubstr("octavo: cannot write")) << arguments;
    EXPECT_EQ(octavo(arguments + " >/dev/full 2>/dev/full #").code, 1) << arguments;
  }
  const Ran gone = octavo(fmt::format("inspect --tensors {} | head -1", in));
  EXPECT_EQ(gone.code, 0);
  EXPECT_THAT(gone.text, Not(HasSubstr("octavo:")));
}

// Nobody hears it, and that is all.
TEST_F(Words, ErrorsThatCannotBeSaid) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  quantized();
  for (const char* end : {" 2>/dev/full #", " 2>&- #", " <&- >&- 2>&- #"}) {
    EXPECT_EQ(octavo("inspect /no/such/file" + std::string(end)).code, 1) << end;
    EXPECT_EQ(octavo("nonsense" + std::string(end)).code, 2) << end;
    EXPECT_EQ(octavo("quantize" + std::string(end)).code, 2) << end;
    EXPECT_EQ(octavo(fmt::format("verify {} {} --max-error 0 {}", in, out, end)).code,
              end == std::string(" <&- >&- 2>&- #") ? 1 : 3)
        << end;
  }
}

// A file that takes the number of a closed stream would get what is said.
TEST_F(Words, ClosedStreamsAreNotWrittenInto) {
  quantized();
  const auto whole = testing::read_tree(out);
  for (const char* end : {"2>&-", "<&- 2>&-", "<&- >&- 2>&-"}) {
    const std::string again = (dir / "again").string();
    octavo(fmt::format("quantize {} {} {} #", in, again, end));
    EXPECT_EQ(testing::read_tree(again), whole) << end;
    std::filesystem::remove_all(again);
  }
}

TEST_F(Words, NestingIsRefused) {
  quantized();
  std::string deep = "{\"quantization_config\":";
  for (int i = 0; i < 150'000; ++i) deep += "{\"a\":";
  testing::make_file(dir / "out" / "config.json", deep + "1" + std::string(150'001, '}'));
  for (const std::string& arguments :
       {"verify " + in + " " + out, "report " + in + " " + out, "inspect " + out}) {
    const Ran ran = octavo(arguments);
    EXPECT_EQ(ran.code, 1) << arguments;
    EXPECT_THAT(ran.text, HasSubstr("config.json: expected JSON of at most 127 levels"));
  }
}

TEST_F(Words, PatternsEndSoon) {
  const auto start = std::chrono::steady_clock::now();
  testing::make_safetensors(dir / "long" / "m.safetensors",
                            {{std::string(200, 'b') + "!.weight", {8, 8}}});
  const std::string quantize =
      fmt::format("quantize {} {} --dry-run --ignore ", (dir / "long").string(), out);
  EXPECT_THAT(octavo(quantize + "'re:(b+)+$'").text, HasSubstr("which matches none of 1"));
  EXPECT_NE(
      octavo(quantize + "re:$(printf '(%.0s' $(seq 20000))b$(printf ')%.0s' $(seq 20000))").code,
      -1);
  EXPECT_THAT(octavo(quantize + "'re:(?!a)'").text, HasSubstr("no look-ahead"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// U+202E and U+2066, by their bytes: in the source they would turn the rest of a line.
std::string turned() { return {'\xe2', '\x80', '\xae'}; }
std::string isolated() { return {'\xe2', '\x81', '\xa6'}; }

// What a checkpoint could say to a terminal or a page is shown, not done.
TEST_F(Words, NamesAreHarmless) {
  const std::string bad = "\x1b[2J\n\u009b1m" + turned() + isolated() + "\u200b";
  const std::string shown = "\\x1b[2J\\n\\x9b1m\\u202e\\u2066\\u200b";
  testing::make_safetensors(dir / "names" / "m.safetensors", {{bad + ".up.weight", {8, 8}}});
  testing::make_file(dir / "names" / "config.json", Json{{"model_type", bad}}.dump());
  testing::make_file(dir / "names" / (bad + ".bin"), "");
  const std::string names = (dir / "names").string(), page = (dir / "r.html").string();
  for (const std::string& arguments : {fmt::format("inspect --tensors {}", names),
                                       fmt::format("quantize --dry-run {} {}", names, out),
                                       fmt::format("quantize --smooth {} {} {}", stats, names, out),
                                       fmt::format("quantize {} {}", names, out),
                                       fmt::format("verify --max-error 0 {} {}", names, out),
                                       fmt::format("report {} {} -o {}", names, out, page)}) {
    const Ran ran = octavo(arguments);
    EXPECT_NE(ran.code, -1) << arguments;
    for (const std::string& raw : {std::string("\x1b"), std::string("\u009b"), turned(), isolated(),
                                   std::string("\u200b")}) {
      EXPECT_THAT(ran.text, Not(HasSubstr(raw))) << arguments;
      EXPECT_THAT(testing::read_file(page), Not(HasSubstr(raw)));
    }
    if (!arguments.starts_with("report")) {
      EXPECT_THAT(ran.text, HasSubstr(shown)) << arguments;
    }
  }
  EXPECT_THAT(testing::read_file(page), HasSubstr(shown));
}

TEST_F(Words, JsonIsValidForAnyName) {
  const std::string name = "\x1b\"\\" + turned();
  testing::make_safetensors(dir / "x\xff\xfe" / "m\xff.safetensors", {{name + ".weight", {8, 8}}});
  const std::string path = (dir / "x").string() + "$(printf '\\377\\376')";
  const Json inspected = Json::parse(octavo("inspect --json " + path).text);
  EXPECT_EQ(inspected["layers"][0]["name"], name);
  EXPECT_EQ(octavo(fmt::format("quantize {} {}", path, out)).code, 0);
  const Json verified = Json::parse(octavo(fmt::format("verify --json {} {}", path, out)).text);
  EXPECT_EQ(verified["layers"][0]["name"], name);
  // What cannot be shown is shown as what it is.
  EXPECT_THAT(octavo("inspect " + path).text, HasSubstr("x\\xff\\xfe"));
}

}  // namespace
}  // namespace octavo
