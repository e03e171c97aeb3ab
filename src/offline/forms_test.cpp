// Every form that a layer can have, as it is stored: against plain loops, and as verify reads it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "numerics/stored_scale.hpp"
#include "octavo/checkpoint.hpp"
#include "offline/packed_rows.hpp"
#include "offline/testing_quantized.hpp"
#include "testing/threads.hpp"

namespace octavo {
namespace {

using Json = nlohmann::json;
using testing::open;
using testing::rounded;
using testing::run;
using testing::shape_of;
using testing::TemporaryDirectory;
using testing::values_of;
using Sizes = std::vector<std::uint64_t>;

float as_stored(StoredType type, float scale) {
  if (type == StoredType::BF16) return to_float(to_bf16(scale));
  return type == StoredType::F16 ? to_float(to_f16(scale)) : scale;
}

// A slice as plain loops quantize it with a scale that is stored in this type.
struct Slice {
  float scale = 1;
  int zero_point = 0;
  std::vector<int> q;
};
Slice quantized(const std::vector<float>& w, int bits, bool asymmetric, StoredType type) {
  Slice out;
  float low = 0, high = 0;
  for (const float x : w) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
  const auto q_min = static_cast<float>(-(1 << (bits - 1))), q_max = -q_min - 1;
  const float range = asymmetric ? (high - low) / (q_max - q_min) : std::max(-low, high) / q_max;
  if (asymmetric)
    out.zero_point = static_cast<int>(std::clamp(std::rint(q_min - low / range), q_min, q_max));
  out.scale = as_stored(type, range);
  for (const float x : w)
    out.q.push_back(static_cast<int>(std::clamp(
        std::rint(x * (1.0F / out.scale)) + static_cast<float>(out.zero_point), q_min, q_max)));
  return out;
}

std::vector<float> scales_of(const Checkpoint& c, const std::string& name) {
  const StoredType type = c.tensors().find(name).tensor->type;
  std::vector<float> out;
  if (type == StoredType::F32) return values_of<float>(c, name);
  if (type == StoredType::F16)
    for (const f16 x : values_of<f16>(c, name)) out.push_back(to_float(x));
  if (type == StoredType::BF16)
    for (const bf16 x : values_of<bf16>(c, name)) out.push_back(to_float(x));
  return out;
}

// All tensors of layer a.up, [n, k] of this type.
void expect_layer(const Checkpoint& out, StoredType type, std::size_t n, std::size_t k,
                  const LayerForm& form) {
  const auto w = rounded({"a.up.weight", {n, k}, type});
  const int bits = weight_bits(form.scheme);
  const std::size_t per_word = bits == 4 ? 8 : 4, words = (k + per_word - 1) / per_word;
  const std::size_t group = form.group_size > 0 ? static_cast<std::size_t>(form.group_size) : k;
  const std::size_t groups = k / group;
  ASSERT_EQ(shape_of(out, "a.up.weight_packed"), (Sizes{n, words}));
  ASSERT_EQ(shape_of(out, "a.up.weight_scale"), (Sizes{n, groups}));
  EXPECT_EQ(out.tensors().find("a.up.weight_scale").tensor->type, type);
  EXPECT_EQ(
      values_of<std::int64_t>(out, "a.up.weight_shape"),
      (std::vector<std::int64_t>{static_cast<std::int64_t>(n), static_cast<std::int64_t>(k)}));
  EXPECT_FALSE(out.tensors().find("a.up.weight"));
  ASSERT_EQ(static_cast<bool>(out.tensors().find("a.up.weight_zero_point")), form.asymmetric);
  std::vector<std::uint32_t> zero_points;
  if (form.asymmetric) {
    ASSERT_EQ(shape_of(out, "a.up.weight_zero_point"), (Sizes{(n + 7) / 8, groups}));
    zero_points = values_of<std::uint32_t>(out, "a.up.weight_zero_point");
  }
  const auto packed = values_of<std::uint32_t>(out, "a.up.weight_packed");
  const auto scales = scales_of(out, "a.up.weight_scale");
  const std::uint32_t mask = bits == 4 ? 15 : 255;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t g = 0; g < groups; ++g) {
      const auto at = w.begin() + static_cast<std::ptrdiff_t>(i * k + g * group);
      const Slice s =
          quantized({at, at + static_cast<std::ptrdiff_t>(group)}, bits, form.asymmetric, type);
      ASSERT_EQ(scales[i * groups + g], s.scale) << i << " " << g;
      if (form.asymmetric) {
        const std::uint32_t word = zero_points[i / 8 * groups + g];
        ASSERT_EQ(static_cast<int>(word >> (i % 8 * 4) & 15U) - 8, s.zero_point) << i << " " << g;
      }
      for (std::size_t j = 0; j < group; ++j) {
        const std::size_t c = g * group + j;
        const std::uint32_t word = packed[i * words + c / per_word];
        const auto stored = word >> (c % per_word * static_cast<std::size_t>(bits)) & mask;
        ASSERT_EQ(static_cast<int>(stored) - (1 << (bits - 1)), s.q[j]) << i << " " << c;
      }
    }
    for (std::size_t c = k; c < words * per_word; ++c)
      ASSERT_EQ(
          packed[i * words + c / per_word] >> (c % per_word * static_cast<std::size_t>(bits)) &
              mask,
          0U)
          << "padding";
  }
  for (std::size_t i = n; form.asymmetric && i < (n + 7) / 8 * 8; ++i)
    for (std::size_t g = 0; g < groups; ++g)
      ASSERT_EQ(zero_points[i / 8 * groups + g] >> (i % 8 * 4) & 15U, 0U) << "padding";
}

QuantizeOptions options_of(const LayerForm& form) {
  return {.scheme = form.scheme, .group_size = form.group_size, .asymmetric = form.asymmetric};
}

// Rows that do not fill their words, and outputs that do not fill those of zero points.
TEST(Forms, EveryTensorIsThatOfPlainLoops) {
  for (const StoredType type : {StoredType::BF16, StoredType::F16, StoredType::F32})
    for (const LayerForm& form :
         {LayerForm{Scheme::w8a16}, LayerForm{Scheme::w4a16_group, 4},
          LayerForm{Scheme::w4a8_group, 12}, LayerForm{Scheme::w4a16_group, 4, true},
          LayerForm{Scheme::w4a8_group, 12, true}, LayerForm{Scheme::w4a16_group, 0},
          LayerForm{Scheme::w4a8_group, 0, true}}) {
      const TemporaryDirectory dir;
      const std::size_t k = form.group_size > 0 ? 60 : 61;
      testing::make_safetensors(dir / "in" / "m.safetensors", {{"a.up.weight", {19, k}, type}});
      run(open(dir / "in"), options_of(form), dir / "out");
      SCOPED_TRACE(to_string(form));
      expect_layer(open(dir / "out"), type, 19, k, form);
    }
}

// Pieces of 262 rows would begin in the middle of a word of zero points.
TEST(Forms, ZeroPointsOfSeveralPieces) {
  const TemporaryDirectory dir;
  constexpr std::size_t n = 603, k = 1000;
  const LayerForm form{Scheme::w4a16_group, 8, true};
  testing::make_safetensors(dir / "in" / "m.safetensors",
                            {{"a.up.weight", {n, k}, StoredType::BF16}});
  run(open(dir / "in"), options_of(form), dir / "out");
  expect_layer(open(dir / "out"), StoredType::BF16, n, k, form);
}

// Stored [in, out], and packed all the same with outputs as rows.
TEST(Forms, PackedConv1D) {
  const TemporaryDirectory dir;
  testing::make_gpt2(dir / "in");
  const Checkpoint in = open(dir / "in");
  run(in, {.scheme = Scheme::w8a16}, dir / "out");
  const Checkpoint out = open(dir / "out");
  const auto stored = rounded({"h.0.mlp.c_fc.weight", {16, 64}});
  const auto bytes = values_of<std::uint8_t>(out, "h.0.mlp.c_fc.weight_packed");
  ASSERT_EQ(shape_of(out, "h.0.mlp.c_fc.weight_packed"), (Sizes{64, 4}));
  for (std::size_t i = 0; i < 64; ++i) {
    std::vector<float> row(16);
    for (std::size_t j = 0; j < 16; ++j) row[j] = stored[j * 64 + i];
    const Slice s = quantized(row, 8, false, StoredType::F32);
    for (std::size_t j = 0; j < 16; ++j) ASSERT_EQ(bytes[i * 16 + j] - 128, s.q[j]);
  }
}

TEST(Forms, ConfigSaysWhatIsStored) {
  const auto group = [](const LayerForm& form) {
    const TemporaryDirectory dir;
    testing::make_safetensors(dir / "in" / "m.safetensors", {{"a.up.weight", {8, 16}}});
    run(open(dir / "in"), options_of(form), dir / "out");
    const Json config =
        Json::parse(testing::read_file(dir / "out" / "config.json"))["quantization_config"];
    EXPECT_EQ(config["format"], "pack-quantized");
    return config["config_groups"]["group_0"];
  };
  const Json token = Json::parse(
      R"({"num_bits":8,"type":"int","symmetric":true,"strategy":"token","dynamic":true})");
  const Json w8a16 = group({Scheme::w8a16});
  EXPECT_EQ(w8a16, Json::parse(R"({"targets":["Linear"],
      "weights":{"num_bits":8,"type":"int","symmetric":true,"strategy":"channel","dynamic":false},
      "input_activations":null,"output_activations":null,"format":"pack-quantized"})"));
  const Json w4a8 = group({Scheme::w4a8_group, 8});
  EXPECT_EQ(w4a8["input_activations"], token);
  EXPECT_EQ(w4a8["format"], "pack-quantized");
  EXPECT_EQ(w4a8["weights"], Json::parse(R"({"num_bits":4,"type":"int","symmetric":true,
      "strategy":"group","dynamic":false,"group_size":8})"));
  const Json asymmetric = group({Scheme::w4a16_group, 0, true});
  EXPECT_EQ(asymmetric["input_activations"], nullptr);
  EXPECT_EQ(asymmetric["weights"], Json::parse(R"({"num_bits":4,"type":"int","symmetric":false,
      "strategy":"channel","dynamic":false})"));
}

// What a weight takes: integers, scales, zero points and the shape.
TEST(Forms, BitsOfAWeightAreThoseThatAreStored) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors",
                            {{"a.up.weight", {32, 64}, StoredType::BF16}});
  const Checkpoint in = open(dir / "in");
  const auto bits = [&](const QuantizeOptions& options) {
    std::filesystem::remove_all(dir / "out");
    const auto plan = resolve(in, options);
    EXPECT_TRUE(plan) << plan.error().message();
    EXPECT_TRUE(quantize(Stream::cpu(), *plan, dir / "out"));
    const Checkpoint out = open(dir / "out");
    const auto report = verify(Stream::cpu(), in, out);
    EXPECT_TRUE(report) << report.error().message();
    const auto layers = quantized_layers(out);
    EXPECT_TRUE(layers) << layers.error().message();
    EXPECT_EQ(layers->size(), 1U);
    EXPECT_EQ(bits_per_weight(*plan), report->bits_per_weight());
    EXPECT_EQ(report->layers[0].bits, report->bits_per_weight());
    EXPECT_EQ((*layers)[0].bits, report->bits_per_weight());
    EXPECT_EQ((*layers)[0].form, report->layers[0].form());
    EXPECT_EQ((*layers)[0].form, plan->layers[0].form);
    EXPECT_EQ((*layers)[0].n, 32);
    EXPECT_EQ((*layers)[0].k, 64);
    return report->bits_per_weight();
  };
  constexpr double weights = 32 * 64, shape = 128 / weights;
  EXPECT_EQ(bits({}), 8 + 32 / 64.0);
  EXPECT_EQ(bits({.scheme = Scheme::w8a16}), 8 + 16 / 64.0 + shape);
  EXPECT_EQ(bits({.scheme = Scheme::w4a16_group, .group_size = 16}), 4 + 16 / 16.0 + shape);
  EXPECT_EQ(bits({.scheme = Scheme::w4a8_group, .group_size = 32}), 4 + 16 / 32.0 + shape);
  EXPECT_EQ(bits({.scheme = Scheme::w4a16_group, .group_size = 0}), 4 + 16 / 64.0 + shape);
  EXPECT_EQ(bits({.scheme = Scheme::w4a16_group, .group_size = 16, .asymmetric = true}),
            4 + 20 / 16.0 + shape);
}

// As it is measured on the way, so it is found later: of every form and type.
TEST(Forms, VerifyFindsWhatTheRunMeasured) {
  [[maybe_unused]] const testing::ManyThreads many;
  int made = 0;
  const TemporaryDirectory dir;
  for (const StoredType type :
       {StoredType::BF16, StoredType::F16, StoredType::F32, StoredType::F64}) {
    const auto source = dir / ("in" + std::to_string(made));
    testing::make_llama(source, type);
    const Checkpoint in = open(source);
    const Statistics stats = testing::make_statistics(in);
    for (const LayerForm& form :
         {LayerForm{Scheme::w8a16}, LayerForm{Scheme::w4a8_group, 16},
          LayerForm{Scheme::w4a8_group, 8, true}, LayerForm{Scheme::w4a16_group, 16, true},
          LayerForm{Scheme::w4a16_group, 0}}) {
      QuantizeOptions options = options_of(form);
      options.statistics = &stats;
      options.smooth = made % 2 == 0;
      const auto to = dir / std::to_string(made++);
      const QuantizeReport report = run(in, options, to);
      const auto found = verify(Stream::cpu({.threads = 16}), in, open(to), &stats);
      ASSERT_TRUE(found) << to_string(form) << found.error().message();
      EXPECT_THAT(found->unexpected, ::testing::IsEmpty());
      EXPECT_THAT(found->added, ::testing::IsEmpty());
      ASSERT_EQ(found->layers.size(), in.layers().size());
      for (std::size_t i = 0; i < found->layers.size(); ++i) {
        const LayerError &a = found->layers[i], &b = report.measured.layers[i];
        EXPECT_EQ(a.form(), form);
        EXPECT_EQ(a.form(), b.form());
        EXPECT_EQ(a.bits, b.bits);
        EXPECT_EQ(a.weight_error, b.weight_error) << a.name;
        EXPECT_EQ(a.error(), b.error()) << a.name << " " << to_string(form);
        EXPECT_GT(a.error(), 0);
        EXPECT_LT(a.error(), form.scheme == Scheme::w8a16 ? 0.02 : 0.2) << to_string(form);
      }
    }
  }
}

// Activations of w4a8 are rounded as well, so it loses more than w4a16; with zero points both lose
// less where weights are on one side of 0.
TEST(Forms, ErrorsAreThoseOfTheForm) {
  const TemporaryDirectory dir;
  std::vector<float> w = testing::made_values({"a.up.weight", {32, 64}});
  for (float& x : w) x = std::fabs(x) + 0.2F;
  testing::make_file(
      dir / "in" / "m.safetensors",
      testing::assemble(
          R"({"a.up.weight":{"dtype":"F32","shape":[32,64],"data_offsets":[0,8192]}})",
          testing::bytes_as(StoredType::F32, w)));
  const Checkpoint in = open(dir / "in");
  const Statistics stats = testing::make_statistics(in);
  int made = 0;
  const auto error = [&](const LayerForm& form) {
    QuantizeOptions options = options_of(form);
    options.statistics = &stats;
    return run(in, options, dir / std::to_string(made++)).measured.layers[0];
  };
  const LayerError a16 = error({Scheme::w4a16_group, 16}), a8 = error({Scheme::w4a8_group, 16});
  EXPECT_EQ(a16.weight_error, a8.weight_error);
  EXPECT_NE(a16.error(), a8.error());
  EXPECT_LT(a8.error(), 2 * a16.error() + 0.02);
  for (const Scheme scheme : {Scheme::w4a16_group, Scheme::w4a8_group}) {
    const LayerError symmetric = error({scheme, 16}), shifted = error({scheme, 16, true});
    EXPECT_LT(shifted.weight_error, 0.8 * symmetric.weight_error);
  }
  EXPECT_LT(error({Scheme::w8a16}).error(), a16.error() / 4);
}

TEST(Forms, TheSameBytesForAnyNumberOfThreads) {
  [[maybe_unused]] const testing::ManyThreads many;
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in", StoredType::BF16, 512, 640);
  const Checkpoint in = open(dir / "in");
  std::map<std::string, std::string> first;
  for (const int threads : {1, 3, 16}) {
    std::filesystem::remove_all(dir / "out");
    run(in,
        {.scheme = Scheme::w4a8_group,
         .group_size = 64,
         .asymmetric = true,
         .layers = {{"*.down_proj", Scheme::w8a16}, {"lm_head", Scheme::w8a16}}},
        dir / "out", threads);
    const auto tree = testing::read_tree(dir / "out");
    if (first.empty()) first = tree;
    EXPECT_TRUE(tree == first) << threads;
  }
}

// A scale of half the least f16 would be 0; one of one and a half would cut weights off.
TEST(StoredScale, SmallOnesAreRoundedUp) {
  using numerics::stored_scale_bf16;
  using numerics::stored_scale_f16;
  for (const float s : {0x1p-30F, 0x1p-25F, 0x1p-24F})
    EXPECT_EQ(to_float(stored_scale_f16(s)), 0x1p-24F) << s;
  EXPECT_EQ(to_float(stored_scale_f16(0x1.8p-24F)), 0x1p-23F);
  EXPECT_EQ(to_float(stored_scale_f16(0x1.000002p-20F)), 0x1.1p-20F);
  EXPECT_EQ(to_float(stored_scale_f16(0x1.ffffp-15F)), 0x1p-14F);
  // To nearest from there on.
  EXPECT_EQ(to_float(stored_scale_f16(0x1.001p-14F)), 0x1p-14F);
  EXPECT_EQ(to_float(stored_scale_f16(0x1.003p-14F)), 0x1.004p-14F);
  EXPECT_EQ(to_float(stored_scale_bf16(0x1.01p-100F)), 0x1p-100F);
  EXPECT_EQ(to_float(stored_scale_bf16(0x1.03p-100F)), 0x1.04p-100F);
  for (std::uint32_t bits = 1; bits < 0x7C00U; ++bits) {
    const f16 h{static_cast<std::uint16_t>(bits)};
    EXPECT_EQ(stored_scale_f16(to_float(h)).bits, h.bits);
  }
}

TEST(StoredScale, NoWeightIsCutOff) {
  const TemporaryDirectory dir;
  std::vector<float> w(std::size_t{8} * 32);
  for (std::size_t i = 0; i < w.size(); ++i)
    w[i] = std::ldexp(static_cast<float>(i % 31) - 15.0F, -24 - static_cast<int>(i / 32) % 3);
  testing::make_file(
      dir / "in" / "m.safetensors",
      testing::assemble(R"({"a.up.weight":{"dtype":"F16","shape":[8,32],"data_offsets":[0,512]}})",
                        testing::bytes_as(StoredType::F16, w)));
  const Checkpoint in = open(dir / "in");
  int made = 0;
  for (const LayerForm& form : {LayerForm{Scheme::w8a16}, LayerForm{Scheme::w4a16_group, 8},
                                LayerForm{Scheme::w4a16_group}}) {
    const auto to = dir / std::to_string(made++);
    run(in, options_of(form), to);
    const auto report = verify(Stream::cpu(), in, open(to));
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_EQ(report->layers[0].clip_rate, 0.0) << to_string(form);
    EXPECT_LT(report->layers[0].weight_error, 0.5);
  }
}

TEST(PackedZeroPoints, ComeBack) {
  constexpr std::int64_t rows = 19, groups = 3;
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < rows * groups; ++i)
    values.push_back(static_cast<int>(i * 7 % 16) - 8);
  std::vector<std::uint32_t> words(3 * groups, 0xA5A5A5A5U);
  offline::pack_zero_points(values, rows, groups, words);
  const auto bytes = std::as_bytes(std::span(words));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t g = 0; g < groups; ++g)
      EXPECT_EQ(offline::zero_point_at(bytes, groups, row, g),
                values[static_cast<std::size_t>(row * groups + g)]);
  for (const std::size_t g : {6U, 7U, 8U}) EXPECT_EQ(words[g] >> 12U, 0U) << "padding";
}

}  // namespace
}  // namespace octavo
