// One object of statistics, from many threads at once and across a fork.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "octavo/statistics.hpp"
#include "offline/testing_files.hpp"
#include "testing/fork.hpp"
#include "testing/threads.hpp"

namespace octavo {
namespace {

using testing::read_file;
using testing::TemporaryDirectory;

constexpr std::int64_t channels = 40;
constexpr StatisticsOptions options{.sample_rows = 12, .histogram_bits = 2};

struct Batch {
  std::string layer;
  std::vector<float> values;
  [[nodiscard]] TensorRef rows() const {
    return {values.data(), {static_cast<std::int64_t>(values.size()) / channels, channels}};
  }
};

std::vector<Batch> make_batches() {
  std::mt19937 rng(7);
  std::vector<Batch> out;
  for (int i = 0; i < 96; ++i) {
    Batch batch{i % 3 == 0 ? "a" : "b", {}};
    batch.values.resize(static_cast<std::size_t>((1 + rng() % 20) * channels));
    for (float& x : batch.values)
      x = static_cast<float>(static_cast<std::int32_t>(rng())) * 0x1p-28F;
    out.push_back(std::move(batch));
  }
  return out;
}

// Each `step`th of the batches, from `first` on.
void update(Statistics& statistics, const std::vector<Batch>& batches, std::size_t first,
            std::size_t step) {
  const Stream stream = Stream::cpu({.threads = 1});
  for (std::size_t i = first; i < batches.size(); i += step)
    ASSERT_TRUE(statistics.update(stream, batches[i].layer, batches[i].rows()));
}

std::string written(const Statistics& statistics, const std::filesystem::path& path) {
  EXPECT_TRUE(statistics.write(path));
  return read_file(path);
}

void together(const std::vector<std::function<void()>>& works) {
  std::vector<std::thread> threads;
  threads.reserve(works.size());
  for (const auto& work : works) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

class StatisticsThreads : public ::testing::Test {
 protected:
  const std::vector<Batch> batches = make_batches();
  const TemporaryDirectory dir;
};

TEST_F(StatisticsThreads, LoseNothing) {
  Statistics serial(options);
  update(serial, batches, 0, 1);
  const std::string want = written(serial, dir / "want");
  for (int run = 0; run < 10; ++run) {
    Statistics shared(options);
    std::vector<std::function<void()>> works;
    for (std::size_t i = 0; i < 4; ++i)
      works.emplace_back([&, i] { update(shared, batches, i, 4); });
    together(works);
    EXPECT_TRUE(written(shared, dir / "got") == want) << "run " << run;
  }
}

// What keeps less may be merged at any time: the same remains.
TEST_F(StatisticsThreads, AreMergedWrittenCopiedAndReadMeanwhile) {
  const StatisticsOptions less{.sample_rows = 5, .histogram_bits = 1};
  Statistics other(less);
  update(other, batches, 1, 2);
  Statistics serial(options);
  update(serial, batches, 0, 2);
  ASSERT_TRUE(serial.merge(other));
  const std::string want = written(serial, dir / "want");
  for (int run = 0; run < 10; ++run) {
    Statistics shared(options);
    std::atomic<int> left{3};
    const auto look = [&] {
      do {
        EXPECT_LE(Statistics(shared).layers().size(), 2U);
        ASSERT_TRUE(shared.write(dir / "meanwhile"));
        ASSERT_TRUE(Statistics::read(dir / "meanwhile"));
        for (const std::string& name : shared.names()) {
          const auto layer = shared.layer(name);
          ASSERT_TRUE(layer);
          std::int64_t counted = 0;
          for (const std::int64_t n : layer->histogram()) counted += n;
          EXPECT_EQ(counted, layer->count() * channels);
        }
        EXPECT_LE(shared.options().sample_rows, options.sample_rows);
      } while (left > 0);
    };
    const auto merge = [&] {
      EXPECT_TRUE(shared.merge(other));
      --left;
    };
    const auto update_from = [&](std::size_t first) {
      update(shared, batches, first, 4);
      --left;
    };
    together({[&] { update_from(0); }, [&] { update_from(2); }, merge, look});
    EXPECT_TRUE(written(shared, dir / "got") == want) << "run " << run;
  }
}

TEST_F(StatisticsThreads, AreMergedIntoEachOtherAndIntoThemselves) {
  Statistics once(options);
  update(once, batches, 0, 1);
  Statistics twice = once;
  ASSERT_TRUE(twice.merge(once));
  ASSERT_TRUE(once.merge(once));
  EXPECT_TRUE(written(once, dir / "a") == written(twice, dir / "b"));
  for (int run = 0; run < 10; ++run) {
    Statistics a(options);
    Statistics b(options);
    update(a, batches, 0, 2);
    update(b, batches, 1, 2);
    together({[&] { EXPECT_TRUE(a.merge(b)); }, [&] { EXPECT_TRUE(b.merge(a)); },
              [&] { EXPECT_TRUE(a.merge(a)); }});
    EXPECT_EQ(a.names().size(), 2U);
  }
}

TEST_F(StatisticsThreads, AChildOfForkFindsThemWhole) {
  if (!OCTAVO_FORKS_AND_ALLOCATES) GTEST_SKIP() << "not under sanitizers";
  Statistics shared(options);
  update(shared, batches, 0, 1);
  const auto is_whole = [&] {
    std::int64_t counted = 0;
    const auto layer = shared.layer("a");
    for (const std::int64_t n : layer->histogram()) counted += n;
    return counted == layer->count() * channels;
  };
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      while (!stop) update(shared, batches, i, 3);
    });
  for (int i = 0; i < 100; ++i)
    EXPECT_TRUE(testing::in_a_child([&] {
      if (!is_whole()) return false;
      update(shared, batches, 0, 1);
      return is_whole() && shared.merge(shared) && is_whole();
    }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace octavo
