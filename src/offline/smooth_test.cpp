// Smoothing against plain loops, and the pairs of each architecture.
#include "octavo/smooth.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "numerics/exp2.hpp"
#include "offline/smooth_parts.hpp"
#include "testing/threads.hpp"

namespace octavo {
namespace {

using ::testing::HasSubstr;

TEST(Power, IsAccurateAndPinned) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::ldexp(1.0 + static_cast<double>(rng() >> 12U) * 0x1p-52,
                                static_cast<int>(rng() % 250) - 125);
    const double p = static_cast<double>(rng() >> 11U) * 0x1p-53;
    const long double exact = std::pow(static_cast<long double>(x), static_cast<long double>(p));
    const auto error = std::fabs(static_cast<double>((numerics::power(x, p) - exact) / exact));
    ASSERT_LT(error, 1e-13) << x << "^" << p;
  }
  EXPECT_EQ(numerics::power(0.0, 0.0), 1.0);
  EXPECT_EQ(numerics::power(0.0, 0.5), 0.0);
  EXPECT_EQ(numerics::power(4.0, 0.5), 2.0);
  EXPECT_EQ(numerics::exp2(-3.0), 0.125);
  // These bits may not differ from CPU to CPU.
  EXPECT_EQ(std::bit_cast<std::uint64_t>(numerics::power(3.7, 0.65)), 4612453029016316466ULL);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(numerics::power(1e-5, 0.85)), 4543423517968375115ULL);
}

std::vector<float> random_floats(std::size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<float> out(n);
  for (float& x : out) x = static_cast<float>(static_cast<std::int32_t>(rng())) * 0x1p-31F;
  return out;
}

TEST(StaticScale, IsThatOfTheLargestChannel) {
  const std::vector<float> absmax{1.0F, 254.0F, 3.0F}, smoothing{0.5F, 100.0F, 2.0F};
  EXPECT_EQ(static_scale(absmax), 2.0F);
  EXPECT_EQ(*static_scale(absmax, smoothing), 2.54F / 127.0F);
  EXPECT_EQ(static_scale(std::vector<float>(3)), 1.0F);
  EXPECT_EQ(*static_scale(std::vector<float>(3), smoothing), 1.0F);
  EXPECT_EQ(static_scale(absmax, std::span(smoothing).first(2)).error().message(),
            "smoothing: expected 3 numbers, got 2");
  EXPECT_FALSE(static_scale(absmax, std::span<const float>()));
}

TEST(SmoothingScales, FollowTheFormula) {
  const Stream stream = Stream::cpu();
  std::vector<float> a = random_floats(12, 1);  // [3, 4]
  std::vector<float> b = random_floats(8, 2);   // [2, 4]
  for (const std::size_t i : {3U, 7U, 11U}) a[i] = 0;
  b[3] = b[7] = 0;  // a column of zeros
  a[1] = std::numeric_limits<float>::infinity();
  const std::vector<float> absmax{10.0F, 0.0F, 0.25F, 3.0F};
  const std::vector<TensorRef> weights{{a, {3, 4}}, {b, {2, 4}}};
  for (const double alpha : {0.0, 0.3, 0.5, 1.0}) {
    const auto s = smoothing_scales(stream, weights, absmax, alpha);
    ASSERT_TRUE(s) << s.error().message();
    for (std::size_t j = 0; j < 4; ++j) {
      double w = 1e-5;
      for (std::size_t i = j; i < a.size(); i += 4)
        if (std::isfinite(a[i])) w = std::max(w, std::fabs(double{a[i]}));
      for (std::size_t i = j; i < b.size(); i += 4) w = std::max(w, std::fabs(double{b[i]}));
      const double exact =
          numerics::power(double{absmax[j]}, alpha) / numerics::power(w, 1.0 - alpha);
      EXPECT_EQ((*s)[j], static_cast<float>(std::max(exact, 1e-5))) << alpha << " " << j;
    }
  }
  const auto message = [&](std::span<const TensorRef> w, std::span<const float> m, double alpha) {
    return smoothing_scales(stream, w, m, alpha).error().message();
  };
  EXPECT_THAT(message(weights, absmax, 1.5), HasSubstr("alpha: expected 0 to 1, got 1.5"));
  EXPECT_THAT(message(weights, absmax, NAN), HasSubstr("alpha"));
  EXPECT_THAT(message({}, absmax, 0.5), HasSubstr("weights: expected at least one"));
  EXPECT_THAT(message(weights, std::span(absmax).first(3), 0.5),
              HasSubstr("weights: expected [rows, 3]"));
  const std::vector<float> negative{1, 1, -1, 1};
  EXPECT_THAT(message(weights, negative, 0.5), HasSubstr("absmax: expected finite"));
}

// In a file weights may begin anywhere; they are copied piece by piece, and nothing behind them is.
TEST(SmoothingScales, OfWeightsThatAreNotAligned) {
  constexpr std::int64_t rows = 600, channels = 512;  // two pieces, of 512 rows and 88
  std::vector<float> source = random_floats(std::size_t{1024} * channels, 9);
  std::fill(source.begin() + rows * channels, source.end(), 1e30F);
  source[5] = 7;
  source[(rows - 1) * channels + 6] = -8;
  std::vector<std::byte> bytes(source.size() * sizeof(float) + 1);
  std::memcpy(bytes.data() + 1, source.data(), source.size() * sizeof(float));
  const TensorRef moved(bytes.data() + 1, DType::f32, {rows, channels});
  const auto most = offline::column_absmax(Stream::cpu(), {&moved, 1}, channels);
  ASSERT_TRUE(most) << most.error().message();
  for (std::size_t j = 0; j < channels; ++j) {
    double expected = 0;
    for (std::size_t i = 0; i < rows; ++i)
      expected = std::max(expected, std::fabs(double{source[i * channels + j]}));
    ASSERT_EQ((*most)[j], expected) << j;
  }
}

template <class T>
T rounded(float x) {
  if constexpr (std::is_same_v<T, f16>)
    return to_f16(x);
  else if constexpr (std::is_same_v<T, bf16>)
    return to_bf16(x);
  else
    return static_cast<T>(x);
}
template <class T>
auto wide(T x) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return to_float(x);
  else
    return x;
}

// Every type, contiguous and stored [in, out], with every number of threads.
template <class T>
void check_smooth(int threads) {
  constexpr std::int64_t rows = 700, channels = 301;
  const Stream stream = Stream::cpu({.threads = threads});
  const std::vector<float> source = random_floats(rows * channels, 3);
  const std::vector<float> scales = [] {
    std::vector<float> s = random_floats(channels, 4);
    for (float& x : s) x = std::fabs(x) * 3 + 0.01F;
    return s;
  }();
  std::vector<T> plain, turned(source.size()), norm, bias;
  for (const float x : source) plain.push_back(rounded<T>(x));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < channels; ++j)
      turned[j * rows + i] = plain[static_cast<std::size_t>(i * channels + j)];
  for (std::size_t j = 0; j < channels; ++j) {
    norm.push_back(rounded<T>(source[j]));
    bias.push_back(rounded<T>(source[j + 1]));
  }
  const auto norm_before = norm, bias_before = bias, before = plain;
  const std::vector<TensorMut> weights{
      TensorMut(plain, {rows, channels}),
      TensorMut(turned.data(), Shape{rows, channels}, Shape{1, rows})};
  ASSERT_TRUE(smooth(
      stream, {.norm_weight = norm, .norm_bias = bias, .weights = weights, .scales = scales}));
  using C = decltype(wide(T{}));
  const auto narrowed = [](C x) {
    if constexpr (std::is_same_v<T, double>)
      return x;
    else
      return rounded<T>(x);
  };
  for (std::size_t j = 0; j < channels; ++j) {
    ASSERT_EQ(wide(norm[j]), wide(narrowed(wide(norm_before[j]) / C{scales[j]})));
    ASSERT_EQ(wide(bias[j]), wide(narrowed(wide(bias_before[j]) / C{scales[j]})));
    for (std::size_t i = 0; i < rows; ++i) {
      const C expected = wide(narrowed(wide(before[i * channels + j]) * C{scales[j]}));
      ASSERT_EQ(wide(plain[i * channels + j]), expected);
      ASSERT_EQ(wide(turned[j * rows + i]), expected);
    }
  }
}

TEST(Smooth, ScalesEveryTypeAndLayout) {
  [[maybe_unused]] const testing::ManyThreads many;
  for (const int threads : {1, 3, 16}) {
    check_smooth<float>(threads);
    check_smooth<double>(threads);
    check_smooth<f16>(threads);
    check_smooth<bf16>(threads);
  }
}

TEST(Smooth, RefusesAndChangesNothing) {
  const Stream stream = Stream::cpu();
  std::vector<f16> norm{to_f16(1.0F), to_f16(1.0F)};
  std::vector<float> w{1, 2, 3, 4}, bias{1, 1};
  const std::vector<float> scales{2.0F, 1e-5F};
  const auto call = [&](const TensorMut& n, const TensorMut& b, std::vector<TensorMut> weights,
                        std::span<const float> s) {
    const Status status =
        smooth(stream, {.norm_weight = n, .norm_bias = b, .weights = weights, .scales = s});
    return status ? "accepted" : status.error().message();
  };
  const TensorMut weight(w, {2, 2});
  // 1 / 1e-5 is beyond f16.
  EXPECT_THAT(call(norm, {}, {weight}, scales),
              HasSubstr("norm_weight: channel 1 would overflow f16"));
  std::vector<float> big{3e38F, 1};
  const std::vector<float> two{2.0F, 2.0F};
  EXPECT_THAT(call(norm, {}, {weight, TensorMut(big, {1, 2})}, two),
              HasSubstr("weights: channel 0 would overflow f32"));
  EXPECT_THAT(call(norm, {}, {TensorMut(w, {4, 1})}, two),
              HasSubstr("weights: expected [rows, 2]"));
  EXPECT_THAT(call(TensorMut(w), {}, {weight}, two), HasSubstr("norm_weight: expected [2]"));
  EXPECT_THAT(call(norm, TensorMut(w), {weight}, two), HasSubstr("norm_bias: expected [2]"));
  EXPECT_THAT(call(norm, {}, {weight, weight}, two), HasSubstr("share no memory"));
  EXPECT_THAT(call(bias, bias, {weight}, two), HasSubstr("share no memory"));
  EXPECT_THAT(call(norm, TensorMut(w.data(), Shape{2}), {weight}, two),
              HasSubstr("share no memory"));
  // The bias is looked at before the weight of the norm is changed.
  std::vector<float> tiny{1, 3e38F};
  EXPECT_THAT(call(bias, tiny, {weight}, std::vector<float>{2.0F, 0.5F}),
              HasSubstr("norm_bias: channel 1 would overflow f32"));
  EXPECT_EQ(bias, (std::vector<float>{1, 1}));
  EXPECT_THAT(call(norm, {}, {weight}, std::vector<float>{1.0F, 0.0F}), HasSubstr("scales"));
  std::vector<std::int8_t> integers(4);
  EXPECT_THAT(call(norm, {}, {TensorMut(integers, {2, 2})}, two), HasSubstr("got s8"));
  EXPECT_EQ(to_float(norm[0]), 1.0F);
  EXPECT_EQ(w, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(call(norm, bias, {weight}, two), "accepted");
  EXPECT_EQ(w, (std::vector<float>{2, 4, 6, 8}));
}

std::vector<std::string> pairs_of(const std::vector<std::string>& modules,
                                  const ModelTraits& traits = {}) {
  std::vector<std::string> tensors;
  tensors.reserve(modules.size());
  for (const std::string& m : modules) tensors.push_back(m + ".weight");
  const SmoothingPairs found = smoothing_pairs(tensors, traits);
  std::vector<std::string> out{found.architecture};
  for (const SmoothingPair& p : found.pairs) {
    std::string line = p.norm + " ->";
    for (const std::string& l : p.linears) line.append(" ").append(l.substr(l.rfind('.') + 1));
    out.push_back(line);
  }
  return out;
}

TEST(SmoothingPairs, OfEachArchitecture) {
  using List = std::vector<std::string>;
  const List llama{"m.0.input_layernorm",
                   "m.0.post_attention_layernorm",
                   "m.0.self_attn.q_proj",
                   "m.0.self_attn.k_proj",
                   "m.0.self_attn.v_proj",
                   "m.0.self_attn.o_proj",
                   "m.0.mlp.gate_proj",
                   "m.0.mlp.up_proj",
                   "m.0.mlp.down_proj",
                   "lm_head",
                   "norm"};
  const List expected{"llama", "m.0.input_layernorm -> q_proj k_proj v_proj",
                      "m.0.post_attention_layernorm -> gate_proj up_proj"};
  EXPECT_EQ(pairs_of(llama), expected);
  EXPECT_EQ(pairs_of(llama, {.model_type = "mistral"}), expected);
  // Norms of Gemma multiply by 1 + weight; Phi's feeds the MLP as well.
  EXPECT_EQ(pairs_of(llama, {.model_type = "gemma"}), List{"unknown"});
  List without = llama;
  without.erase(std::find(without.begin(), without.end(), "m.0.self_attn.k_proj"));
  EXPECT_EQ(pairs_of(without).size(), 2U);
  EXPECT_EQ(pairs_of({"d.0.self_attn_layer_norm", "d.0.self_attn.q_proj", "d.0.self_attn.k_proj",
                      "d.0.self_attn.v_proj", "d.0.final_layer_norm", "d.0.fc1", "d.0.fc2"}),
            (List{"opt", "d.0.final_layer_norm -> fc1",
                  "d.0.self_attn_layer_norm -> q_proj k_proj v_proj"}));
  EXPECT_EQ(pairs_of({"h.0.self_attn_layer_norm", "h.0.fc1", "h.0.final_layer_norm"},
                     {.model_type = "opt", .norm_feeds_residual = true}),
            List{"opt"});
  const List falcon{"h.0.input_layernorm", "h.0.self_attention.query_key_value",
                    "h.0.mlp.dense_h_to_4h", "h.0.mlp.dense_4h_to_h"};
  EXPECT_EQ(pairs_of(falcon, {.model_type = "falcon"}),
            (List{"falcon", "h.0.input_layernorm -> query_key_value dense_h_to_4h"}));
  List bloom = falcon;
  bloom.emplace_back("h.0.post_attention_layernorm");
  EXPECT_EQ(pairs_of(bloom), (List{"bloom", "h.0.input_layernorm -> query_key_value",
                                   "h.0.post_attention_layernorm -> dense_h_to_4h"}));
  EXPECT_EQ(pairs_of({"l.0.ln_attn", "l.0.ln_mlp", "l.0.self_attention.query_key_value",
                      "l.0.mlp.dense_h_to_4h"}),
            (List{"bloom", "l.0.ln_attn -> query_key_value", "l.0.ln_mlp -> dense_h_to_4h"}));
  EXPECT_EQ(pairs_of({"l.0.input_layernorm", "l.0.attention.query_key_value",
                      "l.0.post_attention_layernorm", "l.0.mlp.dense_h_to_4h"}),
            (List{"gpt_neox", "l.0.input_layernorm -> query_key_value",
                  "l.0.post_attention_layernorm -> dense_h_to_4h"}));
  EXPECT_EQ(pairs_of({"h.0.ln_1", "h.0.attn.c_attn", "h.0.ln_2", "h.0.mlp.c_fc"}),
            (List{"gpt2", "h.0.ln_1 -> c_attn", "h.0.ln_2 -> c_fc"}));
  EXPECT_EQ(pairs_of({"m.0.input_layernorm", "m.0.post_attention_layernorm",
                      "m.0.block_sparse_moe.gate", "m.0.block_sparse_moe.experts.0.w1",
                      "m.0.block_sparse_moe.experts.0.w3", "m.0.block_sparse_moe.experts.1.w1",
                      "m.0.block_sparse_moe.experts.1.w3", "m.0.block_sparse_moe.experts.0.w2"}),
            (List{"mixtral", "m.0.post_attention_layernorm -> gate w1 w1 w3 w3"}));
  EXPECT_EQ(pairs_of({"e.0.attention.self.query", "e.0.attention.output.LayerNorm",
                      "e.0.intermediate.dense"}),
            List{"bert"});
  EXPECT_EQ(pairs_of({"fc1", "fc2"}), List{"unknown"});
}

}  // namespace
}  // namespace octavo
