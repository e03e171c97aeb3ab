// Quantized layers that someone else has stored: in every form that is read, and in wrong ones.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "octavo/checkpoint.hpp"
#include "offline/testing_checkpoint.hpp"

namespace octavo {
namespace {

using ::testing::HasSubstr;
using testing::made_values;
using testing::TemporaryDirectory;

struct Tensor {
  std::string type, shape, bytes;
};

// A layer of 6 outputs and 16 inputs, and its quantized form, tensor by tensor.
class VerifyStored : public ::testing::Test {
 protected:
  void SetUp() override {
    write_original(made_values({"a.up.weight", {6, 16}}));
    quantized(Scheme::w8a8_dynamic);
  }
  void write_original(const std::vector<float>& w) {
    testing::make_file(
        dir / "in" / "m.safetensors",
        testing::assemble(
            R"({"a.up.weight":{"dtype":"F32","shape":[6,16],"data_offsets":[0,384]}})",
            testing::bytes_as(StoredType::F32, w)));
    in.emplace(*Checkpoint::open(dir / "in"));
  }
  // Fills `tensors` with what quantize makes.
  void quantized(Scheme scheme) {
    std::filesystem::remove_all(dir / "out");
    const Statistics stats = testing::make_statistics(*in);
    const auto plan = resolve(*in, {.scheme = scheme, .group_size = 8, .statistics = &stats});
    ASSERT_TRUE(plan) << plan.error().message();
    ASSERT_TRUE(quantize(Stream::cpu(), *plan, dir / "out"));
    const auto file = SafetensorsFile::open(dir / "out" / "m.safetensors");
    tensors.clear();
    for (const StoredTensor& t : file->tensors()) {
      const auto bytes = file->bytes(t);
      tensors[t.name.substr(t.name.rfind('.') + 1)] = {
          std::string(name(t.type)), fmt::format("{}", fmt::join(t.shape, ",")),
          std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
    }
  }
  void write(const std::map<std::string, Tensor>& all) const {
    std::string header = "{", data;
    for (const auto& [name, t] : all) {
      header += fmt::format(R"({}"a.up.{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                            header.size() > 1 ? "," : "", name, t.type, t.shape, data.size(),
                            data.size() + t.bytes.size());
      data += t.bytes;
    }
    testing::make_file(dir / "out" / "m.safetensors", testing::assemble(header + "}", data));
  }
  [[nodiscard]] Result<VerifyReport> verified() const {
    write(tensors);
    const auto out = Checkpoint::open(dir / "out");
    if (!out) return out.error();
    return verify(Stream::cpu(), *in, *out);
  }
  // What is said if one tensor is another; it is put back.
  std::string with(const std::string& tensor, const Tensor& other) {
    const Tensor before = std::exchange(tensors[tensor], other);
    const auto report = verified();
    tensors[tensor] = before;
    return report ? "accepted" : report.error().message();
  }
  TemporaryDirectory dir;
  std::optional<Checkpoint> in;
  std::map<std::string, Tensor> tensors;
};

TEST_F(VerifyStored, ShapesThatDoNotFit) {
  ASSERT_TRUE(verified());
  const std::string q = tensors["weight"].bytes, s = tensors["weight_scale"].bytes;
  EXPECT_THAT(with("weight", {"I8", "16,6", q}), HasSubstr("expected I8 [6, 16], got I8 [16, 6]"));
  EXPECT_THAT(with("weight", {"I8", "5,16", q.substr(16)}), HasSubstr("got I8 [5, 16]"));
  EXPECT_THAT(with("weight_scale", {"F32", "5,1", s.substr(4)}),
              HasSubstr("expected [6, 1], a scale for each channel, got F32 [5, 1]"));
  EXPECT_THAT(with("weight_scale", {"I32", "6,1", s}), HasSubstr("expected a float type"));
  quantized(Scheme::w8a8_static);
  ASSERT_TRUE(verified());
  const std::string one = tensors["input_scale"].bytes;
  EXPECT_EQ(with("input_scale", {"F32", "", one}), "accepted");
  EXPECT_THAT(with("input_scale", {"F32", "2", one + one}), HasSubstr("expected one float"));
  EXPECT_THAT(with("input_scale", {"F32", "0", ""}), HasSubstr("expected one float"));
  EXPECT_THAT(with("input_scale", {"I32", "1", one}), HasSubstr("expected one float"));
  quantized(Scheme::w4a16_group);
  ASSERT_TRUE(verified());
  const std::string packed = tensors["weight_packed"].bytes;
  EXPECT_THAT(with("weight_packed", {"I32", "6,1", packed.substr(24)}),
              HasSubstr("expected I32 [6, 2], got I32 [6, 1]"));
  EXPECT_THAT(with("weight_packed", {"F32", "6,2", packed}), HasSubstr("expected I32 [6, 2]"));
  EXPECT_THAT(with("weight_shape", {"I64", "1", tensors["weight_shape"].bytes.substr(8)}),
              HasSubstr("expected I64 [2], got I64 [1]"));
}

// Scales of other float types are as good; here all of them are powers of two.
TEST_F(VerifyStored, ScalesOfAnyFloatType) {
  const std::vector<float> scales{0.5F, 0.25F, 0.125F, 0.0625F, 2, 4};
  std::vector<double> errors;
  for (const StoredType type :
       {StoredType::F32, StoredType::F64, StoredType::F16, StoredType::BF16}) {
    tensors["weight_scale"] = {std::string(name(type)), "6,1", testing::bytes_as(type, scales)};
    const auto report = verified();
    ASSERT_TRUE(report) << report.error().message();
    errors.push_back(report->layers[0].weight_error);
    EXPECT_EQ(errors.back(), errors.front()) << name(type);
  }
}

// One for the whole weight, which stands for all of its rows.
TEST_F(VerifyStored, OneScaleForAWeight) {
  const std::string config = testing::read_file(dir / "out" / "config.json");
  const float one = 0.004F;
  const auto measured = [&](std::size_t count, const char* shape, const char* strategy) {
    tensors["weight_scale"] = {"F32", shape,
                               testing::bytes_as(StoredType::F32, std::vector<float>(count, one))};
    std::string other = config;
    other.replace(other.find("\"channel\""), 9, strategy);
    testing::make_file(dir / "out" / "config.json", other);
    const auto report = verified();
    EXPECT_TRUE(report) << (report ? "" : report.error().message());
    return report ? report->layers[0].weight_error : -1.0;
  };
  const double rows = measured(6, "6,1", "\"channel\"");
  EXPECT_GT(rows, 0.0);
  EXPECT_EQ(measured(1, "1", "\"tensor\""), rows);
}

// Zeros are exact; something in their place is infinitely far off.
TEST_F(VerifyStored, AWeightOfZeros) {
  write_original(std::vector<float>(96));
  quantized(Scheme::w8a8_dynamic);
  auto report = verified();
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->layers[0].weight_error, 0.0);
  EXPECT_EQ(report->layers[0].sqnr_db, std::numeric_limits<double>::infinity());
  EXPECT_EQ(report->layers[0].cosine, 1.0);
  tensors["weight"].bytes[20] = 3;
  report = verified();
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->layers[0].weight_error, std::numeric_limits<double>::infinity());
  EXPECT_EQ(report->layers[0].cosine, 0.0);
}

// Where 8 bits begin and end: -128 is stored by others, and is not cut off.
TEST_F(VerifyStored, WhatIsCutOff) {
  std::vector<float> w(96, 0.0F);
  w[0] = -128;
  w[1] = 127;
  w[16] = -129;
  w[17] = 128;
  write_original(w);
  std::string q(96, '\0');
  for (const std::size_t i : {0U, 16U}) q[i] = static_cast<char>(-128);
  for (const std::size_t i : {1U, 17U}) q[i] = 127;
  tensors["weight"].bytes = q;
  tensors["weight_scale"].bytes = testing::bytes_as(StoredType::F32, std::vector<float>(6, 1.0F));
  const auto report = verified();
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->layers[0].clip_rate, 2.0 / 96);
  EXPECT_EQ(report->layers[0].max_abs, 1.0);
}

// The part of a name that a loader's modules have before it ends with a dot.
TEST_F(VerifyStored, NamesInConfigAreWhole) {
  std::string config = testing::read_file(dir / "out" / "config.json");
  const auto verdict = [&](const std::string& ignored) {
    std::string other = config;
    other.replace(other.find("\"lm_head\""), 9, "\"" + ignored + "\"");
    testing::make_file(dir / "out" / "config.json", other);
    const auto report = verified();
    return report ? "accepted" : report.error().message();
  };
  EXPECT_EQ(verdict("ba.up"), "accepted");
  EXPECT_THAT(verdict("b.a.up"), HasSubstr("expected a float weight"));
  EXPECT_THAT(verdict("a.up"), HasSubstr("expected a float weight"));
}

// As many scales as the layer has inputs, or they are of another model.
TEST(VerifySmoothing, ScalesOfAnotherNumber) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  const auto in = Checkpoint::open(dir / "in");
  const Statistics stats = testing::make_statistics(*in);
  const auto plan = resolve(*in, {.statistics = &stats, .smooth = true});
  ASSERT_TRUE(quantize(Stream::cpu(), *plan, dir / "out"));
  const std::string norm = "model.layers.0.post_attention_layernorm.smoothing_scale";
  const auto said = [&](const testing::MadeTensor& tensor) {
    testing::make_safetensors(dir / "out" / smoothing_file_name, {tensor});
    const auto report = verify(Stream::cpu(), *in, *Checkpoint::open(dir / "out"), &stats);
    return report ? "accepted" : report.error().message();
  };
  EXPECT_EQ(said({norm, {32}}), "accepted");
  for (const std::uint64_t count : {31, 33})
    EXPECT_THAT(said({norm, {count}}),
                HasSubstr(fmt::format("proj: expected 32 smoothing scales, got {}", count)));
  for (const testing::MadeTensor& wrong :
       {testing::MadeTensor{norm, {32}, StoredType::F16}, testing::MadeTensor{norm, {4, 8}},
        testing::MadeTensor{"model.norm.scale", {32}}})
    EXPECT_THAT(said(wrong), HasSubstr("expected NORM.smoothing_scale, F32 [channels]"));
}

TEST(VerifySmoothing, CountsWhatIsFloat) {
  const TemporaryDirectory dir;
  testing::make_safetensors(
      dir / "in" / "m.safetensors",
      {{"a.weight", {6, 16}}, {"b.weight", {2, 16}}, {"lm_head.weight", {8, 16}}});
  const auto in = Checkpoint::open(dir / "in");
  const auto plan = resolve(*in, {.ignore = {"b"}});
  ASSERT_TRUE(quantize(Stream::cpu(), *plan, dir / "out"));
  const auto report = verify(Stream::cpu(), *in, *Checkpoint::open(dir / "out"));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->float_layers, 2U);
  EXPECT_EQ(report->float_share, 1.0 - 96.0 / 256.0);
}

}  // namespace
}  // namespace octavo
