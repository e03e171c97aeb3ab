// The command and files: outputs that exist, cannot be written or are no files; links.
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

TEST_F(Command, AnOutputThatExistsIsNotOverwritten) {
  ASSERT_EQ(octavo(fmt::format("quantize {} {}", in, out)).code, 0);
  const Ran again = octavo(fmt::format("quantize {} {}", in, out));
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.text, HasSubstr(out + ", which exists: remove it, or give another name"));
}

// The page is replaced as a whole or not at all.
TEST_F(Command, ReportNeverLeavesHalfAPage) {
  ASSERT_EQ(octavo(fmt::format("quantize {} {}", in, out)).code, 0);
  const std::string page = (dir / "pages/r.html").string();
  testing::make_file(page, "a good page");
  const auto report = [&](const std::string& to, const std::string& before = "") {
    return octavo(fmt::format("report {} {} -o {}", in, out, to), before);
  };
  // A limit on the size of files stands for a full disk.
  const Ran full = report(page, "trap '' XFSZ; ulimit -f 8;");
  EXPECT_EQ(full.code, 1);
  EXPECT_THAT(full.text, HasSubstr("r.html: cannot write: "));
  EXPECT_THAT(full.text, HasSubstr("make room"));
  EXPECT_EQ(testing::read_tree(dir / "pages"),
            (std::map<std::string, std::string>{{"r.html", "a good page"}}));
  std::filesystem::create_symlink("r.html", dir / "pages/link.html");
  EXPECT_EQ(report((dir / "pages/link.html").string()).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "pages/link.html"));
  const std::string html = testing::read_file(page);
  EXPECT_THAT(html, ::testing::EndsWith("</html>\n"));

  // What is no file is written as it is, and gets nothing but the page.
  EXPECT_EQ(report("/dev/stdout").text, html);
  EXPECT_EQ(report("/dev/stdout | cat").text, html);
  testing::make_file(dir / "pages/log", "before\n");
  EXPECT_EQ(report(fmt::format("/dev/stdout >> {}", (dir / "pages/log").string())).code, 0);
  EXPECT_EQ(testing::read_file(dir / "pages/log"), "before\n" + html);
  EXPECT_EQ(report("/dev/null").code, 0);
  if (std::filesystem::exists("/dev/full")) {
    EXPECT_EQ(report("/dev/full").code, 1);
    EXPECT_THAT(report("/dev/full").text, HasSubstr("/dev/full: cannot write: "));
  }
  EXPECT_THAT(report((dir / "pages").string()).text, HasSubstr("pages: cannot write: "));
  EXPECT_THAT(report((dir / "none/r.html").string()).text, HasSubstr("none/r.html: cannot "));
}

TEST_F(Command, LinksOutOfTheInputAreTold) {
  namespace fs = std::filesystem;
  testing::make_file(dir / "secret", "s3cret");
  fs::create_symlink("../secret", dir / "in/notes.txt");
  fs::create_symlink("tokenizer.json", dir / "in/same.json");
  fs::rename(dir / "in/config.json", dir / "config");
  fs::create_symlink("../config", dir / "in/config.json");
  const Ran ran = octavo(fmt::format("quantize {} {}", in, out));
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_THAT(ran.text,
              HasSubstr(fmt::format("read through a link out of the input: notes.txt -> {}\n",
                                    (dir / "secret").string())));
  EXPECT_THAT(ran.text, HasSubstr("input: config.json -> "));
  EXPECT_THAT(ran.text, Not(HasSubstr("same.json")));
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(dir / "out/same.json")));

  // In the cache of the Hugging Face hub all files are links to the blobs of their model.
  fs::remove(dir / "in/notes.txt");
  fs::create_directories(dir / "hub/blobs");
  fs::create_directories(dir / "hub/snapshots/abc");
  for (const auto& [name, text] : testing::read_tree(dir / "in")) {
    if (name.find('/') != std::string::npos) continue;
    testing::make_file(dir / "hub/blobs" / name, text);
    fs::create_symlink("../../blobs/" + name, dir / "hub/snapshots/abc" / name);
  }
  fs::create_symlink(dir / "secret", dir / "hub/snapshots/abc/notes.txt");
  const Ran hub = octavo(fmt::format("quantize {}/hub/snapshots/abc {}/hub-out",
                                     dir.path().string(), dir.path().string()));
  EXPECT_EQ(hub.code, 0) << hub.text;
  EXPECT_THAT(hub.text, HasSubstr("input: notes.txt -> "));
  EXPECT_THAT(hub.text, Not(HasSubstr("input: config.json")));
  EXPECT_TRUE(fs::exists(dir / "hub-out/model-00001-of-00002.safetensors"));
}

TEST_F(Command, ReportIsNotWrittenOverWeights) {
  ASSERT_EQ(octavo(fmt::format("quantize {} {}", in, out)).code, 0);
  const auto before = testing::read_tree(out);
  const Ran ran =
      octavo(fmt::format("report {} {} -o {}/model-00001-of-00002.safetensors", in, out, out));
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.text, HasSubstr("out: expected another file than the weights, got "));
  EXPECT_EQ(testing::read_tree(out), before);
}

}  // namespace
}  // namespace octavo
