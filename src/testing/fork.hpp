// For tests: a child of fork that must end in time, and well.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

// A child of a process with threads may start none under ThreadSanitizer, and may wait for ever
// where it allocates under AddressSanitizer, whose allocator has locks that a fork does not let go.
#if defined(__SANITIZE_THREAD__)
#define OCTAVO_FORKS 0
#elif defined(__has_feature)
#define OCTAVO_FORKS (!__has_feature(thread_sanitizer))
#else
#define OCTAVO_FORKS 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define OCTAVO_FORKS_AND_ALLOCATES 0
#elif defined(__has_feature)
#define OCTAVO_FORKS_AND_ALLOCATES (OCTAVO_FORKS && !__has_feature(address_sanitizer))
#else
#define OCTAVO_FORKS_AND_ALLOCATES OCTAVO_FORKS
#endif

namespace octavo::testing {

/// Whether `work()` is true in a child.
template <class Work>
::testing::AssertionResult in_a_child(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work() ? 0 : 1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return ::testing::AssertionFailure() << "the child hangs";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "the child ends with status " << status;
}

}  // namespace octavo::testing
