// How files get to the disk: flushed before they get their names, and in pieces if the system takes
// no more at once.
// (With it the C library's headers define some of the functions that are replaced below.)
#undef _FORTIFY_SOURCE
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>

#include "octavo/checkpoint.hpp"
#include "offline/testing_checkpoint.hpp"

namespace {

std::mutex flushed_mutex;
std::set<std::string> flushed;  // NOLINT(cert-err58-cpp): an empty set does not throw
std::atomic<std::size_t> most_at_once{SIZE_MAX};
std::atomic<unsigned> calls{0};

// Now and then a call is interrupted before anything is done, and must be made again.
bool interrupted() { return most_at_once != SIZE_MAX && calls++ % 5 == 3; }

}  // namespace

// These take the place of the C library's. The first notes what was flushed, by the name that it
// had then; the others do as little as they may.
extern "C" int fsync(int fd) {
  char path[4096];
  const ssize_t n = ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path, sizeof(path));
  if (n > 0) {
    const std::lock_guard lock(flushed_mutex);
    flushed.emplace(path, static_cast<std::size_t>(n));
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" ssize_t pwrite(int fd, const void* buf, size_t n, off_t offset) {
  if (interrupted()) {
    errno = EINTR;
    return -1;
  }
  return ::syscall(SYS_pwrite64, fd, buf, std::min(n, most_at_once.load()), offset);
}
extern "C" ssize_t pread(int fd, void* buf, size_t nbytes, off_t offset) {
  if (interrupted()) {
    errno = EINTR;
    return -1;
  }
  return ::syscall(SYS_pread64, fd, buf, std::min(nbytes, most_at_once.load()), offset);
}

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using testing::make_file;
using testing::read_tree;
using ::testing::StartsWith;
using testing::TemporaryDirectory;

std::string quantized(const fs::path& in, const fs::path& out) {
  const auto checkpoint = Checkpoint::open(in);
  if (!checkpoint) return checkpoint.error().message();
  const auto plan = resolve(*checkpoint, {});
  if (!plan) return plan.error().message();
  const auto made = quantize(Stream::cpu({.threads = 1}), *plan, out);
  return made ? "accepted" : made.error().message();
}

TEST(CheckpointWrites, AllIsFlushedBeforeItGetsItsName) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  make_file(dir / "in" / "a" / "b" / "deep.txt", "deep");
  flushed.clear();
  ASSERT_EQ(quantized(dir / "in", dir / "out"), "accepted");
  std::set<std::string> expected{(dir / "out.partial").string(), dir.path().string()};
  for (const char* name :
       {"tokenizer.json", "1_Pooling", "1_Pooling/config.json", "a", "a/b", "a/b/deep.txt"})
    expected.insert((dir / "out.partial" / name).string());
  for (const std::string& path : expected) EXPECT_THAT(flushed, Contains(path));
  // What is written here has another name until it is whole.
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "config.json", "model.safetensors.index.json"})
    EXPECT_THAT(flushed, Contains(StartsWith((dir / "out.partial" / name).string() + ".")));
}

// The name of a file is in its directory, which is flushed after it.
TEST(CheckpointWrites, AFileOfItsOwnIsFlushedWithItsName) {
  const TemporaryDirectory dir;
  flushed.clear();
  ASSERT_TRUE(Statistics().write(dir / "s"));
  EXPECT_THAT(flushed, Contains(dir.path().string()));
  EXPECT_THAT(flushed, Contains(StartsWith((dir / "s.").string())));
}

TEST(CheckpointWrites, GoOnWhereTheSystemStopped) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  ASSERT_EQ(quantized(dir / "in", dir / "whole"), "accepted");
  most_at_once = 1000;
  const std::string said = quantized(dir / "in", dir / "out");
  most_at_once = SIZE_MAX;
  ASSERT_EQ(said, "accepted");
  EXPECT_EQ(read_tree(dir / "out"), read_tree(dir / "whole"));
}

// Files of the names that ours have until they are whole are someone else's.
TEST(CheckpointWrites, WhatIsThereByChanceIsLeftAlone) {
  const TemporaryDirectory dir;
  std::map<std::string, std::string> theirs;
  for (int i = 0; i < 300; ++i) theirs[fmt::format("s.{}-{}.tmp", ::getpid(), i)] = "theirs";
  for (const auto& [name, text] : theirs) make_file(dir / name, text);
  ASSERT_TRUE(Statistics().write(dir / "s"));
  auto got = read_tree(dir.path());
  EXPECT_EQ(got.erase("s"), 1U);
  EXPECT_EQ(got, theirs);
}

}  // namespace
}  // namespace octavo
