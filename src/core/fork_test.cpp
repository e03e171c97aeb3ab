// A child of fork runs plans while threads of its parent were in the middle of theirs.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "octavo/octavo.hpp"
#include "testing/fork.hpp"
#include "testing/threads.hpp"

namespace octavo {
namespace {

constexpr std::int64_t numel = std::int64_t{1} << 19;

std::vector<std::int8_t> quantized(const Stream& stream, const std::vector<float>& x) {
  std::vector<std::int8_t> q(x.size());
  const auto plan = QuantizePerTensorPlan::select(stream, {.numel = numel});
  if (!plan || !plan->run(stream, {}, {.input = x, .scale = 0.01, .output = q})) q.clear();
  return q;
}

TEST(Fork, ChildrenGetTheSameBitsWhileThreadsRun) {
  if (!OCTAVO_FORKS) GTEST_SKIP() << "not under ThreadSanitizer";
  [[maybe_unused]] const testing::ManyThreads many;
  std::vector<float> x(numel);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 997) * 0.003F - 1.5F;
  const std::vector<std::int8_t> want = quantized(Stream::cpu({.threads = 1}), x);
  ASSERT_FALSE(want.empty());
  const Stream stream = Stream::cpu({.threads = 4});
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!stop) EXPECT_TRUE(quantized(stream, x) == want);
    });
  for (int i = 0; i < 50; ++i)
    EXPECT_TRUE(testing::in_a_child([&] {
      {
        const Stream fresh = Stream::cpu({.threads = 3});  // (goes away here, too)
        if (quantized(fresh, x) != want || fresh.threads() != 3) return false;
      }
      return quantized(stream, x) == want;
    }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(quantized(stream, x) == want);
}

}  // namespace
}  // namespace octavo
