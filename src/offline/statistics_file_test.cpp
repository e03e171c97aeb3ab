// Statistics as a file: what is written is read, and what is wrong is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "octavo/safetensors.hpp"
#include "octavo/statistics.hpp"
#include "offline/testing_files.hpp"

namespace octavo {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryDirectory;

TEST(StatisticsFile, RefusesWhatIsIncompleteOrWrong) {
  const TemporaryDirectory dir;
  struct Tensor {
    StoredTensorSpec spec;
    std::string bytes;
  };
  const auto floats = [](std::vector<float> v) {
    return std::string(reinterpret_cast<const char*>(v.data()), v.size() * 4);
  };
  const std::string three(8, '\0');
  const auto base = [&] {
    std::map<std::string, Tensor> t;
    t["p.input_absmax"] = {{"", StoredType::F32, {2}}, floats({1, 2})};
    t["p.input_min"] = {{"", StoredType::F32, {2}}, floats({-1, -2})};
    t["p.input_max"] = {{"", StoredType::F32, {2}}, floats({1, 1})};
    t["p.count"] = {{"", StoredType::I64, {1}}, three};
    return t;
  };
  const auto message = [&](const std::map<std::string, Tensor>& tensors,
                           const StoredMetadata& metadata) {
    std::vector<StoredTensorSpec> specs;
    specs.reserve(tensors.size());
    for (const auto& [name, t] : tensors) specs.push_back({name, t.spec.type, t.spec.shape});
    auto writer = SafetensorsWriter::create(dir / "s", specs, metadata);
    for (const auto& [name, t] : tensors)
      EXPECT_TRUE(writer->write(name, std::as_bytes(std::span(t.bytes.data(), t.bytes.size()))));
    EXPECT_TRUE(writer->finish());
    const auto read = Statistics::read(dir / "s");
    return read ? "accepted" : read.error().message();
  };
  const StoredMetadata good{{"octavo.stats", "1"}};
  auto t = base();
  EXPECT_EQ(message(t, good), "accepted");
  EXPECT_THAT(message(t, {}), HasSubstr("expected a statistics file"));
  EXPECT_THAT(message(t, {{"octavo.stats", "2"}}), HasSubstr("got \"2\""));
  t.erase("p.input_min");
  EXPECT_THAT(message(t, good),
              HasSubstr("tensor \"p.input_min\": expected this tensor, got none"));
  t = base();
  t["p.input_absmax"].bytes = floats({1, NAN});
  EXPECT_THAT(message(t, good), HasSubstr("in channel 1"));
  t = base();
  t["p.input_absmax"].bytes = floats({-1, 1});
  EXPECT_THAT(message(t, good), HasSubstr("in channel 0"));
  t = base();
  t["p.input_max"] = {{"", StoredType::F32, {1}}, floats({1})};
  EXPECT_THAT(message(t, good), HasSubstr("expected 2 channels, got 1"));
  t = base();
  t["p.count"] = {{"", StoredType::I32, {2}}, three};
  EXPECT_THAT(message(t, good), HasSubstr("expected I64 with 1 dimensions, got I32 [2]"));
  t["p.count"] = {{"", StoredType::I64, {2}}, std::string(16, '\0')};
  EXPECT_THAT(message(t, good), HasSubstr("expected one number of 0 or more"));
  t["p.count"] = {{"", StoredType::I64, {1}}, std::string(8, '\xff')};
  EXPECT_THAT(message(t, good), HasSubstr("expected one number of 0 or more"));
  t = base();
  for (const std::uint64_t bins : {1, 256, 768, 131072}) {
    t["p.input_hist"] = {{"", StoredType::I64, {bins}}, std::string(bins * 8, '\0')};
    EXPECT_THAT(message(t, good), HasSubstr("2^9 to 2^16 bins")) << bins;
  }
  for (const std::uint64_t bins : {512, 65536}) {
    t["p.input_hist"] = {{"", StoredType::I64, {bins}}, std::string(bins * 8, '\0')};
    EXPECT_EQ(message(t, good), "accepted") << bins;
  }
  t["p.input_hist"] = {{"", StoredType::I64, {512}},
                       std::string(std::size_t{511} * 8, '\0') + std::string(8, '\xff')};
  EXPECT_THAT(message(t, good), HasSubstr("expected counts of 0 or more"));
  t = base();
  t["p.input_sample"] = {{"", StoredType::F32, {1, 3}}, floats({1, 2, 3})};
  EXPECT_THAT(message(t, good), HasSubstr("rows of 2 channels"));
  t["p.input_sample"] = {{"", StoredType::F32, {1, 2}}, floats({1, INFINITY})};
  EXPECT_THAT(message(t, good), HasSubstr("expected finite values"));
  t["p.input_sample"] = {{"", StoredType::F32, {2, 2}}, floats({1, 2, 3, 4})};
  EXPECT_EQ(message(t, good), "accepted");
  EXPECT_THAT(message(t, {{"octavo.stats", "1"}, {"octavo.stats.sample_rows", "1"}}),
              HasSubstr("at least 2"));
  for (const char* wrong : {"2x", "", "-2", "1073741825"})
    EXPECT_THAT(message(t, {{"octavo.stats", "1"}, {"octavo.stats.sample_rows", wrong}}),
                HasSubstr("to be a number of at least 2"))
        << wrong;
  t = base();
  t["p.weight"] = {{"", StoredType::U8, {0}}, ""};
  EXPECT_THAT(message(t, good),
              HasSubstr("tensor \"p.weight\": expected a tensor of a statistics"));
}

TEST(StatisticsFile, HoldsAllThatWasSeen) {
  const TemporaryDirectory dir;
  const std::vector<float> rows{1, -2, 0, 3, 5, -7, 2, -1};
  Statistics s({.sample_rows = 3, .histogram_bits = 2});
  ASSERT_TRUE(s.update(Stream::cpu(), "a", TensorRef(rows, {4, 2})));
  ASSERT_TRUE(s.update(Stream::cpu(), "b", TensorRef(rows, {2, 4})));
  ASSERT_TRUE(s.write(dir / "s"));
  const auto read = Statistics::read(dir / "s");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->options().sample_rows, 3);
  EXPECT_EQ(read->options().histogram_bits, 2);
  EXPECT_EQ(read->names(), (std::vector<std::string>{"a", "b"}));
  for (const char* name : {"a", "b"}) {
    const LayerStatistics& before = *s.find(name);
    const LayerStatistics& after = *read->find(name);
    EXPECT_EQ(after.count(), before.count());
    EXPECT_EQ(after.absmax(), before.absmax());
    EXPECT_EQ(after.min(), before.min());
    EXPECT_EQ(after.max(), before.max());
    EXPECT_EQ(after.histogram(), before.histogram());
    EXPECT_EQ(after.sample(), before.sample());
  }
}

// One file may have been put together from several; its layers get the coarsest bins of any.
TEST(StatisticsFile, LayersOfOneFileHaveTheSameBins) {
  const TemporaryDirectory dir;
  std::vector<StoredTensorSpec> specs;
  for (const char* layer : {"a", "b"}) {
    for (const char* end : {".input_absmax", ".input_min", ".input_max"})
      specs.push_back({std::string(layer) + end, StoredType::F32, {1}});
    specs.push_back({std::string(layer) + ".count", StoredType::I64, {1}});
    specs.push_back({std::string(layer) + ".input_hist",
                     StoredType::I64,
                     {layer[0] == 'a' ? std::uint64_t{512} : std::uint64_t{2048}}});
  }
  auto writer = SafetensorsWriter::create(dir / "s", specs, {{"octavo.stats", "1"}});
  ASSERT_TRUE(writer);
  const std::vector<std::int64_t> ones(2048, 1);
  for (const StoredTensorSpec& spec : specs) {
    const std::uint64_t bytes = spec.shape[0] * (spec.type == StoredType::F32 ? 4 : 8);
    ASSERT_TRUE(writer->write(spec.name, std::as_bytes(std::span(ones)).first(bytes)));
  }
  ASSERT_TRUE(writer->finish());
  const auto read = Statistics::read(dir / "s");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->find("a")->histogram(), std::vector<std::int64_t>(512, 1));
  EXPECT_EQ(read->find("b")->histogram(), std::vector<std::int64_t>(512, 4));
}

// Counts come from a file, and may be any: their sum is no less for that.
TEST(StatisticsFile, CountsStayAtTheLargestThereIs) {
  const TemporaryDirectory dir;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto with_bins = [&](std::uint64_t bins) {
    const std::vector<std::int64_t> counts(bins, most);
    auto writer = SafetensorsWriter::create(dir / "s",
                                            {{"p.input_absmax", StoredType::F32, {0}},
                                             {"p.input_min", StoredType::F32, {0}},
                                             {"p.input_max", StoredType::F32, {0}},
                                             {"p.count", StoredType::I64, {1}},
                                             {"p.input_hist", StoredType::I64, {bins}}},
                                            {{"octavo.stats", "1"}});
    EXPECT_TRUE(writer->write("p.count", std::as_bytes(std::span(counts).first(1))));
    EXPECT_TRUE(writer->write("p.input_hist", std::as_bytes(std::span(counts))));
    EXPECT_TRUE(writer->finish());
    return *Statistics::read(dir / "s");
  };
  Statistics merged = with_bins(1024);
  ASSERT_TRUE(merged.merge(with_bins(512)));
  EXPECT_EQ(merged.find("p")->count(), most);
  EXPECT_EQ(merged.find("p")->histogram(), std::vector<std::int64_t>(512, most));
  ASSERT_TRUE(merged.write(dir / "t"));
  EXPECT_TRUE(Statistics::read(dir / "t"));
}

}  // namespace
}  // namespace octavo
