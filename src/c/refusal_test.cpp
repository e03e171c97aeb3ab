// What C can get wrong and C++ cannot: null pointers, unknown numbers, plans of another family.
#include <limits>

#include "c/testing.hpp"

namespace octavo::testing {
namespace {

TEST(CNull, IsRefusedEverywhere) {
  Quantize c;
  const octavo_stream* s = c.cpu.get();
  const octavo_plan* p = c.plan.get();
  octavo_plan* out = nullptr;
  octavo_packed_weight* packed = nullptr;
  octavo_observer_state* state = nullptr;
  const octavo_elementwise_desc d = good_descriptor();
  const struct {
    octavo_status status;
    const char* what;
  } refused[] = {
      {octavo_available_targets(nullptr, 0, nullptr), "targets"},
      {octavo_parse_target(nullptr, nullptr), "parse"},
      {octavo_stream_create(nullptr, nullptr), "stream"},
      {octavo_workspace_create(1, nullptr), "workspace"},
      {octavo_plan_guarantee(p, nullptr), "guarantee"},
      {octavo_plan_guarantee(nullptr, nullptr), "guarantee"},
      {octavo_elementwise_select(nullptr, &d, nullptr, &out), "stream of select"},
      {octavo_elementwise_select(s, nullptr, nullptr, &out), "descriptor"},
      {octavo_elementwise_select(s, &d, nullptr, nullptr), "out"},
      {octavo_elementwise_can_implement(nullptr, &c.args), "plan"},
      {octavo_elementwise_can_implement(p, nullptr), "args"},
      {octavo_elementwise_run(nullptr, s, nullptr, 0, &c.args), "plan of run"},
      {octavo_elementwise_run(p, nullptr, nullptr, 0, &c.args), "stream of run"},
      {octavo_elementwise_run(p, s, nullptr, 0, nullptr), "args of run"},
      {octavo_dynamic_range_select(s, nullptr, nullptr, &out), "dynamic descriptor"},
      {octavo_dynamic_range_can_implement(nullptr, nullptr), "dynamic plan"},
      {octavo_dynamic_range_run(nullptr, nullptr, nullptr, 0, nullptr), "dynamic run"},
      {octavo_embedding_select(s, nullptr, nullptr, &out), "embedding descriptor"},
      {octavo_embedding_can_implement(nullptr, nullptr), "embedding plan"},
      {octavo_embedding_run(nullptr, nullptr, nullptr, 0, nullptr), "embedding run"},
      {octavo_linear_select(s, nullptr, nullptr, &out), "linear descriptor"},
      {octavo_linear_can_implement(nullptr, nullptr), "linear plan"},
      {octavo_linear_run(nullptr, nullptr, nullptr, 0, nullptr), "linear run"},
      {octavo_pack_select(s, nullptr, nullptr, &out), "pack descriptor"},
      {octavo_pack_make_packed(nullptr, &packed), "pack plan"},
      {octavo_pack_can_implement(nullptr, nullptr), "pack plan"},
      {octavo_pack_run(nullptr, nullptr, nullptr, 0, nullptr), "pack run"},
      {octavo_pack_weight(s, nullptr, &packed), "weight"},
      {octavo_pack_weight_groups(s, nullptr, 4, nullptr, nullptr, &packed), "weight of groups"},
      {octavo_packed_weight_get_info(nullptr, nullptr), "info"},
      {octavo_packed_weight_serialize(nullptr, nullptr, 0), "serialize"},
      {octavo_packed_weight_deserialize(nullptr, 0, &packed), "deserialize"},
      {octavo_packed_weight_deserialize_in_place(nullptr, 0, &packed), "in place"},
      {octavo_packed_weight_unpack(nullptr, nullptr, nullptr, nullptr), "unpack"},
      {octavo_packed_weight_to(nullptr, s, &packed), "to"},
      {octavo_observer_select(s, nullptr, nullptr, &out), "observer descriptor"},
      {octavo_observer_make_state(nullptr, &state), "observer plan"},
      {octavo_observer_can_implement(nullptr, nullptr), "observer plan"},
      {octavo_observer_run(nullptr, nullptr, nullptr, 0, nullptr), "observer run"},
      {octavo_observer_state_merge(nullptr, nullptr), "merge"},
      {octavo_observer_state_extremes(nullptr, nullptr, nullptr, 0), "extremes"},
      {octavo_observer_state_counts(nullptr, nullptr, 0, 0), "counts"},
      {octavo_observer_state_calibrate(nullptr, nullptr, nullptr, nullptr, 0), "calibrate"},
  };
  for (const auto& row : refused) EXPECT_EQ(row.status, OCTAVO_INVALID_PROBLEM) << row.what;
  EXPECT_EQ(out, nullptr);
  EXPECT_EQ(packed, nullptr);
  EXPECT_EQ(state, nullptr);

  EXPECT_STREQ(octavo_plan_sku(nullptr), "");
  EXPECT_EQ(octavo_plan_workspace_size(nullptr), 0U);
  EXPECT_EQ(octavo_plan_slices(nullptr), 0);
  EXPECT_EQ(octavo_stream_threads(nullptr), 0);
  EXPECT_EQ(octavo_stream_synchronize(nullptr), OCTAVO_INVALID_PROBLEM);
  EXPECT_EQ(octavo_observer_state_slices(nullptr), 0);
  EXPECT_EQ(octavo_observer_state_bins(nullptr), 0);
  octavo_stream_destroy(nullptr);
  octavo_plan_destroy(nullptr);
  octavo_workspace_destroy(nullptr);
  octavo_packed_weight_destroy(nullptr);
  octavo_observer_state_destroy(nullptr);
}

TEST(CRefuses, PlansOfAnotherFamily) {
  Quantize c;
  const octavo_linear_args a{};
  expect_refusal(octavo_linear_run(c.plan.get(), c.cpu.get(), nullptr, 0, &a),
                 OCTAVO_INVALID_PROBLEM, "plan",
                 "expected one of octavo_linear_select, got elementwise.quantize");
  octavo_packed_weight* packed = nullptr;
  expect_refusal(octavo_pack_make_packed(c.plan.get(), &packed), OCTAVO_INVALID_PROBLEM, "plan",
                 "octavo_pack_select");
  octavo_observer_state* state = nullptr;
  expect_refusal(octavo_observer_make_state(c.plan.get(), &state), OCTAVO_INVALID_PROBLEM, "plan",
                 "octavo_observer_select");
}

TEST(CRefuses, NumbersThatNameNothing) {
  struct Field {
    const char* argument;
    std::int32_t octavo_elementwise_desc::*field;
    std::int32_t last;
  };
  for (const Field& f : {Field{"op", &octavo_elementwise_desc::op, OCTAVO_FAKE_QUANTIZE_BACKWARD},
                         Field{"layout", &octavo_elementwise_desc::layout, OCTAVO_PER_GROUP},
                         Field{"input", &octavo_elementwise_desc::input, OCTAVO_S16},
                         Field{"output", &octavo_elementwise_desc::output, OCTAVO_S16},
                         Field{"profile", &octavo_elementwise_desc::profile, OCTAVO_ONNX}})
    for (const std::int32_t wrong :
         {f.last + 1, -1, 99, 256, 260, std::numeric_limits<std::int32_t>::min()}) {
      octavo_elementwise_desc d = good_descriptor();
      d.*f.field = wrong;
      const std::string words =
          "expected 0 to " + std::to_string(f.last) + ", got " + std::to_string(wrong);
      expect_refused(d, OCTAVO_UNSUPPORTED, f.argument, words.c_str());
    }
  octavo_elementwise_desc d = good_descriptor();
  d.layout = OCTAVO_PER_TOKEN;
  d.scale_type = octavo_some(300);
  expect_refused(d, OCTAVO_UNSUPPORTED, "scale_type", "got 300");
  Quantize c;
  c.input.dtype = 260;  // s8, if only the low byte were looked at
  c.expect_refused(OCTAVO_UNSUPPORTED, "input", "got 260");

  octavo_stream_options o{sizeof o, 0, octavo_some(300)};
  octavo_stream* stream = nullptr;
  expect_refusal(octavo_stream_create(&o, &stream), OCTAVO_UNSUPPORTED, "cap", "got 300");
  o = {sizeof o, -1, {}};
  expect_refusal(octavo_stream_create(&o, &stream), OCTAVO_INVALID_PROBLEM, "threads", "got -1");
  EXPECT_EQ(stream, nullptr);
  EXPECT_STREQ(octavo_dtype_name(260), "unknown");
  EXPECT_STREQ(octavo_target_name(-1), "unknown");
  EXPECT_EQ(octavo_bytes_for(260, 8), 0);
}

TEST(CRefuses, ShapesThatMakeNoSense) {
  octavo_elementwise_desc d = good_descriptor();
  d.rank = -1;
  expect_refused(d, OCTAVO_INVALID_PROBLEM, "shape", "got -1");
  d.rank = 1;
  d.shape = nullptr;
  expect_refused(d, OCTAVO_INVALID_PROBLEM, "shape", "NULL");
  const std::int64_t nine[] = {1, 1, 1, 1, 1, 1, 1, 1, 6};
  d.rank = 9;
  d.shape = nine;
  expect_refused(d, OCTAVO_INVALID_PROBLEM, "shape", "got 9");
  const std::int64_t huge[] = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  d.rank = 2;
  d.shape = huge;
  expect_refused(d, OCTAVO_INVALID_PROBLEM, "shape", "at most");
  d = good_descriptor();
  d.layout = OCTAVO_PER_TOKEN;
  d.rank = 0;
  expect_refused(d, OCTAVO_INVALID_PROBLEM, "shape", "rank of at least 1");
  const std::int64_t rows[] = {std::int64_t{1} << 40, std::int64_t{1} << 40, 0};
  d.rank = 3;
  d.shape = rows;
  expect_refused(d, OCTAVO_INVALID_PROBLEM, "shape", "fewer than 2^60 rows");
  d = good_descriptor();
  d.op = OCTAVO_FAKE_QUANTIZE;
  expect_refused(d, OCTAVO_UNSUPPORTED, "output", "the type of input");
}

TEST(CRefuses, ArgumentsThatThePlanHasNoUseFor) {
  const auto wrong = [](auto change, const char* argument) {
    Quantize c;
    change(c.args, c.input);
    c.expect_refused(OCTAVO_INVALID_PROBLEM, argument, "expected NULL");
  };
  using Args = octavo_elementwise_args;
  using Tensor = octavo_tensor;
  wrong([](Args& a, const Tensor& t) { a.scales = &t; }, "scales");
  wrong([](Args& a, const Tensor& t) { a.zero_points = &t; }, "zero_points");
  wrong([](Args& a, const Tensor& t) { a.grad_output = &t; }, "grad_output");
  wrong([](Args& a, const Tensor& t) { a.grad_input = &t; }, "grad_input");

  const auto cpu = c_stream(1);
  octavo_elementwise_desc d = good_descriptor();
  d.op = OCTAVO_DEQUANTIZE_BACKWARD;
  d.layout = OCTAVO_PER_TOKEN;
  d.input = OCTAVO_S8;
  d.output = OCTAVO_F32;
  const auto plan = made<octavo_plan>(
      [&](auto out) { return octavo_elementwise_select(cpu.get(), &d, nullptr, out); });
  Quantize c;
  const auto check = [&](const Args& a, const char* argument, const char* words) {
    expect_refusal(octavo_elementwise_can_implement(plan.get(), &a), OCTAVO_INVALID_PROBLEM,
                   argument, words);
  };
  Args a{};
  a.struct_size = sizeof a;
  a.grad_output = a.grad_input = a.scales = &c.input;
  a.input = &c.input;
  check(a, "input", "expected NULL");
  a.input = nullptr;
  a.output = &c.input;
  check(a, "output", "grad_input");
  a.output = nullptr;
  a.scale = 0.5;
  check(a, "scale", "takes arrays, got 0.5");
  a.scale = 0;
  a.zero_point = 3;
  check(a, "zero_point", "takes arrays, got 3");
}

}  // namespace
}  // namespace octavo::testing
