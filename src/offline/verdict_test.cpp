// What is left float, what is measured while a checkpoint is written, and what is said of both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "octavo/verdict.hpp"
#include "offline/testing_checkpoint.hpp"
#include "testing/threads.hpp"

namespace octavo {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::make_statistics;
using ::testing::Not;
using ::testing::StartsWith;
using testing::TemporaryDirectory;

// Thirty small blocks of the widths that a model of 135 million parameters has, divided by 3: 3 of
// 4 weights read 192 channels, the rest 512.
void make_wide(const std::filesystem::path& dir) {
  testing::make_safetensors(dir / "m.safetensors", {{"h.0.up_proj.weight", {512, 192}},
                                                    {"h.0.gate_proj.weight", {512, 192}},
                                                    {"h.0.o_proj.weight", {512, 192}},
                                                    {"h.0.down_proj.weight", {192, 512}},
                                                    {"lm_head.weight", {192, 192}}});
}

TEST(LeftFloat, IsToldByReasonAndShareWithARemedy) {
  const TemporaryDirectory dir;
  make_wide(dir / "in");
  const auto in = Checkpoint::open(dir / "in");
  ASSERT_TRUE(in);
  const auto plan = resolve(*in, {.scheme = Scheme::w4a16_group});
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->layers.size(), 1U);
  const std::vector<LeftFloat> left = left_float(*plan);
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].layers, 3U);
  EXPECT_DOUBLE_EQ(left[0].share, 3 * 512.0 * 192 / (4 * 512.0 * 192 + 192.0 * 192));
  EXPECT_EQ(left[0].text(),
            "3 layers, 69 % of the linear weights, stay float: in = 192 is no multiple of 128; "
            "--group-size 64 would take them all");
}

TEST(LeftFloat, RemediesKeepWhatIsQuantizedAndAreForShapesAlone) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors",
                            {{"h.0.up_proj.weight", {8, 24}}, {"h.0.down_proj.weight", {8, 128}}});
  const std::string entry = R"({"h.0.v_proj.weight":{"dtype":"F8_E4M3","shape":[16,16],)"
                            R"("data_offsets":[0,256]}})";
  testing::make_file(dir / "in" / "n.safetensors", testing::assemble(entry, std::string(256, 'a')));
  const auto in = Checkpoint::open(dir / "in");
  ASSERT_TRUE(in) << in.error().message();
  const auto plan = resolve(*in, {.scheme = Scheme::w4a16_group, .group_size = 24});
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->layers.size(), 1U);
  const auto left = left_float(*plan);
  ASSERT_EQ(left.size(), 2U);
  // Groups of 128 would take the one, and leave the other.
  EXPECT_EQ(left[0].remedy, "--group-size 128 would take more of them");
  EXPECT_EQ(left[1].reason, "F8_E4M3 is not a float type");
  EXPECT_EQ(left[1].remedy, "");
}

TEST(LeftFloat, IsRefusedIfStrictAndNothingIfItWasMeant) {
  const TemporaryDirectory dir;
  make_wide(dir / "in");
  const auto in = Checkpoint::open(dir / "in");
  ASSERT_TRUE(in);
  const auto strict = resolve(*in, {.scheme = Scheme::w4a16_group, .strict = true});
  ASSERT_FALSE(strict);
  EXPECT_THAT(strict.error().message(),
              HasSubstr("strict: expected a scheme that takes every layer, got 3 layers, 69 %"));
  // Heads and what was named are meant to stay.
  for (const QuantizeOptions& meant :
       {QuantizeOptions{.scheme = Scheme::w4a16_group,
       .ignore = {"*.up_proj", "*.gate_proj", "*.o_proj"},
       .strict = true},
        QuantizeOptions{.strict = true},
        QuantizeOptions{.scheme = Scheme::w4a16_group, .group_size = 64, .strict = true}}) {
    const auto plan = resolve(*in, meant);
    ASSERT_TRUE(plan) << plan.error().message();
    EXPECT_THAT(left_float(*plan), IsEmpty());
  }
}

TEST(LeftFloat, CountsExpertsInOneTensorAndWeightsOfOtherTypes) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "m.safetensors",
                            {{"h.0.up_proj.weight", {16, 16}},
                             {"h.0.mlp.experts.gate_up_proj", {4, 16, 16}},
                             {"h.0.conv.weight", {4, 16, 16}}});
  const std::string entry = R"({"h.0.v_proj.weight":{"dtype":"F8_E4M3","shape":[16,16],)"
                            R"("data_offsets":[0,256]}})";
  testing::make_file(dir / "in" / "n.safetensors", testing::assemble(entry, std::string(256, 'a')));
  const auto in = Checkpoint::open(dir / "in");
  ASSERT_TRUE(in) << in.error().message();
  const auto plan = resolve(*in, {});
  ASSERT_TRUE(plan) << plan.error().message();
  const auto left = left_float(*plan);
  ASSERT_EQ(left.size(), 2U);
  // They are named in config.json, and can be named by the user.
  ASSERT_TRUE(quantize(Stream::cpu(), *plan, dir / "out"));
  EXPECT_THAT(testing::read_file(dir / "out" / "config.json"),
              AllOf(HasSubstr("\"h.0.mlp.experts\""), HasSubstr("\"h.0.v_proj\"")));
  const auto meant = resolve(*in, {.ignore = {"*.experts", "*.v_proj"}, .strict = true});
  ASSERT_TRUE(meant) << meant.error().message();
  EXPECT_THAT(left_float(*meant), IsEmpty());
  EXPECT_EQ(left[0].text(),
            "1 layer, 67 % of the linear weights, stays float: experts that are stored in one "
            "tensor");
  EXPECT_EQ(left[1].text(),
            "1 layer, 17 % of the linear weights, stays float: F8_E4M3 is not a float type");
  EXPECT_THAT(resolve(*in, {.strict = true}).error().message(),
              AllOf(HasSubstr(left[0].text()), HasSubstr(", and " + left[1].text())));
}

TEST(GroupSize, AutoTakesTheLargestThatFits) {
  const TemporaryDirectory dir;
  make_wide(dir / "in");
  const auto in = Checkpoint::open(dir / "in");
  ASSERT_TRUE(in);
  const auto chosen = [&](const std::vector<std::string>& ignore) {
    const auto plan =
        resolve(*in, {.scheme = Scheme::w4a16_group, .group_size = std::nullopt, .ignore = ignore});
    return plan ? plan->group_size : -1;
  };
  EXPECT_EQ(chosen({}), 64);
  EXPECT_EQ(chosen({"*.up_proj", "*.gate_proj", "*.o_proj"}), 128);
  // One that nothing fits does not spoil it for the others.
  testing::make_safetensors(dir / "in" / "n.safetensors", {{"h.0.odd.weight", {8, 9}}});
  const auto odd = Checkpoint::open(dir / "in");
  const auto plan = resolve(*odd, {.scheme = Scheme::w4a16_group, .group_size = std::nullopt});
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->group_size, 64);
  EXPECT_EQ(left_float(*plan).front().text(),
            "1 layer, 0.0 % of the linear weights, stays float: in = 9 is no multiple of 64; "
            "--group-size channel would take them all");
}

// Measured on the way or from the finished files, in one go or taken up again: the same figures.
TEST(Measured, WhileItIsWrittenAsVerifyDoes) {
  [[maybe_unused]] const testing::ManyThreads many;
  const TemporaryDirectory dir;
  testing::make_llama(dir / "llama", StoredType::F32, 128, 4100);  // several slabs of a layer
  testing::make_gpt2(dir / "gpt2");
  testing::make_opt(dir / "opt", StoredType::F64);
  int made = 0;
  for (const char* model : {"llama", "gpt2", "opt"})
    for (const Scheme scheme : {Scheme::w8a8_dynamic, Scheme::w8a8_static, Scheme::w4a16_group})
      for (const bool smooth : {false, true}) {
        const auto in = Checkpoint::open(dir / model);
        ASSERT_TRUE(in);
        const Statistics stats = make_statistics(*in);
        const auto plan = resolve(
            *in, {.scheme = scheme, .group_size = 4, .statistics = &stats, .smooth = smooth});
        ASSERT_TRUE(plan) << plan.error().message();
        const auto path = dir / ("out" + std::to_string(made++));
        const auto report = quantize(Stream::cpu({.threads = 1 + made % 3}), *plan, path);
        ASSERT_TRUE(report) << report.error().message();
        const auto out = Checkpoint::open(path);
        const auto checked = verify(Stream::cpu(), *in, *out, &stats);
        ASSERT_TRUE(checked) << checked.error().message();
        ASSERT_EQ(report->measured.layers.size(), plan->layers.size());
        ASSERT_EQ(checked->layers.size(), plan->layers.size());
        for (std::size_t i = 0; i < plan->layers.size(); ++i) {
          const LayerError& a = report->measured.layers[i];
          const LayerError& b = checked->layers[i];
          EXPECT_EQ(a.name, b.name);
          EXPECT_EQ(a.output_error, b.output_error) << a.name;
          EXPECT_EQ(a.weight_error, b.weight_error) << a.name;
          EXPECT_EQ(a.cosine, b.cosine);
          EXPECT_EQ(a.smoothed, b.smoothed);
          EXPECT_EQ(a.smoothable, b.smoothable);
          EXPECT_EQ(a.group_size, b.group_size);
          EXPECT_GT(*a.output_error, 0.0);
        }
        EXPECT_EQ(judge(report->measured).above, judge(*checked).above);
      }
}

TEST(Measured, InFilesThatAnEarlierRunHadFinished) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  const auto in = Checkpoint::open(dir / "in");
  const Statistics stats = make_statistics(*in);
  const auto plan = resolve(*in, {.scheme = Scheme::w8a8_static, .statistics = &stats});
  ASSERT_TRUE(plan) << plan.error().message();
  const auto whole = quantize(Stream::cpu(), *plan, dir / "whole");
  ASSERT_TRUE(whole) << whole.error().message();
  EXPECT_EQ(whole->measured.layers.size(), 14U);
  const auto stopped = quantize(Stream::cpu({.threads = 1}), *plan, dir / "out", [](const auto& p) {
    if (p.what.starts_with("model-00002")) throw std::runtime_error("stopped");
  });
  ASSERT_FALSE(stopped);
  const auto report = quantize(Stream::cpu(), *plan, dir / "out");
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->shards_kept, 1);
  ASSERT_EQ(report->measured.layers.size(), 14U);
  for (std::size_t i = 0; i < 14; ++i)
    EXPECT_EQ(report->measured.layers[i].output_error, whole->measured.layers[i].output_error);
}

TEST(Measured, OnlyIfAskedForAndIfThereAreRows) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  const auto in = Checkpoint::open(dir / "in");
  const Statistics stats = make_statistics(*in);
  const auto none = quantize(Stream::cpu(), *resolve(*in, {.statistics = &stats, .measure = false}),
                             dir / "none");
  EXPECT_THAT(none->measured.layers, IsEmpty());
  Statistics some({.sample_rows = 4});
  const std::string layer = "model.layers.1.mlp.down_proj";
  const std::vector<float> rows = stats.find(layer)->sample();
  ASSERT_TRUE(some.update(Stream::cpu(), layer, TensorRef(rows, {8, 48})));
  const auto one = quantize(Stream::cpu(), *resolve(*in, {.statistics = &some}), dir / "one");
  ASSERT_TRUE(one) << one.error().message();
  // All layers, as verify does: what has no rows by its weights, and the verdict says so.
  ASSERT_EQ(one->measured.layers.size(), 14U);
  for (const LayerError& e : one->measured.layers)
    EXPECT_EQ(e.output_error.has_value(), e.name == layer) << e.name;
  EXPECT_THAT(judge(one->measured).summary, HasSubstr("of the outputs of 1 of 14 layers"));
  Statistics other({.sample_rows = 4});
  ASSERT_TRUE(other.update(Stream::cpu(), "another.layer", TensorRef(rows, {8, 48})));
  EXPECT_FALSE(resolve(*in, {.statistics = &other})->measured);
}

LayerError layer_of(const std::string& name, Scheme scheme, std::optional<double> output,
                    double weight = 0.01) {
  LayerError e;
  e.name = name;
  e.scheme = scheme;
  e.weight_error = weight;
  e.output_error = output;
  e.rows = output ? 8 : 0;
  return e;
}

TEST(Verdict, HasADefaultBoundForEachScheme) {
  EXPECT_EQ(default_max_error(Scheme::w8a8_dynamic), 0.1);
  EXPECT_EQ(default_max_error(Scheme::w8a8_static), 0.1);
  EXPECT_EQ(default_max_error(Scheme::w4a16_group), 0.25);
  VerifyReport report;
  report.layers = {layer_of("a.up_proj", Scheme::w8a8_dynamic, 0.1),
                   layer_of("b.up_proj", Scheme::w4a16_group, 0.25)};
  Verdict verdict = judge(report);
  EXPECT_FALSE(verdict.failed);
  EXPECT_EQ(verdict.above, 0U);
  EXPECT_THAT(verdict.summary,
              StartsWith("verdict: good, 2 layers, none above their bounds of 10 % "
                         "and 25 %; the largest error is 10 %, in a.up_proj "
                         "(errors of outputs)"));
  report.layers[0].output_error = std::nextafter(0.1, 1.0);
  EXPECT_TRUE(judge(report).failed);
  EXPECT_FALSE(judge(report, 0.3).failed);
  EXPECT_TRUE(judge(report, 0.2).failed);  // the int4 layer
  EXPECT_TRUE(judge(report, 0.0).failed);
  const Verdict lifted = judge(report, std::numeric_limits<double>::infinity());
  EXPECT_FALSE(lifted.failed);
  EXPECT_THAT(lifted.summary, StartsWith("verdict: no bound, 2 layers; the largest error"));
  report.layers[0].output_error = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(judge(report, 2.0).failed);
  EXPECT_FALSE(judge(report, std::numeric_limits<double>::infinity()).failed);
}

TEST(Verdict, NamesTheWorstFirstAndWhatIsNoNumber) {
  VerifyReport report;
  for (int i = 0; i < 9; ++i)
    report.layers.push_back(layer_of("h." + std::to_string(i) + ".down_proj", Scheme::w8a8_static,
                                     i < 2 ? 0.01 : 0.1 * i));
  report.layers[4].output_error = std::numeric_limits<double>::quiet_NaN();
  const Verdict verdict = judge(report);
  EXPECT_EQ(verdict.above, 7U);
  EXPECT_EQ(verdict.order.size(), 9U);
  EXPECT_EQ(verdict.order.front(), 4U);
  EXPECT_EQ(verdict.order[1], 8U);
  EXPECT_THAT(verdict.summary, StartsWith("verdict: 7 of 9 layers are above the bound of 10 %: "
                                          "h.4.down_proj nan %, h.8.down_proj 80 %, "));
  EXPECT_THAT(verdict.summary, HasSubstr("h.5.down_proj 50 % and 2 more"));
}

TEST(Verdict, SaysWhatToDo) {
  VerifyReport report;
  for (int i = 0; i < 4; ++i) {
    const std::string block = "h." + std::to_string(i) + ".";
    for (const char* kind : {"q_proj", "k_proj", "v_proj"}) {
      report.layers.push_back(layer_of(block + kind, Scheme::w8a8_static, 0.02));
      report.layers.back().smoothable = true;
    }
    report.layers.push_back(layer_of(block + "down_proj", Scheme::w8a8_static, i < 2 ? 1.0 : 0.01));
  }
  EXPECT_THAT(judge(report).advice,
              ElementsAre(HasSubstr("--scheme w8a8-dynamic"), HasSubstr("--ignore '*.down_proj'")));
  // A layer alone is named; what it is fused with is kept with it; one after a norm can be
  // smoothed.
  report.layers[3].output_error = report.layers[7].output_error = 0.01;
  report.layers[0].output_error = 0.5;
  EXPECT_THAT(
      judge(report).advice,
      ElementsAre(HasSubstr("--smooth STATS --alpha auto"), HasSubstr("--scheme w8a8-dynamic"),
                  HasSubstr("keep it float: --ignore h.0.k_proj h.0.q_proj h.0.v_proj")));
  report.layers[0].smoothed = true;
  EXPECT_THAT(judge(report).text(), Not(HasSubstr("--smooth")));
  for (LayerError& e : report.layers) {
    e.scheme = Scheme::w4a16_group;
    e.group_size = 128;
  }
  EXPECT_THAT(judge(report).advice,
              ElementsAre(HasSubstr("--group-size 32"), HasSubstr("--ignore")));
  // Advice is copied into a shell, and names come from a file.
  report.layers[0].name = "h.0.it's $(here)";
  EXPECT_THAT(judge(report).advice.back(), HasSubstr(R"(--ignore 'h.0.it'\''s $(here)')"));
  report.layers[0].name = "h.0.q_proj";
  // Experts of a block run as one.
  report.layers[0].name = "h.0.experts.2.w1";
  EXPECT_THAT(judge(report).text(), HasSubstr("--ignore 'h.0.experts.*'"));
  // To keep most of a model float is no advice.
  for (LayerError& e : report.layers) e.output_error = 1.0;
  EXPECT_THAT(judge(report).text(), Not(HasSubstr("--ignore")));
}

TEST(Verdict, SaysWhatItRestsOn) {
  VerifyReport report;
  report.layers = {layer_of("a", Scheme::w8a8_static, {}), layer_of("b", Scheme::w8a8_static, {})};
  EXPECT_THAT(
      judge(report).summary,
      HasSubstr("errors of weights alone: statistics with sampled rows of the layers (--stats)"));
  // A static scale is not seen in weights.
  EXPECT_THAT(judge(report).summary, StartsWith("verdict: not judged, for static scales"));
  report.layers[0].output_error = 0.01;
  EXPECT_THAT(judge(report).summary, HasSubstr("of the outputs of 1 of 2 layers"));
  EXPECT_THAT(judge(report).summary, StartsWith("verdict: not judged"));
  report.layers[1].output_error = 0.01;
  EXPECT_THAT(judge(report).summary, StartsWith("verdict: good"));
  report.float_layers = 2;
  report.float_share = 0.75;
  EXPECT_THAT(judge(report).summary,
              HasSubstr("75 % of the linear weights, in 2 layers, are float"));
  report.layers[1].non_finite = 3;
  EXPECT_TRUE(judge(report).failed);
  EXPECT_FALSE(judge(report, std::numeric_limits<double>::infinity()).failed);
  EXPECT_THAT(judge(report).summary, StartsWith("verdict: weights are no numbers"));
  EXPECT_THAT(judge(report).text(), HasSubstr("\n  3 weights are NaN or infinite, in b"));
  report.layers[0].non_finite = 1;
  EXPECT_THAT(judge(report).text(),
              HasSubstr("\n  4 weights are NaN or infinite, in a and 1 other"));
  report.unexpected = {"n.weight"};
  const Verdict changed = judge(report);
  EXPECT_TRUE(changed.failed);
  EXPECT_THAT(changed.text(), HasSubstr("1 tensor should not have changed, but did: n.weight"));
  report.added = {"x.bias"};
  EXPECT_THAT(judge(report).text(), HasSubstr("1 tensor is not in the float checkpoint: x.bias"));
  for (LayerError& e : report.layers) e.non_finite = 0;
  report.unexpected.clear();
  EXPECT_TRUE(judge(report).failed) << "for what was added alone";
  report.added.clear();
  EXPECT_FALSE(judge(report).failed);
  EXPECT_THAT(judge({}).summary, HasSubstr("nothing was measured"));
}

}  // namespace
}  // namespace octavo
