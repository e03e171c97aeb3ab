// What verify measures, against plain loops, and what it finds out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/checkpoint.hpp"
#include "offline/testing_checkpoint.hpp"
#include "testing/threads.hpp"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::made_values;
using testing::make_statistics;
using testing::TemporaryDirectory;

void quantize_to(const Checkpoint& in, const QuantizeOptions& options,
                 const std::filesystem::path& out) {
  const auto plan = resolve(in, options);
  ASSERT_TRUE(plan) << plan.error().message();
  const auto report = quantize(Stream::cpu(), *plan, out);
  ASSERT_TRUE(report) << report.error().message();
}

TEST(Verify, MeasuresAsPlainLoopsDo) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors", {{"a.weight", {6, 16}}, {"n", {4}}});
  const auto in = Checkpoint::open(dir / "in");
  ASSERT_TRUE(in);
  const Statistics stats = make_statistics(*in);
  quantize_to(*in, {}, dir / "out");
  const auto out = Checkpoint::open(dir / "out");
  ASSERT_TRUE(out);
  const auto report = verify(Stream::cpu(), *in, *out, &stats);
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->layers.size(), 1U);
  EXPECT_TRUE(report->unexpected.empty());

  const std::vector<float> w = made_values({"a.weight", {6, 16}});
  const auto q_entry = out->tensors().find("a.weight");
  const auto s_entry = out->tensors().find("a.weight_scale");
  std::vector<std::int8_t> q(96);
  std::vector<float> s(6);
  std::memcpy(q.data(), q_entry.file->bytes(*q_entry.tensor).data(), 96);
  std::memcpy(s.data(), s_entry.file->bytes(*s_entry.tensor).data(), 24);
  double signal = 0, noise = 0, product = 0, energy = 0, most = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double x = double{w[i]};
    const double y = double{s[i / 16] * static_cast<float>(q[i])};
    signal += x * x;
    energy += y * y;
    product += x * y;
    noise += (x - y) * (x - y);
    most = std::max(most, std::fabs(x - y));
  }
  const std::vector<float> rows = stats.find("a")->sample();
  double out_signal = 0, out_noise = 0;
  for (std::size_t r = 0; r < 8; ++r) {
    float big = 0;
    for (std::size_t k = 0; k < 16; ++k) big = std::max(big, std::fabs(rows[r * 16 + k]));
    const float sa = big / 127.0F;
    for (std::size_t n = 0; n < 6; ++n) {
      double y = 0;
      int sum = 0;
      for (std::size_t k = 0; k < 16; ++k) {
        y += double{rows[r * 16 + k]} * double{w[n * 16 + k]};
        sum += static_cast<int>(std::rint(rows[r * 16 + k] * (1.0F / sa))) * q[n * 16 + k];
      }
      const double d = y - double{static_cast<float>(sum) * (sa * s[n])};
      out_signal += y * y;
      out_noise += d * d;
    }
  }
  const LayerError& e = report->layers[0];
  EXPECT_EQ(e.name, "a");
  EXPECT_EQ(e.weight_error, std::sqrt(noise / signal));
  EXPECT_EQ(e.sqnr_db, 10 * std::log10(signal / noise));
  EXPECT_EQ(e.cosine, product / std::sqrt(signal * energy));
  EXPECT_EQ(e.max_abs, most);
  EXPECT_EQ(e.clip_rate, 0.0);
  EXPECT_EQ(e.rows, 8);
  ASSERT_TRUE(e.output_error);
  EXPECT_EQ(*e.output_error, std::sqrt(out_noise / out_signal));
  EXPECT_EQ(e.error(), *e.output_error);
}

// Every architecture and scheme: errors are small, and smoothed tensors are as expected.
TEST(Verify, AcceptsWhatQuantizeMakes) {
  [[maybe_unused]] const testing::ManyThreads many;
  const TemporaryDirectory dir;
  testing::make_llama(dir / "llama");
  testing::make_gpt2(dir / "gpt2");
  testing::make_opt(dir / "opt", StoredType::F64);
  int made = 0;
  for (const char* model : {"llama", "gpt2", "opt"})
    for (const Scheme scheme : {Scheme::w8a8_dynamic, Scheme::w8a8_static, Scheme::w4a16_group}) {
      const auto in = Checkpoint::open(dir / model);
      ASSERT_TRUE(in);
      const Statistics stats = make_statistics(*in);
      const auto path = dir / ("out" + std::to_string(made++));
      quantize_to(*in, {.scheme = scheme, .group_size = 4, .statistics = &stats, .smooth = true},
                  path);
      const auto out = Checkpoint::open(path);
      ASSERT_TRUE(out) << out.error().message();
      std::vector<double> first;
      for (const int threads : {1, 16}) {
        const auto report = verify(Stream::cpu({.threads = threads}), *in, *out, &stats);
        ASSERT_TRUE(report) << report.error().message();
        EXPECT_THAT(report->unexpected, ElementsAre()) << model << " " << name(scheme);
        EXPECT_EQ(report->layers.size(),
                  in->layers().size() -
                      (scheme == Scheme::w4a16_group && in->layers().size() == 6 ? 1 : 0));
        std::vector<double> errors;
        for (const LayerError& e : report->layers) {
          EXPECT_EQ(e.scheme, scheme);
          EXPECT_LT(e.error(), scheme == Scheme::w4a16_group ? 0.12 : 0.05) << e.name;
          EXPECT_GT(e.error(), 0.0);
          EXPECT_EQ(e.clip_rate, 0.0);
          errors.push_back(e.error());
        }
        if (first.empty()) first = errors;
        EXPECT_EQ(errors, first);
      }
    }
}

// A layer of a pair that stays float is smoothed all the same: Falcon's norm feeds both of these.
TEST(Verify, KnowsWhatSmoothingDoesToFloatLayers) {
  const TemporaryDirectory dir;
  const std::string p = "transformer.h.0.";
  testing::make_safetensors(dir / "in" / "m.safetensors",
                            {{p + "input_layernorm.weight", {16}, StoredType::BF16},
                             {p + "input_layernorm.bias", {16}, StoredType::BF16},
                             {p + "self_attention.query_key_value.weight", {24, 16}},
                             {p + "mlp.dense_h_to_4h.weight", {64, 16}, StoredType::F16},
                             {p + "mlp.dense_4h_to_h.weight", {16, 64}}});
  testing::make_file(dir / "in" / "config.json", R"({"model_type":"falcon"})");
  const auto in = Checkpoint::open(dir / "in");
  ASSERT_TRUE(in);
  const Statistics stats = make_statistics(*in);
  quantize_to(*in, {.ignore = {"*.dense_h_to_4h"}, .statistics = &stats, .smooth = true},
              dir / "out");
  const auto out = Checkpoint::open(dir / "out");
  ASSERT_TRUE(out);
  const auto float_layer = out->tensors().find(p + "mlp.dense_h_to_4h.weight");
  EXPECT_EQ(float_layer.tensor->type, StoredType::F16);
  const auto report = verify(Stream::cpu(), *in, *out, &stats);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_THAT(report->unexpected, ElementsAre());
  EXPECT_EQ(report->layers.size(), 2U);
  // Without the scales that were used, the changed tensors stand out.
  std::filesystem::remove(dir / "out" / smoothing_file_name);
  const auto blind = verify(Stream::cpu(), *in, *out, &stats);
  ASSERT_TRUE(blind) << blind.error().message();
  EXPECT_EQ(blind->unexpected.size(), 3U);
}

TEST(Verify, SeesWhatWasChanged) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in", StoredType::F32);
  const auto in = Checkpoint::open(dir / "in");
  ASSERT_TRUE(in);
  quantize_to(*in, {}, dir / "out");
  // A byte of the embedding, which is the last float tensor but the norms.
  const auto shard = dir / "out" / "model-00001-of-00002.safetensors";
  std::string bytes = testing::read_file(shard);
  const auto file = SafetensorsFile::open(shard);
  const StoredTensor& t = *file->find("model.embed_tokens.weight");
  const std::size_t data = bytes.size() - file->tensors().back().end;
  bytes[data + t.begin] = static_cast<char>(bytes[data + t.begin] ^ 1);
  // And the scales of a layer, eight times smaller: its weights were cut off.
  const StoredTensor& s = *file->find("model.layers.0.self_attn.q_proj.weight_scale");
  for (std::uint64_t at = s.begin; at < s.end; at += 4) {
    float scale = 0;
    std::memcpy(&scale, &bytes[data + at], 4);
    scale /= 8;
    std::memcpy(&bytes[data + at], &scale, 4);
  }
  testing::make_file(shard, bytes);
  const auto out = Checkpoint::open(dir / "out");
  ASSERT_TRUE(out);
  const auto report = verify(Stream::cpu(), *in, *out);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_THAT(report->unexpected, ElementsAre("model.embed_tokens.weight"));
  const auto found = std::find_if(report->layers.begin(), report->layers.end(), [](const auto& e) {
    return e.name == "model.layers.0.self_attn.q_proj";
  });
  ASSERT_NE(found, report->layers.end());
  EXPECT_GT(found->weight_error, 0.5);
  EXPECT_GT(found->clip_rate, 0.5);
  EXPECT_FALSE(found->output_error);
}

// The same bytes, which are no longer the same tensor.
TEST(Verify, SeesOtherShapesAndTypes) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors", {{"a.weight", {6, 16}}});
  testing::make_safetensors(dir / "in" / "n.safetensors", {{"n", {2, 3}}});
  const auto in = Checkpoint::open(dir / "in");
  quantize_to(*in, {}, dir / "out");
  const std::string data = testing::bytes_as(StoredType::F32, made_values({"n", {2, 3}}));
  const auto unexpected = [&](const std::string& entry) {
    testing::make_file(
        dir / "out" / "n.safetensors",
        testing::assemble(R"({"n":{)" + entry + R"(,"data_offsets":[0,24]}})", data));
    const auto out = Checkpoint::open(dir / "out");
    return verify(Stream::cpu(), *in, *out)->unexpected;
  };
  EXPECT_THAT(unexpected(R"("dtype":"F32","shape":[2,3])"), ElementsAre());
  EXPECT_THAT(unexpected(R"("dtype":"F32","shape":[3,2])"), ElementsAre("n"));
  EXPECT_THAT(unexpected(R"("dtype":"I32","shape":[2,3])"), ElementsAre("n"));
}

// A weight is measured in pieces; the largest error is that of all of them, here of the first.
TEST(Verify, TheLargestErrorIsOfAllPieces) {
  const TemporaryDirectory dir;
  constexpr std::size_t n = 600, k = 512;
  std::vector<float> w = made_values({"a.weight", {n, k}});
  for (std::size_t j = 0; j < k; ++j) w[j] *= 64;
  const std::string header =
      R"({"a.weight":{"dtype":"F32","shape":[600,512],"data_offsets":[0,1228800]}})";
  testing::make_file(dir / "in" / "m.safetensors",
                     testing::assemble(header, testing::bytes_as(StoredType::F32, w)));
  const auto in = Checkpoint::open(dir / "in");
  ASSERT_TRUE(in) << in.error().message();
  quantize_to(*in, {}, dir / "out");
  const auto out = Checkpoint::open(dir / "out");
  const auto q = out->tensors().find("a.weight"), s = out->tensors().find("a.weight_scale");
  double most = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    float scale = 0;
    std::memcpy(&scale, &s.file->bytes(*s.tensor)[i / k * sizeof(float)], sizeof(float));
    const auto value = static_cast<std::int8_t>(q.file->bytes(*q.tensor)[i]);
    most = std::max(most, std::fabs(double{w[i]} - double{scale * static_cast<float>(value)}));
  }
  const auto report = verify(Stream::cpu(), *in, *out);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->layers[0].max_abs, most);
}

// Rows of another model measure nothing.
TEST(Verify, RowsOfAnotherWidthAreNotUsed) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors", {{"a.weight", {6, 16}}});
  const auto in = Checkpoint::open(dir / "in");
  const std::vector<float> rows(32, 1.0F);
  for (const std::int64_t channels : {8, 32}) {
    Statistics stats({.sample_rows = 4});
    ASSERT_TRUE(stats.update(Stream::cpu(), "a", TensorRef(rows, {32 / channels, channels})));
    const auto path = dir / std::to_string(channels);
    EXPECT_FALSE(resolve(*in, {.statistics = &stats})->measured);
    quantize_to(*in, {.statistics = &stats}, path);
    const auto report = verify(Stream::cpu(), *in, *Checkpoint::open(path), &stats);
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_EQ(report->layers[0].rows, 0);
    EXPECT_FALSE(report->layers[0].output_error);
  }
}

TEST(Verify, Refusals) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  const auto in = Checkpoint::open(dir / "in");
  ASSERT_TRUE(in);
  EXPECT_THAT(verify(Stream::cpu(), *in, *in).error().message(),
              HasSubstr("config.json: expected a quantized checkpoint"));
  testing::make_opt(dir / "other");
  const auto other = Checkpoint::open(dir / "other");
  quantize_to(*other, {}, dir / "out");
  const auto out = Checkpoint::open(dir / "out");
  EXPECT_THAT(verify(Stream::cpu(), *in, *out).error().message(),
              HasSubstr("expected this tensor of"));
}

// What a layer cannot be measured with is refused by the name of the tensor.
TEST(Verify, RefusesZeroPointsAndScalesThatAreNotFinite) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors", {{"a.up.weight", {6, 16}}});
  const auto in = Checkpoint::open(dir / "in");
  ASSERT_TRUE(in);
  quantize_to(*in, {}, dir / "out");
  const auto refusal = [&] {
    const auto report = verify(Stream::cpu(), *in, *Checkpoint::open(dir / "out"));
    return report ? std::string("accepted") : report.error().message();
  };
  EXPECT_EQ(refusal(), "accepted");
  for (const char* end : {"weight_zero_point", "input_zero_point"}) {
    const std::string entry = R"(":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})";
    testing::make_file(dir / "out" / "z.safetensors",
                       testing::assemble(std::string("{\"a.up.") + end + entry, "a"));
    EXPECT_THAT(refusal(), HasSubstr(std::string("z.safetensors: tensor \"a.up.") + end +
                                     "\": expected no zero point"));
  }
  std::filesystem::remove(dir / "out" / "z.safetensors");
  const auto path = dir / "out" / "m.safetensors";
  std::string bytes = testing::read_file(path);
  const auto file = SafetensorsFile::open(path);
  const std::size_t data = bytes.size() - file->tensors().back().end;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&bytes[data + file->find("a.up.weight_scale")->begin + 8], &nan, sizeof(nan));
  testing::make_file(path, bytes);
  EXPECT_THAT(refusal(), HasSubstr("m.safetensors: tensor \"a.up.weight_scale\": expected finite "
                                   "scales, got another at index 2"));
}

// Weights that are not finite are counted, and do not hide the error of the others.
TEST(Verify, CountsWeightsThatAreNotFinite) {
  const TemporaryDirectory dir;
  std::vector<float> w = made_values({"a.weight", {6, 16}});
  w[3] = std::numeric_limits<float>::quiet_NaN();
  w[20] = -std::numeric_limits<float>::infinity();
  const std::string_view bytes(reinterpret_cast<const char*>(w.data()), w.size() * sizeof(float));
  testing::make_file(
      dir / "in" / "m.safetensors",
      testing::assemble(R"({"a.weight":{"dtype":"F32","shape":[6,16],"data_offsets":[0,384]}})",
                        bytes));
  const auto in = Checkpoint::open(dir / "in");
  ASSERT_TRUE(in) << in.error().message();
  quantize_to(*in, {}, dir / "out");
  const auto out = Checkpoint::open(dir / "out");
  const auto report = verify(Stream::cpu(), *in, *out);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->layers[0].non_finite, 2);
  EXPECT_GT(report->layers[0].sqnr_db, 30);
  EXPECT_LT(report->layers[0].sqnr_db, 70);
}

TEST(Verify, RefusesInputScalesThatAreNoneAndSeesWhatWasAdded) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors", {{"a.up.weight", {6, 16}}});
  const auto in = Checkpoint::open(dir / "in");
  const Statistics stats = make_statistics(*in);
  quantize_to(*in, {.scheme = Scheme::w8a8_static, .statistics = &stats}, dir / "out");
  testing::make_safetensors(dir / "out" / "n.safetensors", {{"a.up.bias", {6}}});
  const auto report = verify(Stream::cpu(), *in, *Checkpoint::open(dir / "out"));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_THAT(report->added, ElementsAre("a.up.bias"));
  std::filesystem::remove(dir / "out" / "n.safetensors");
  const auto path = dir / "out" / "m.safetensors";
  std::string bytes = testing::read_file(path);
  const auto file = SafetensorsFile::open(path);
  const std::size_t data = bytes.size() - file->tensors().back().end;
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), 0.0F, -1.0F}) {
    std::memcpy(&bytes[data + file->find("a.up.input_scale")->begin], &wrong, sizeof(wrong));
    testing::make_file(path, bytes);
    const auto refused = verify(Stream::cpu(), *in, *Checkpoint::open(dir / "out"));
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message(),
                HasSubstr("tensor \"a.up.input_scale\": expected a finite"));
  }
}

}  // namespace
}  // namespace octavo
