// Where quantized values are put: rows that end within a byte, layers of several pieces, scales
// that layers share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/checkpoint.hpp"
#include "offline/packed_rows.hpp"
#include "offline/slab.hpp"
#include "offline/testing_quantized.hpp"

namespace octavo {
namespace {

using testing::open;
using testing::quantized_row;
using testing::rounded;
using testing::Row;
using testing::run;
using testing::TemporaryDirectory;
using testing::values_of;

// Rows of 21 channels end in the middle of a byte; what is left of their last word is 0.
TEST(QuantizeLayout, OddRowsArePaddedWithZeros) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors", {{"a.up.weight", {5, 21}}});
  run(open(dir / "in"), {.scheme = Scheme::w4a16_group, .group_size = 0}, dir / "out");
  const Checkpoint out = open(dir / "out");
  const auto w = rounded({"a.up.weight", {5, 21}});
  const auto words = values_of<std::uint32_t>(out, "a.up.weight_packed");
  ASSERT_EQ(words.size(), 15U);
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t k = 0; k < 21; ++k) {
      const auto channels = w.begin() + static_cast<std::ptrdiff_t>(i * 21);
      const Row row = quantized_row({channels, channels + 21}, 7.0F);
      const auto nibble = (words[i * 3 + k / 8] >> (k % 8 * 4)) & 15U;
      ASSERT_EQ(static_cast<int>(nibble) - 8, row.q[k]) << i << " " << k;
    }
    EXPECT_EQ(words[i * 3 + 2] >> 20U, 0U) << "padding";
  }
}

// Memory that was used before, and rows of every length up to two words.
TEST(PackedRows, AreQPlus8WithZerosBehindAndComeBack) {
  for (std::int64_t channels = 1; channels <= 16; ++channels) {
    constexpr std::size_t rows = 3;
    const auto bytes = static_cast<std::size_t>(bytes_for(DType::s4, channels));
    std::vector<std::byte> q(rows * bytes, std::byte{0});
    const auto value = [](std::size_t row, std::int64_t k) {
      return static_cast<int>(row * 5 + static_cast<std::size_t>(k) * 3) % 16 - 8;
    };
    for (std::size_t row = 0; row < rows; ++row)
      for (std::int64_t k = 0; k < channels; ++k)
        q[row * bytes + static_cast<std::size_t>(k) / 2] |=
            static_cast<std::byte>((value(row, k) & 15) << (k % 2 * 4));
    const std::size_t row_bytes = offline::packed_bytes(DType::s4, channels);
    std::vector<std::byte> packed(rows * row_bytes, std::byte{0xA5});
    offline::pack_rows(DType::s4, q, rows, channels, packed);
    for (std::size_t row = 0; row < rows; ++row)
      for (std::int64_t k = 0; k < 8 * offline::packed_words(DType::s4, channels); ++k) {
        const auto byte =
            std::to_integer<int>(packed[row * row_bytes + static_cast<std::size_t>(k) / 2]);
        EXPECT_EQ(byte >> (k % 2 * 4) & 15, k < channels ? value(row, k) + 8 : 0)
            << channels << ": " << row << ", " << k;
      }
    std::vector<std::byte> back(q.size(), std::byte{0xA5});
    offline::unpack_rows(DType::s4, packed, rows, channels, back);
    EXPECT_EQ(back, q) << channels;
  }
}

// Stored [in, out] and worked on in pieces of 512 outputs, each of which is a strip of every row.
TEST(QuantizeLayout, Conv1DOfSeveralPieces) {
  const TemporaryDirectory dir;
  constexpr std::size_t n = 600, k = 512;
  testing::make_safetensors(dir / "in" / "m.safetensors", {{"h.0.ln_1.weight", {4}},
                                                           {"h.0.attn.c_attn.weight", {4, 12}},
                                                           {"h.0.mlp.c_fc.weight", {k, n}}});
  const Checkpoint in = open(dir / "in");
  ASSERT_TRUE(in.layer("h.0.mlp.c_fc")->transposed);
  run(in, {}, dir / "out");
  const Checkpoint out = open(dir / "out");
  const auto stored = rounded({"h.0.mlp.c_fc.weight", {k, n}});
  const auto q = values_of<std::int8_t>(out, "h.0.mlp.c_fc.weight");
  const auto scales = values_of<float>(out, "h.0.mlp.c_fc.weight_scale");
  ASSERT_EQ(q.size(), n * k);
  ASSERT_EQ(scales.size(), n);
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<float> w(k);
    for (std::size_t j = 0; j < k; ++j) w[j] = stored[j * n + i];
    const Row row = quantized_row(w, 127.0F);
    ASSERT_EQ(scales[i], row.scale) << i;
    for (std::size_t j = 0; j < k; ++j) ASSERT_EQ(q[j * n + i], row.q[j]) << i << " " << j;
  }
}

// Queries, keys and values are one layer when they run: their inputs have one scale, that of the
// largest input that any of them was seen with. What has no statistics is given it as well.
TEST(QuantizeLayout, FusedLayersShareTheLargestInputScale) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors", {{"h.q_proj.weight", {8, 8}},
                                                           {"h.k_proj.weight", {8, 8}},
                                                           {"h.v_proj.weight", {8, 8}},
                                                           {"h.o_proj.weight", {8, 8}},
                                                           {"h.gate_proj.weight", {8, 8}},
                                                           {"h.up_proj.weight", {8, 8}}});
  Statistics stats;
  for (const auto& [name, most] :
       {std::pair("h.q_proj", 2.0F), std::pair("h.k_proj", 3.0F), std::pair("h.v_proj", 1.0F),
        std::pair("h.o_proj", 5.0F), std::pair("h.gate_proj", 7.0F)}) {
    const std::vector<float> row(8, -most);
    ASSERT_TRUE(stats.update(Stream::cpu(), name, TensorRef(row, {1, 8})));
  }
  run(open(dir / "in"), {.scheme = Scheme::w8a8_static, .statistics = &stats}, dir / "out");
  const Checkpoint out = open(dir / "out");
  for (const auto& [name, most] :
       {std::pair("h.q_proj", 3.0F), std::pair("h.k_proj", 3.0F), std::pair("h.v_proj", 3.0F),
        std::pair("h.o_proj", 5.0F), std::pair("h.gate_proj", 7.0F), std::pair("h.up_proj", 7.0F)})
    EXPECT_EQ(values_of<float>(out, std::string(name) + ".input_scale"),
              std::vector<float>{most / 127.0F})
        << name;
}

// A layer whose input was always 0 has a scale that can be divided by.
TEST(QuantizeLayout, AnInputOfZerosHasAScaleOfOne) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors", {{"a.up.weight", {8, 8}}});
  Statistics stats;
  const std::vector<float> zeros(8);
  ASSERT_TRUE(stats.update(Stream::cpu(), "a.up", TensorRef(zeros, {1, 8})));
  run(open(dir / "in"), {.scheme = Scheme::w8a8_static, .statistics = &stats}, dir / "out");
  EXPECT_EQ(values_of<float>(open(dir / "out"), "a.up.input_scale"), std::vector<float>{1.0F});
}

// f16 ends at 65504: a weight that is multiplied beyond it is refused by name, and nothing is left.
TEST(QuantizeLayout, SmoothingThatWouldOverflowIsRefused) {
  const TemporaryDirectory dir;
  const std::string p = "h.0.";
  std::vector<float> w(32, 1.0F);
  w[13] = 60000.0F;
  testing::make_file(
      dir / "in" / "m.safetensors",
      testing::assemble(
          R"({"h.0.mlp.c_fc.weight":{"dtype":"F16","shape":[4,8],"data_offsets":[0,64]}})",
          testing::bytes_as(StoredType::F16, w)));
  testing::make_file(dir / "in" / "config.json", R"({"model_type":"gpt2"})");
  // As GPT-2 stores it, [in, out] = [4, 8]: the norm has 4 channels.
  testing::make_safetensors(dir / "in" / "n.safetensors", {{p + "ln_2.weight", {4}}});
  const Checkpoint in = open(dir / "in");
  Statistics stats;
  const std::vector<float> row{1, 1e6F, 1, 1};
  ASSERT_TRUE(stats.update(Stream::cpu(), p + "mlp.c_fc", TensorRef(row, {1, 4})));
  const auto plan =
      resolve(in, {.statistics = &stats, .smooth = true, .alpha = 1.0, .loader = Loader::vllm});
  ASSERT_TRUE(plan) << plan.error().message();
  const auto report = quantize(Stream::cpu(), *plan, dir / "out");
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message(),
              ::testing::HasSubstr("m.safetensors: tensor \"h.0.mlp.c_fc.weight\": channel 1 would "
                                   "overflow f16 when it is smoothed"));
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

TEST(Slabs, AllAreWorkedOnUntilOneFailsAndItsErrorIsTold) {
  std::vector<std::size_t> done;
  ASSERT_TRUE(offline::for_each_slab(Stream::cpu({.threads = 1}), 3, [&](const Stream&, auto i) {
    done.push_back(i);
    return Status();
  }));
  EXPECT_EQ(done, (std::vector<std::size_t>{0, 1, 2}));
  const Status failed =
      offline::for_each_slab(Stream::cpu({.threads = 1}), 3, [](const Stream&, auto i) {
        return i == 0 ? Status() : Status(Error(ErrorCode::backend, "slab", std::to_string(i)));
      });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message(), "1");
}

}  // namespace
}  // namespace octavo
