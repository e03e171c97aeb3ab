// Files that are not what they seem, change, or belong to someone else; runs that meet.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "octavo/checkpoint.hpp"
#include "offline/testing_checkpoint.hpp"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::make_file;
using testing::read_file;
using testing::read_tree;
using testing::TemporaryDirectory;

constexpr const char* first_shard = "model-00001-of-00002.safetensors";

// All the way from a path; the words of a refusal, or "accepted".
std::string outcome(const fs::path& in, const fs::path& out, const ProgressCallback& progress = {},
                    QuantizeReport* report = nullptr) {
  const auto checkpoint = Checkpoint::open(in);
  if (!checkpoint) return checkpoint.error().message();
  const auto plan = resolve(*checkpoint, {});
  if (!plan) return plan.error().message();
  auto made = quantize(Stream::cpu({.threads = 1}), *plan, out, progress);
  if (!made) return made.error().message();
  if (report != nullptr) *report = *std::move(made);
  return "accepted";
}

// The same, stopped once the first shard is done.
void stop_after_the_first_shard(const fs::path& in, const fs::path& out) {
  EXPECT_THAT(outcome(in, out,
                      [](const Progress& p) {
                        if (p.what.starts_with("model-00002")) throw std::runtime_error("stop");
                      }),
              HasSubstr("stop"));
  ASSERT_TRUE(fs::exists(fs::path(out.string() + ".partial") / first_shard));
}

// An index that names one shard, by any name.
void make_indexed(const fs::path& dir, const std::string& shard) {
  testing::make_safetensors(dir / shard, {{"h.0.up.weight", {8, 8}}});
  make_file(dir / "model.safetensors.index.json",
            fmt::format(R"({{"weight_map":{{"h.0.up.weight":"{}"}}}})", shard));
}

TEST(CheckpointFiles, ShardsAreNamedAsLoadersExpect) {
  const TemporaryDirectory dir;
  for (const char* name : {"weights.dat", ".octavo-run", "octavo_smoothing.st", "config.json",
                           "m.safetensors.tmp", "m.SAFETENSORS", ".safetensors"}) {
    const fs::path in = dir / fmt::format("in {}", name);
    make_indexed(in, name);
    EXPECT_THAT(outcome(in, dir / "out"),
                HasSubstr(fmt::format("expected the name of a .safetensors file beside the index, "
                                      "got \"{}\"",
                                      name)));
    if (std::string_view(name).ends_with(".json")) continue;  // by itself it is an index
    EXPECT_THAT(outcome(in / name, dir / "out"), HasSubstr("ends in .safetensors")) << name;
  }
  // Where case does not count they would be one file.
  for (const char* name : {"a", "A"})
    testing::make_safetensors(dir / "case" / fmt::format("{}.safetensors", name),
                              {{fmt::format("{}.weight", name), {8, 8}}});
  EXPECT_THAT(outcome(dir / "case", dir / "out"), HasSubstr("differ in more than case"));
  EXPECT_FALSE(fs::exists(dir / "out"));
  EXPECT_FALSE(fs::exists(dir / "out.partial"));
}

TEST(CheckpointFiles, OwnNamesAreNotCarriedOver) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  ASSERT_EQ(outcome(dir / "in", dir / "whole"), "accepted");
  for (const char* name : {".octavo-run", "octavo_smoothing.st", "Config.JSON",
                           "MODEL-00001-of-00002.safetensors", "old.BIN", "old.Safetensors"})
    make_file(dir / "in" / name, "theirs");
  make_file(dir / "in" / "config.json.tmp", "a user's");
  make_file(dir / "in" / ".git" / "config", "theirs");
  QuantizeReport report;
  ASSERT_EQ(outcome(dir / "in", dir / "out", {}, &report), "accepted");
  auto got = read_tree(dir / "out");
  EXPECT_EQ(got["config.json.tmp"], "a user's");
  got.erase("config.json.tmp");
  EXPECT_EQ(got, read_tree(dir / "whole"));
  EXPECT_THAT(report.skipped, Contains(HasSubstr("octavo_smoothing.st: ")));
  EXPECT_THAT(report.skipped, Contains(HasSubstr("old.BIN: weights")));
  EXPECT_THAT(report.skipped, Contains(".git: a hidden directory"));
}

// A pipe that nobody writes to must not be waited for. (If it is, the alarm ends this test.)
TEST(CheckpointFiles, PipesDirectoriesAndLinksToNothing) {
  ::alarm(60);
  const auto pipe = [](const fs::path& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); };
  const auto directory = [](const fs::path& path) { fs::create_directory(path); };
  const auto dangling = [](const fs::path& path) { fs::create_symlink("nothing", path); };
  const auto device = [](const fs::path& path) { fs::create_symlink("/dev/zero", path); };
  using Make = std::function<void(const fs::path&)>;
  const std::pair<Make, const char*> kinds[] = {{pipe, "expected a file, got a pipe"},
                                                {directory, "expected a file, got a directory"},
                                                {device, "expected a file, got a device"},
                                                {dangling, "cannot open"}};
  for (const auto& [make, words] : kinds) {
    const TemporaryDirectory dir;
    testing::make_llama(dir / "in");
    for (const char* name : {"config.json", "model.safetensors.index.json", first_shard}) {
      fs::rename(dir / "in" / name, dir / "kept");
      make(dir / "in" / name);
      EXPECT_THAT(outcome(dir / "in", dir / "out"), HasSubstr(words)) << name;
      fs::remove(dir / "in" / name);
      fs::rename(dir / "kept", dir / "in" / name);
    }
    // Without an index, weights are not left out in silence either.
    testing::make_safetensors(dir / "plain" / "a.safetensors", {{"up.weight", {8, 8}}});
    make(dir / "plain" / "b.safetensors");
    EXPECT_THAT(outcome(dir / "plain", dir / "out"), HasSubstr(words));
    make(dir / "stats");
    EXPECT_THAT(Statistics::read(dir / "stats").error().message(), HasSubstr(words));
    ASSERT_EQ(outcome(dir / "in", dir / "out"), "accepted");
    make(dir / "out" / smoothing_file_name);
    const auto original = Checkpoint::open(dir / "in");
    const auto quantized = Checkpoint::open(dir / "out");
    EXPECT_THAT(verify(Stream::cpu(), *original, *quantized).error().message(), HasSubstr(words));
  }
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  pipe(dir / "in" / "notes.txt");
  dangling(dir / "in" / "gone.txt");
  QuantizeReport report;
  EXPECT_EQ(outcome(dir / "in", dir / "out", {}, &report), "accepted");
  EXPECT_THAT(report.skipped, Contains("notes.txt: a pipe, not a file"));
  EXPECT_THAT(report.skipped, Contains("gone.txt: a link to nothing"));
  ::alarm(0);
}

// While the first run has renamed its directory and not yet removed its mark, and after.
TEST(CheckpointFiles, ARunThatIsFinishingIsLeftAlone) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  std::string mark;
  ASSERT_EQ(outcome(dir / "in", dir / "out",
                    [&](const Progress&) { mark = read_file(dir / "out.partial/.octavo-run"); }),
            "accepted");
  make_file(dir / "out" / ".octavo-run", mark);
  const auto before = read_tree(dir / "out");
  const int first = ::open((dir / "out" / ".octavo-run").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(first, LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(outcome(dir / "in", dir / "out"), HasSubstr("another run is writing"));
  EXPECT_EQ(read_tree(dir / "out"), before);
  EXPECT_FALSE(fs::exists(dir / "out.partial"));
  fs::remove(dir / "out" / ".octavo-run");
  ::close(first);
  EXPECT_THAT(outcome(dir / "in", dir / "out"), HasSubstr("which exists"));
  EXPECT_FALSE(fs::exists(dir / "out.partial"));
}

TEST(CheckpointFiles, TwoRunsAtOnce) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  std::string second;
  EXPECT_EQ(outcome(dir / "in", dir / "out",
                    [&](const Progress&) {
                      if (second.empty()) second = outcome(dir / "in", dir / "out");
                    }),
            "accepted");
  EXPECT_THAT(second, HasSubstr("another run is writing"));
}

// What takes the output's name during a run is not removed.
TEST(CheckpointFiles, AnOutputThatAppearsIsKept) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  EXPECT_THAT(outcome(dir / "in", dir / "out",
                      [&](const Progress&) { make_file(dir / "out", "years of work"); }),
              HasSubstr("rename the finished directory"));
  EXPECT_EQ(read_file(dir / "out"), "years of work");
}

TEST(CheckpointFiles, LinksInPlaceOfTheRunsOwnAreNotFollowed) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  make_file(dir / "victim", "precious");
  fs::create_directory(dir / "a.partial");
  fs::create_symlink(dir / "victim", dir / "a.partial" / ".octavo-run");
  EXPECT_THAT(outcome(dir / "in", dir / "a"), HasSubstr("a.partial/.octavo-run: expected"));
  fs::create_directory(dir / "b.partial");
  fs::create_hard_link(dir / "victim", dir / "b.partial" / ".octavo-run");
  EXPECT_THAT(outcome(dir / "in", dir / "b"), HasSubstr("b.partial/.octavo-run: expected"));
  EXPECT_EQ(read_file(dir / "victim"), "precious");

  make_file(dir / "other" / ".octavo-run", "");
  make_file(dir / "other" / "thesis.txt", "years of work");
  fs::create_directory_symlink(dir / "other", dir / "c.partial");
  EXPECT_THAT(outcome(dir / "in", dir / "c"), HasSubstr("left by an earlier run"));
  EXPECT_TRUE(fs::exists(dir / "other" / "thesis.txt"));

  // A shard that is a link is no finished shard.
  stop_after_the_first_shard(dir / "in", dir / "out");
  fs::rename(dir / "out.partial" / first_shard, dir / "elsewhere");
  fs::create_symlink(dir / "elsewhere", dir / "out.partial" / first_shard);
  EXPECT_EQ(outcome(dir / "in", dir / "out"), "accepted");
  EXPECT_FALSE(fs::is_symlink(dir / "out" / first_shard));
}

TEST(CheckpointFiles, WhatIsGoneFromTheInputIsGoneFromTheResult) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  stop_after_the_first_shard(dir / "in", dir / "out");
  make_file(dir / "out.partial" / "secret.txt", "carried over before");
  make_file(dir / "out.partial" / "1_Pooling" / "old.txt", "carried over before");
  QuantizeReport report;
  ASSERT_EQ(outcome(dir / "in", dir / "out", {}, &report), "accepted");
  EXPECT_EQ(report.shards_kept, 1);
  EXPECT_FALSE(fs::exists(dir / "out" / "secret.txt"));
  EXPECT_FALSE(fs::exists(dir / "out" / "1_Pooling" / "old.txt"));
}

// A shard of the right size that says something else, and a mark that goes on where ours ends.
TEST(CheckpointFiles, WhatAnotherRunLeftIsNotKept) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  ASSERT_EQ(outcome(dir / "in", dir / "whole"), "accepted");
  const auto kept_after = [&](const std::function<void(const fs::path&)>& change) {
    stop_after_the_first_shard(dir / "in", dir / "out");
    change(dir / "out.partial");
    QuantizeReport report;
    EXPECT_EQ(outcome(dir / "in", dir / "out", {}, &report), "accepted");
    EXPECT_EQ(read_tree(dir / "out"), read_tree(dir / "whole"));
    fs::remove_all(dir / "out");
    return report.shards_kept;
  };
  EXPECT_EQ(kept_after([](const fs::path&) {}), 1);
  EXPECT_EQ(kept_after([](const fs::path& run) {
              std::string shard = read_file(run / first_shard);
              shard[shard.find("w8a8-dynamic")] = 'x';
              make_file(run / first_shard, shard);
            }),
            0);
  EXPECT_EQ(kept_after([](const fs::path& run) {
              make_file(run / first_shard, read_file(run / first_shard) + "x");
            }),
            0);
  EXPECT_EQ(kept_after([](const fs::path& run) {
              make_file(run / ".octavo-run", read_file(run / ".octavo-run") + "x");
            }),
            0);
}

// Overwritten where it is, exchanged, removed: the result would be of neither.
TEST(CheckpointFiles, AnInputThatChangesIsRefused) {
  using Change = std::function<void(const fs::path&)>;
  const Change overwrite = [](const fs::path& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\n');
    file.close();
    fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  };
  const Change exchange = [](const fs::path& path) {
    fs::copy_file(path, path.string() + ".new");
    fs::last_write_time(path.string() + ".new", fs::last_write_time(path));
    fs::rename(path.string() + ".new", path);
  };
  const Change remove = [](const fs::path& path) { fs::remove(path); };
  for (const char* name : {first_shard, "config.json", "model.safetensors.index.json"})
    for (const Change& change : {overwrite, exchange, remove}) {
      const TemporaryDirectory dir;
      testing::make_llama(dir / "in");
      bool done = false;
      const std::string said = outcome(dir / "in", dir / "out", [&](const Progress&) {
        if (!std::exchange(done, true)) change(dir / "in" / name);
      });
      EXPECT_THAT(said, HasSubstr(fmt::format("{}: expected a file that stays as it is", name)));
      EXPECT_FALSE(fs::exists(dir / "out"));
    }
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors", {{"up.weight", {8, 8}}});
  EXPECT_THAT(outcome(dir / "in", dir / "out",
                      [&](const Progress&) { make_file(dir / "in" / "config.json", "{}"); }),
              HasSubstr("config.json: expected"));
}

TEST(CheckpointFiles, StatisticsAreNotAModel) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors", {{"up.weight", {8, 8}}});
  ASSERT_TRUE(
      testing::make_statistics(*Checkpoint::open(dir / "in")).write(dir / "in" / "s.safetensors"));
  const auto beside = Checkpoint::open(dir / "in");
  ASSERT_TRUE(beside) << beside.error().message();
  EXPECT_EQ(beside->tensors().files().size(), 1U);
  QuantizeReport report;
  ASSERT_EQ(outcome(dir / "in", dir / "out", {}, &report), "accepted");
  EXPECT_THAT(report.skipped, Contains(HasSubstr("s.safetensors: statistics")));
  EXPECT_FALSE(fs::exists(dir / "out" / "s.safetensors"));

  fs::create_directory(dir / "all");
  fs::copy_file(dir / "in" / "s.safetensors", dir / "all" / "s.safetensors");
  EXPECT_THAT(Checkpoint::open(dir / "all").error().message(),
              HasSubstr("expected the weights of a model, got statistics only"));
  fs::rename(dir / "in", dir / "all" / "model");
  const std::string hint = "did you mean " + (dir / "all" / "model").string();
  EXPECT_THAT(Checkpoint::open(dir / "all").error().message(), HasSubstr(hint));
  fs::remove(dir / "all" / "s.safetensors");
  EXPECT_THAT(Checkpoint::open(dir / "all").error().message(), HasSubstr(hint));
}

// A mark that no run has written makes nothing ours to remove.
TEST(Files, AMarkOfAnotherKindIsNotARun) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  testing::make_file(dir / "out.partial" / "thesis.txt", "years of work");
  const auto checkpoint = Checkpoint::open(dir / "in");
  const auto plan = resolve(*checkpoint, {});
  for (const char* mark : {"mine", ""}) {
    testing::make_file(dir / "out.partial" / ".octavo-run", mark);
    const auto refused = quantize(Stream::cpu(), *plan, dir / "out");
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message(), HasSubstr("left by an earlier run"));
    EXPECT_EQ(testing::read_file(dir / "out.partial" / "thesis.txt"), "years of work");
  }
  std::filesystem::remove(dir / "out.partial" / "thesis.txt");
  EXPECT_TRUE(quantize(Stream::cpu(), *plan, dir / "out"));
  EXPECT_THAT(quantize(Stream::cpu(), *plan, "").error().message(), HasSubstr("got nothing"));
}

}  // namespace
}  // namespace octavo
