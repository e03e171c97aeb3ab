// For tests: the command, run as a user runs it.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "offline/testing_checkpoint.hpp"

namespace octavo::testing {

struct Ran {
  int code = 0;
  std::string text;  // of both streams
};
/// `before` is for the shell.
inline Ran octavo(const std::string& arguments, const std::string& before = "") {
  const char* emulator = std::getenv("OCTAVO_EMULATOR");
  const std::string command = fmt::format(
      "{} {} {} {} 2>&1", before, emulator == nullptr ? "" : emulator, OCTAVO_COMMAND, arguments);
  FILE* pipe = ::popen(command.c_str(), "r");
  Ran ran;
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    ran.text.append(buffer, n);
  const int status = ::pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

class Command : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("OCTAVO_EMULATED") != nullptr) GTEST_SKIP() << "commands run on this machine";
    make_llama(dir / "in");
    const auto checkpoint = Checkpoint::open(dir / "in");
    ASSERT_TRUE(checkpoint);
    ASSERT_TRUE(make_statistics(*checkpoint).write(dir / "stats"));
    in = (dir / "in").string();
    out = (dir / "out").string();
    stats = (dir / "stats").string();
  }
  TemporaryDirectory dir;
  std::string in, out, stats;
};

}  // namespace octavo::testing
