// Statistics are the same for any order, split and thread count, and hold what was seen.
#include "octavo/statistics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "octavo/safetensors.hpp"
#include "offline/testing_files.hpp"
#include "testing/threads.hpp"

namespace octavo {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::TemporaryDirectory;

constexpr std::int64_t channels = 37;

std::vector<float> random_rows(std::int64_t rows, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<float> out(static_cast<std::size_t>(rows * channels));
  for (float& x : out)
    x = static_cast<float>(static_cast<std::int32_t>(rng())) * 0x1p-28F *
        static_cast<float>(1 + rng() % 7);
  return out;
}
TensorRef rows_of(const std::vector<float>& all, std::int64_t first, std::int64_t count) {
  return {all.data() + first * channels, {count, channels}};
}

TEST(RowHash, IsTheOneOfTheHeader) {
  // The same in plain integers, of 1.0F, -2.5F, 0.
  const std::uint64_t u[] = {0x3F800000, 0xC0200000, 0};
  std::uint64_t h = 0x9E3779B97F4A7C15ULL ^ 3ULL;
  h = (h ^ (u[0] + (u[1] << 32U))) * 0xD6E8FEB86659FD93ULL;
  h ^= h >> 32U;
  h = (h ^ u[2]) * 0xD6E8FEB86659FD93ULL;
  h ^= h >> 32U;
  h ^= h >> 29U;
  h *= 0xBF58476D1CE4E5B9ULL;
  h ^= h >> 32U;
  const std::vector<float> row{1.0F, -2.5F, 0.0F};
  EXPECT_EQ(row_hash(row), h);
  EXPECT_EQ(row_hash(row), 17424543734999584067ULL) << "pinned: files depend on it";
}

// What the headers says, in plain loops.
struct Expected {
  std::vector<float> absmax, min, max;
  std::vector<std::pair<std::uint64_t, std::vector<float>>> rows;
};
Expected expected(const std::vector<float>& all, std::size_t sample) {
  Expected e;
  e.absmax.assign(channels, 0.0F);
  e.min = e.max = e.absmax;
  for (std::size_t at = 0; at < all.size(); at += channels) {
    const std::vector<float> row(all.begin() + static_cast<std::ptrdiff_t>(at),
                                 all.begin() + static_cast<std::ptrdiff_t>(at + channels));
    bool finite = true;
    for (std::size_t j = 0; j < channels; ++j) {
      finite = finite && std::isfinite(row[j]);
      if (!std::isfinite(row[j])) continue;
      e.absmax[j] = std::max(e.absmax[j], std::fabs(row[j]));
      e.min[j] = std::min(e.min[j], row[j]);
      e.max[j] = std::max(e.max[j], row[j]);
    }
    if (finite) e.rows.emplace_back(row_hash(row), row);
  }
  std::sort(e.rows.begin(), e.rows.end());
  e.rows.erase(std::unique(e.rows.begin(), e.rows.end()), e.rows.end());
  e.rows.resize(std::min(e.rows.size(), sample));
  return e;
}

TEST(Statistics, HoldWhatWasSeen) {
  std::vector<float> all = random_rows(300, 1);
  all[5] = std::numeric_limits<float>::quiet_NaN();
  all[channels + 3] = std::numeric_limits<float>::infinity();
  std::copy_n(all.begin() + 7 * channels, channels, all.begin() + 9 * channels);  // a row twice
  auto layer = LayerStatistics::create(channels, {.sample_rows = 16, .histogram_bits = 2});
  ASSERT_TRUE(layer);
  ASSERT_TRUE(layer->update(Stream::cpu(), rows_of(all, 0, 300)));
  const Expected e = expected(all, 16);
  EXPECT_EQ(layer->count(), 300);
  EXPECT_EQ(layer->absmax(), e.absmax);
  EXPECT_EQ(layer->min(), e.min);
  EXPECT_EQ(layer->max(), e.max);
  ASSERT_EQ(layer->sample_count(), 16);
  std::vector<float> sample;
  for (const auto& [hash, row] : e.rows) sample.insert(sample.end(), row.begin(), row.end());
  EXPECT_EQ(layer->sample(), sample);
  ASSERT_EQ(layer->histogram().size(), 2048U);
  std::int64_t total = 0;
  for (const std::int64_t n : layer->histogram()) total += n;
  EXPECT_EQ(total, 300 * channels - 2);
}

// Batches in any order, over one file or several that are merged, with any number of threads.
TEST(Statistics, AreTheSameBytesInAnyOrder) {
  [[maybe_unused]] const testing::ManyThreads many;
  const TemporaryDirectory dir;
  const std::vector<float> all = random_rows(5000, 2);
  const StatisticsOptions options{.sample_rows = 24, .histogram_bits = 3};
  std::string first;
  std::mt19937 rng(3);
  for (const int threads : {1, 2, 3, 7, 16}) {
    const Stream stream = Stream::cpu({.threads = threads});
    std::vector<std::pair<std::int64_t, std::int64_t>> batches;
    for (std::int64_t at = 0; at < 5000;) {
      const std::int64_t n =
          std::min<std::int64_t>(5000 - at, threads == 1 ? 5000 : 1 + rng() % 900);
      batches.emplace_back(at, n);
      at += n;
    }
    std::shuffle(batches.begin(), batches.end(), rng);
    std::vector<Statistics> parts(static_cast<std::size_t>(1 + threads % 3), Statistics(options));
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const TensorRef rows = rows_of(all, batches[i].first, batches[i].second);
      ASSERT_TRUE(parts[i % parts.size()].update(stream, "a.b", rows));
      ASSERT_TRUE(parts[(i + 1) % parts.size()].update(stream, "c", rows));
    }
    // Each part goes through a file.
    for (Statistics& part : parts) {
      ASSERT_TRUE(part.write(dir / "part.st"));
      auto read = Statistics::read(dir / "part.st");
      ASSERT_TRUE(read) << read.error().message();
      part = *std::move(read);
    }
    for (std::size_t i = 1; i < parts.size(); ++i) ASSERT_TRUE(parts[0].merge(parts[i]));
    ASSERT_TRUE(parts[0].write(dir / "all.st"));
    const std::string bytes = read_file(dir / "all.st");
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << threads << " threads";
  }
  const auto read = Statistics::read(dir / "all.st");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->find("a.b")->absmax(), expected(all, 0).absmax);
  EXPECT_EQ(read->find("a.b")->count(), 5000);
  EXPECT_EQ(read->find("none"), nullptr);
}

TEST(Statistics, TakeEveryTypeAndStride) {
  const std::vector<float> all = random_rows(8, 4);
  std::vector<double> wide(all.begin(), all.end());
  std::vector<float> turned(all.size());  // [channels, 8]
  std::vector<bf16> narrow(all.size());
  std::vector<float> narrowed(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    turned[i % channels * 8 + i / channels] = all[i];
    narrow[i] = to_bf16(all[i]);
    narrowed[i] = to_float(narrow[i]);
  }
  const Stream stream = Stream::cpu();
  const auto of = [&](const TensorRef& rows) {
    auto layer = LayerStatistics::create(channels, {.sample_rows = 8});
    EXPECT_TRUE(layer->update(stream, rows));
    auto out = layer->sample();
    out.insert(out.end(), layer->absmax().begin(), layer->absmax().end());
    return out;
  };
  const auto plain = of(rows_of(all, 0, 8));
  EXPECT_EQ(of(TensorRef(wide, {2, 4, channels})), plain);
  EXPECT_EQ(of(TensorRef(turned.data(), {8, channels}, {1, 8})), plain);
  EXPECT_EQ(of(TensorRef(narrow, {8, channels})), of(rows_of(narrowed, 0, 8)));
}

TEST(Statistics, MergesKeepTheSmallerKind) {
  const std::vector<float> all = random_rows(50, 5);
  const Stream stream = Stream::cpu();
  const auto make = [&](const StatisticsOptions& options, const char* layer) {
    Statistics s(options);
    EXPECT_TRUE(s.update(stream, layer, rows_of(all, 0, 50)));
    return s;
  };
  Statistics a = make({.sample_rows = 8, .histogram_bits = 4}, "x");
  ASSERT_TRUE(a.merge(make({.sample_rows = 4, .histogram_bits = 1}, "y")));
  EXPECT_EQ(a.find("x")->sample_count(), 4);
  EXPECT_EQ(a.find("x")->histogram(), a.find("y")->histogram());
  ASSERT_TRUE(a.merge(make({}, "z")));
  EXPECT_EQ(a.find("x")->sample_count(), 0);
  EXPECT_TRUE(a.find("y")->histogram().empty());
  EXPECT_EQ(a.find("y")->absmax(), a.find("z")->absmax());
}

// Layers of their own, one with fine bins and one with coarse ones, in either order.
TEST(LayerStatistics, MergesBinsOfAnyKind) {
  const std::vector<float> all = random_rows(50, 6);
  const auto make = [&](int bits, std::int64_t first, std::int64_t count) {
    auto layer = LayerStatistics::create(channels, {.sample_rows = 4, .histogram_bits = bits});
    EXPECT_TRUE(layer->update(Stream::cpu(), rows_of(all, first, count)));
    return *layer;
  };
  const LayerStatistics whole = make(1, 0, 50);
  LayerStatistics fine = make(4, 0, 20), coarse = make(1, 0, 20);
  ASSERT_TRUE(fine.merge(make(1, 20, 30)));
  ASSERT_TRUE(coarse.merge(make(4, 20, 30)));
  for (const LayerStatistics* merged : {&fine, &coarse}) {
    EXPECT_EQ(merged->count(), 50);
    EXPECT_EQ(merged->histogram(), whole.histogram());
    EXPECT_EQ(merged->sample(), whole.sample());
    EXPECT_EQ(merged->min(), whole.min());
    EXPECT_EQ(merged->max(), whole.max());
  }
  const auto narrow = LayerStatistics::create(channels - 1);
  EXPECT_THAT(fine.merge(*narrow).error().message(), HasSubstr("expected 37 channels, got 36"));
}

// With room for all of them the sample has each row that is finite, once.
TEST(LayerStatistics, SampleEachFiniteRowOnce) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> rows{1, 2, nan, 3, 4, nan, 1, 2, inf, 5, 6, -inf, -0.0F, 0, 1, 2, 0, 0};
  auto layer = LayerStatistics::create(2, {.sample_rows = 9});
  ASSERT_TRUE(layer->update(Stream::cpu(), TensorRef(rows, {9, 2})));
  ASSERT_TRUE(layer->update(Stream::cpu(), TensorRef(rows, {9, 2})));
  EXPECT_EQ(layer->count(), 18);
  const std::vector<float> sample = layer->sample();
  std::vector<std::pair<float, float>> pairs;
  for (std::size_t i = 0; i < sample.size(); i += 2) pairs.emplace_back(sample[i], sample[i + 1]);
  using P = std::pair<float, float>;
  // -0 and 0 are other bits.
  EXPECT_THAT(pairs, ::testing::UnorderedElementsAre(P(1, 2), P(0, 0), P(-0.0F, 0)));
}

// More rows than are worked on at once; the last few hundred are the ones that matter.
TEST(LayerStatistics, ManyRows) {
  constexpr std::int64_t rows = 20000, seen = 38000;
  std::vector<float> all(2 * rows, 1.0F);
  for (std::size_t i = seen; i < all.size(); ++i) all[i] = static_cast<float>(i);
  auto layer = LayerStatistics::create(2, {.sample_rows = rows});
  ASSERT_TRUE(layer->update(Stream::cpu(), TensorRef(all, {rows, 2})));
  EXPECT_EQ(layer->count(), rows);
  EXPECT_EQ(layer->sample_count(), 1001);
  std::vector<float> sample = layer->sample(), expected(all.begin() + seen - 2, all.end());
  std::sort(sample.begin(), sample.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(sample, expected);
}

TEST(LayerStatistics, NoChannels) {
  auto layer = LayerStatistics::create(0, {.sample_rows = 2});
  ASSERT_TRUE(layer) << layer.error().message();
  EXPECT_TRUE(layer->update(Stream::cpu(), TensorRef(nullptr, DType::f32, {3, 0})));
  EXPECT_EQ(layer->count(), 0);
  EXPECT_EQ(layer->sample_count(), 0);
}

// f64 has larger numbers than the f32 that statistics are kept in.
TEST(LayerStatistics, ExtremesOfF64AreFinite) {
  const std::vector<double> rows{1e300, -1e300, 1, 2};
  auto layer = LayerStatistics::create(2, {.sample_rows = 4});
  ASSERT_TRUE(layer->update(Stream::cpu(), TensorRef(rows, {2, 2})));
  constexpr float most = std::numeric_limits<float>::max();
  EXPECT_EQ(layer->absmax(), (std::vector<float>{most, most}));
  EXPECT_EQ(layer->min(), (std::vector<float>{0, -most}));
  EXPECT_EQ(layer->max(), (std::vector<float>{most, 2}));
  EXPECT_EQ(layer->sample(), (std::vector<float>{1, 2})) << "a row that f32 cannot hold";
}

TEST(Statistics, Refusals) {
  const Stream stream = Stream::cpu();
  Statistics s;
  const std::vector<float> x(12);
  const std::vector<std::int8_t> integers(12);
  ASSERT_TRUE(s.update(stream, "a", TensorRef(x, {3, 4})));
  const auto message = [&](const TensorRef& rows) {
    return s.update(stream, "a", rows).error().message();
  };
  EXPECT_THAT(message(TensorRef(x, {4, 3})),
              HasSubstr("rows: expected shape [..., 4], got [4, 3]"));
  EXPECT_THAT(message(TensorRef(integers, {3, 4})), HasSubstr("got s8"));
  EXPECT_THAT(message(TensorRef(nullptr, DType::f32, {3, 4})), HasSubstr("null"));
  EXPECT_THAT(s.update(stream, "b", TensorRef(x.data(), Shape{})).error().message(),
              HasSubstr("expected shape [..., channels]"));
  EXPECT_EQ(s.find("a")->count(), 3);
  EXPECT_EQ(s.find("b"), nullptr);
  Statistics other;
  ASSERT_TRUE(other.update(stream, "a", TensorRef(x, {4, 3})));
  EXPECT_THAT(s.merge(other).error().message(),
              HasSubstr("layer \"a\": expected 4 channels, got 3"));
  EXPECT_THAT(LayerStatistics::create(-1).error().message(), HasSubstr("channels"));
  EXPECT_THAT(LayerStatistics::create(1, {.sample_rows = -1}).error().message(),
              HasSubstr("sample_rows"));
  EXPECT_THAT(LayerStatistics::create(1, {.histogram_bits = 8}).error().message(),
              HasSubstr("histogram_bits"));
}

}  // namespace
}  // namespace octavo
