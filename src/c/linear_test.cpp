// The same bits through C as through C++: linear layers, matmuls, packed weights.
#include "c/testing.hpp"
#include "ops/linear/testing_guard.hpp"

namespace octavo::testing {
namespace {

octavo_linear_desc c_descriptor(const LinearData& data) {
  const LinearCase& c = data.c;
  octavo_linear_desc d{};
  d.struct_size = sizeof d;
  d.op = c.kind == LinearKind::matmul        ? OCTAVO_QUANTIZED_MATMUL
         : c.kind == LinearKind::dynamic     ? OCTAVO_QUANTIZED_LINEAR
         : c.kind == LinearKind::smoothquant ? OCTAVO_SMOOTHQUANT_LINEAR
                                             : OCTAVO_FLOAT_LINEAR;
  d.m = c.m;
  d.n = c.n;
  d.k = c.k;
  d.activation = static_cast<octavo_dtype>(c.activation);
  d.weight = static_cast<octavo_dtype>(c.weight);
  d.output = static_cast<octavo_dtype>(c.output);
  d.weight_zero_points = c.weight_zero_points ? 1 : 0;
  d.packed_weight = c.packed ? 1 : 0;
  d.epilogue = static_cast<octavo_epilogue>(c.epilogue);
  d.profile = static_cast<octavo_profile>(c.profile);
  d.mode = static_cast<octavo_range_mode>(c.mode);
  d.quantized = to_c(c.quantized);
  if (c.kind == LinearKind::smoothquant) {
    d.act_scale = data.act_scale;
    d.act_zero_point = data.act_zero_point;
  }
  d.activation_zero_points = c.activation_zero_points ? 1 : 0;
  d.group_size = c.group;
  if (c.parameter != DType::f32) d.weight_scale = to_c(std::optional(c.parameter));
  return d;
}

octavo_linear_args c_arguments(CTensors& c, const LinearData& data,
                               const octavo_packed_weight* packed, Matrix& out) {
  const PackedWeight none;
  const auto cpp = linear_args<QuantizedMatmulArgs>(data, none, out);
  octavo_linear_args a{};
  a.struct_size = sizeof a;
  a.input = c(cpp.input);
  if (data.c.packed) {
    a.packed = packed;
  } else {
    a.weight = c(cpp.weight.tensor);
  }
  if (data.c.kind != LinearKind::floats) {
    a.weight_scales = c.maybe(cpp.weight_scales);
    a.weight_zero_points = c.maybe(cpp.weight_zero_points);
  }
  if (data.c.kind == LinearKind::matmul) {
    a.activation_scales = c.maybe(cpp.activation_scales);
    a.activation_zero_points = c.maybe(cpp.activation_zero_points);
  }
  a.bias = c.maybe(cpp.bias);
  a.residual = c.maybe(cpp.residual);
  if (is_quantized(data.c.output)) a.output_scale = cpp.output_scale;
  a.output_zero_point = cpp.output_zero_point;
  a.output = c(cpp.output);
  return a;
}

// The scales of groups, and their zero points.
const octavo_tensor* c_scales(CTensors& tensors, const LinearData& d) {
  return tensors(
      TensorRef(d.weight_scales.bytes.data(), d.weight_scales.type, {d.c.n, d.c.groups()}));
}
const octavo_tensor* c_zero_points(CTensors& tensors, const LinearData& d) {
  if (!d.c.weight_zero_points) return nullptr;
  return tensors(TensorRef(d.weight_zero_points.data(), {d.c.n, d.c.groups()}));
}

Handle<octavo_packed_weight> c_packed(const octavo_stream* cpu, const LinearData& d) {
  CTensors tensors;
  const octavo_tensor* weight = tensors(d.weight.ref());
  return made<octavo_packed_weight>([&](auto out) {
    if (d.c.group == 0) return octavo_pack_weight(cpu, weight, out);
    return octavo_pack_weight_groups(cpu, weight, d.c.group, c_scales(tensors, d),
                                     c_zero_points(tensors, d), out);
  });
}

// A case by C, and by C++.
void expect_bits_of_cxx(const octavo_stream* cpu, const LinearData& data) {
  SCOPED_TRACE(data.c.text());
  Matrix want;
  ASSERT_EQ(run(Stream::cpu(), data, want), "");
  const octavo_linear_desc d = c_descriptor(data);
  const auto plan =
      made<octavo_plan>([&](auto out) { return octavo_linear_select(cpu, &d, nullptr, out); });
  ASSERT_NE(plan, nullptr);
  octavo_guarantee guarantee{};
  guarantee.struct_size = sizeof guarantee;
  ASSERT_EQ(octavo_plan_guarantee(plan.get(), &guarantee), OCTAVO_OK);
  EXPECT_EQ(guarantee.accumulator.is_set, data.c.kind == LinearKind::floats ? 0 : 1);
  if (guarantee.accumulator.is_set != 0) {
    EXPECT_EQ(guarantee.accumulator.value, OCTAVO_S32);
  }
  Handle<octavo_packed_weight> packed;
  if (data.c.packed) packed = c_packed(cpu, data);
  Matrix got = blank_output(data.c);
  CTensors tensors;
  const octavo_linear_args a = c_arguments(tensors, data, packed.get(), got);
  const CWorkspace workspace(plan.get());
  EXPECT_EQ(octavo_linear_can_implement(plan.get(), &a), OCTAVO_OK);
  ASSERT_EQ(octavo_linear_run(plan.get(), cpu, workspace.data, workspace.bytes, &a), OCTAVO_OK)
      << octavo_last_error()->message;
  EXPECT_EQ(got.bytes, want.bytes);
}

TEST(CLinear, GivesTheBitsOfCxx) {
  const auto cpu = c_stream();
  int packed_ones = 0;
  for (std::uint64_t turn = 0; turn < (slow_machine() ? 28 : 140); ++turn) {
    const LinearData data = make_linear(linear_case_in_turn(turn, 5, 19, 33));
    packed_ones += data.c.packed ? 1 : 0;
    expect_bits_of_cxx(cpu.get(), data);
  }
  EXPECT_GT(packed_ones, 0);
}

TEST(CLinear, GivesTheBitsOfCxxInGroupsToo) {
  const auto cpu = c_stream();
  constexpr std::array weights{DType::s4, DType::u4, DType::s8, DType::u8};
  constexpr std::array kinds{LinearKind::dynamic, LinearKind::matmul, LinearKind::smoothquant};
  for (std::uint64_t i = 0; i < (slow_machine() ? 24 : 96); ++i) {
    LinearCase c;
    c.m = 3, c.n = 35, c.k = 48;
    c.group = i % 5 == 4 ? 0 : i % 2 == 0 ? 8 : 16;
    c.kind = kinds[i % 3];
    c.weight = weights[i / 3 % 4];
    if (c.kind == LinearKind::dynamic) {
      c.activation = all_floats[i / 12 % all_floats.size()];
      if (i % 2 == 0) c.quantized = DType::s16;
    }
    c.weight_zero_points = i % 4 < 2;
    c.packed = i % 7 < 5;
    c.parameter = all_floats[i / 2 % all_floats.size()];
    c.epilogue = static_cast<Epilogue>(i % 8);
    c.seed = i;
    expect_bits_of_cxx(cpu.get(), make_linear(c));
  }
}

TEST(CLinear, GivesTheBitsOfCxxOfFloatsToo) {
  const auto cpu = c_stream();
  constexpr std::array types{DType::f32, DType::f16, DType::bf16};
  constexpr std::array outputs{DType::f32, DType::f16, DType::bf16, DType::s8, DType::u8};
  for (std::uint64_t i = 0; i < 45; ++i) {
    LinearCase c;
    c.kind = LinearKind::floats;
    c.m = 3, c.n = 35, c.k = 21;
    c.activation = types[i % 3];
    c.weight = types[i / 3 % 3];
    c.output = outputs[i % 5];
    c.packed = i % 2 == 0;
    c.epilogue = static_cast<Epilogue>(i % 8);
    c.seed = i;
    expect_bits_of_cxx(cpu.get(), make_linear(c));
  }
}

TEST(CLinear, RefusesWhatFloatsHaveNoUseFor) {
  const auto cpu = c_stream();
  LinearCase c;
  c.kind = LinearKind::floats;
  c.m = 2, c.n = 3, c.k = 8;
  c.activation = c.weight = DType::f32;
  const LinearData data = make_linear(c);
  octavo_plan* none = nullptr;
  octavo_linear_desc d = c_descriptor(data);
  d.group_size = 4;
  expect_refusal(octavo_linear_select(cpu.get(), &d, nullptr, &none), OCTAVO_INVALID_PROBLEM,
                 "group_size", "FLOAT_LINEAR have no scales), got 4");
  d = c_descriptor(data);
  d.weight_scale = octavo_some(OCTAVO_BF16);
  expect_refusal(octavo_linear_select(cpu.get(), &d, nullptr, &none), OCTAVO_INVALID_PROBLEM,
                 "weight_scale", "FLOAT_LINEAR have no scales), got bf16");
  d = c_descriptor(data);
  d.weight_zero_points = 1;
  expect_refusal(octavo_linear_select(cpu.get(), &d, nullptr, &none), OCTAVO_INVALID_PROBLEM,
                 "weight_zero_points", "FLOAT_LINEAR");
  EXPECT_EQ(none, nullptr);
  d = c_descriptor(data);
  const auto plan = made<octavo_plan>(
      [&](auto out) { return octavo_linear_select(cpu.get(), &d, nullptr, out); });
  Matrix out = blank_output(c);
  CTensors tensors;
  const octavo_linear_args good = c_arguments(tensors, data, nullptr, out);
  ASSERT_EQ(octavo_linear_can_implement(plan.get(), &good), OCTAVO_OK);
  octavo_linear_args a = good;
  a.weight_scales = good.input;
  expect_refusal(octavo_linear_can_implement(plan.get(), &a), OCTAVO_INVALID_PROBLEM,
                 "weight_scales", "expected NULL");
  a = good;
  a.weight_zero_points = good.input;
  expect_refusal(octavo_linear_can_implement(plan.get(), &a), OCTAVO_INVALID_PROBLEM,
                 "weight_zero_points", "expected NULL");
}

TEST(CLinear, TakesADescriptorFromBeforeThereWereGroups) {
  const auto cpu = c_stream();
  LinearCase c;
  c.m = 2, c.n = 3, c.k = 8;
  const LinearData data = make_linear(c);
  octavo_linear_desc d = c_descriptor(data);
  // What lies behind is not looked at.
  d.struct_size = offsetof(octavo_linear_desc, group_size);
  d.group_size = 3;
  d.weight_scale = octavo_some(99);
  const auto plan = made<octavo_plan>(
      [&](auto out) { return octavo_linear_select(cpu.get(), &d, nullptr, out); });
  ASSERT_NE(plan, nullptr);
  d.struct_size = sizeof d;
  octavo_plan* none = nullptr;
  expect_refusal(octavo_linear_select(cpu.get(), &d, nullptr, &none), OCTAVO_UNSUPPORTED,
                 "weight_scale", "got 99");
  d.weight_scale = {};
  expect_refusal(octavo_linear_select(cpu.get(), &d, nullptr, &none), OCTAVO_INVALID_PROBLEM,
                 "group_size", "multiple of 4, got 3");
}

TEST(CLinear, RefusesWhatItHasNoUseFor) {
  const auto cpu = c_stream();
  const auto take = [](LinearKind kind, bool packed) {
    LinearCase c;
    c.kind = kind;
    c.m = 2, c.n = 3, c.k = 4;
    c.packed = packed;
    return make_linear(c);
  };
  const LinearData smooth = take(LinearKind::smoothquant, false);
  const octavo_linear_desc d = c_descriptor(smooth);
  const auto plan = made<octavo_plan>(
      [&](auto out) { return octavo_linear_select(cpu.get(), &d, nullptr, out); });
  Matrix out = blank_output(smooth.c);
  CTensors tensors;
  const octavo_linear_args good = c_arguments(tensors, smooth, nullptr, out);
  ASSERT_EQ(octavo_linear_can_implement(plan.get(), &good), OCTAVO_OK);
  const auto refused = [&](const octavo_linear_args& a, octavo_status code, const char* argument,
                           const char* words) {
    expect_refusal(octavo_linear_can_implement(plan.get(), &a), code, argument, words);
    const CWorkspace workspace(plan.get());
    expect_refusal(octavo_linear_run(plan.get(), cpu.get(), workspace.data, workspace.bytes, &a),
                   code, argument, words);
    EXPECT_EQ(out.bytes, blank_output(smooth.c).bytes);
  };
  octavo_linear_args a = good;
  a.activation_scales = good.weight_scales;
  refused(a, OCTAVO_INVALID_PROBLEM, "activation_scales", "QUANTIZED_MATMUL");
  a = good;
  a.activation_zero_points = good.weight_scales;
  refused(a, OCTAVO_INVALID_PROBLEM, "activation_zero_points", "QUANTIZED_MATMUL");
  const auto packed = c_packed(cpu.get(), smooth);
  a = good;
  a.packed = packed.get();
  refused(a, OCTAVO_INVALID_PROBLEM, "weight", "packed");
  a.weight = nullptr;
  refused(a, OCTAVO_UNSUPPORTED, "weight", "expected rows");
  a = good;
  a.bias = good.weight_scales;
  refused(a, OCTAVO_INVALID_PROBLEM, "bias", "bias");
  for (const octavo_tensor* octavo_linear_args::*field :
       {&octavo_linear_args::input, &octavo_linear_args::weight, &octavo_linear_args::output}) {
    a = good;
    a.*field = nullptr;
    EXPECT_EQ(octavo_linear_can_implement(plan.get(), &a), OCTAVO_INVALID_PROBLEM);
    EXPECT_NE(std::string(octavo_last_error()->message).find("got NULL"), std::string::npos);
  }
}

TEST(CLinear, RefusesAQuantizedOutputWithoutItsScale) {
  const auto cpu = c_stream();
  LinearCase c;
  c.output = DType::s8;
  const LinearData data = make_linear(c);
  const octavo_linear_desc d = c_descriptor(data);
  const auto plan = made<octavo_plan>(
      [&](auto out) { return octavo_linear_select(cpu.get(), &d, nullptr, out); });
  Matrix out = blank_output(c);
  CTensors tensors;
  octavo_linear_args a = c_arguments(tensors, data, nullptr, out);
  a.output_scale = 0;
  expect_refusal(octavo_linear_can_implement(plan.get(), &a), OCTAVO_INVALID_PROBLEM,
                 "output_scale", "got 0");
}

}  // namespace
}  // namespace octavo::testing
