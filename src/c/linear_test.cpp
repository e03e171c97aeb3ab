// The same bits through C as through C++: linear layers, matmuls, packed weights.
#include "c/testing.hpp"
#include "ops/linear/testing_guard.hpp"

namespace octavo::testing {
namespace {

octavo_linear_desc c_descriptor(const LinearData& data) {
  const LinearCase& c = data.c;
  octavo_linear_desc d{};
  d.struct_size = sizeof d;
  d.op = c.kind == LinearKind::matmul    ? OCTAVO_QUANTIZED_MATMUL
         : c.kind == LinearKind::dynamic ? OCTAVO_QUANTIZED_LINEAR
                                         : OCTAVO_SMOOTHQUANT_LINEAR;
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
  a.weight_scales = c.maybe(cpp.weight_scales);
  a.weight_zero_points = c.maybe(cpp.weight_zero_points);
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

Handle<octavo_packed_weight> c_packed(const octavo_stream* cpu, const Matrix& weight) {
  CTensors tensors;
  return made<octavo_packed_weight>(
      [&](auto out) { return octavo_pack_weight(cpu, tensors(weight.ref()), out); });
}

TEST(CLinear, GivesTheBitsOfCxx) {
  const auto cpu = c_stream();
  int packed_ones = 0;
  for (std::uint64_t turn = 0; turn < (slow_machine() ? 28 : 140); ++turn) {
    const LinearData data = make_linear(linear_case_in_turn(turn, 5, 19, 33));
    SCOPED_TRACE(data.c.text());
    Matrix want;
    ASSERT_EQ(run(Stream::cpu(), data, want), "");

    const octavo_linear_desc d = c_descriptor(data);
    const auto plan = made<octavo_plan>(
        [&](auto out) { return octavo_linear_select(cpu.get(), &d, nullptr, out); });
    ASSERT_NE(plan, nullptr);
    octavo_guarantee guarantee{};
    guarantee.struct_size = sizeof guarantee;
    ASSERT_EQ(octavo_plan_guarantee(plan.get(), &guarantee), OCTAVO_OK);
    EXPECT_EQ(guarantee.accumulator.is_set, 1);
    EXPECT_EQ(guarantee.accumulator.value, OCTAVO_S32);
    Handle<octavo_packed_weight> packed;
    if (data.c.packed) packed = c_packed(cpu.get(), data.weight), ++packed_ones;
    Matrix got = blank_output(data.c);
    CTensors tensors;
    const octavo_linear_args a = c_arguments(tensors, data, packed.get(), got);
    const CWorkspace workspace(plan.get());
    EXPECT_EQ(octavo_linear_can_implement(plan.get(), &a), OCTAVO_OK);
    ASSERT_EQ(octavo_linear_run(plan.get(), cpu.get(), workspace.data, workspace.bytes, &a),
              OCTAVO_OK)
        << octavo_last_error()->message;
    EXPECT_EQ(got.bytes, want.bytes);
  }
  EXPECT_GT(packed_ones, 0);
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
  const auto packed = c_packed(cpu.get(), smooth.weight);
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

TEST(CPackedWeight, IsThatOfCxx) {
  const auto cpu = c_stream();
  LinearCase c;
  c.n = 19, c.k = 33, c.weight = DType::u8;
  const LinearData data = make_linear(c);
  const std::vector<std::byte> want = pack(Stream::cpu(), data.weight.ref())->serialize();

  const octavo_pack_desc d{sizeof d, c.n, c.k, OCTAVO_U8};
  const auto plan =
      made<octavo_plan>([&](auto out) { return octavo_pack_select(cpu.get(), &d, nullptr, out); });
  const auto packed = made<octavo_packed_weight>(
      [&](auto out) { return octavo_pack_make_packed(plan.get(), out); });
  CTensors tensors;
  const octavo_pack_args a{sizeof a, tensors(data.weight.ref()), packed.get()};
  EXPECT_EQ(octavo_pack_can_implement(plan.get(), &a), OCTAVO_OK);
  ASSERT_EQ(octavo_pack_run(plan.get(), cpu.get(), nullptr, 0, &a), OCTAVO_OK);

  octavo_packed_weight_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(octavo_packed_weight_get_info(packed.get(), &info), OCTAVO_OK);
  EXPECT_EQ(info.n, c.n);
  EXPECT_EQ(info.k, c.k);
  EXPECT_EQ(info.dtype, OCTAVO_U8);
  ASSERT_EQ(info.serialized_bytes, want.size());

  std::vector<std::byte> image(want.size(), std::byte{0x55});
  expect_refusal(octavo_packed_weight_serialize(packed.get(), image.data(), image.size() - 1),
                 OCTAVO_BUFFER_TOO_SMALL, "image", "expected at least");
  EXPECT_EQ(octavo_last_error()->needed, static_cast<std::int64_t>(want.size()));
  EXPECT_EQ(octavo_last_error()->got, static_cast<std::int64_t>(want.size()) - 1);
  EXPECT_EQ(image, std::vector<std::byte>(want.size(), std::byte{0x55}));
  ASSERT_EQ(octavo_packed_weight_serialize(packed.get(), image.data(), image.size()), OCTAVO_OK);
  EXPECT_EQ(image, want);

  const auto read = made<octavo_packed_weight>(
      [&](auto out) { return octavo_packed_weight_deserialize(image.data(), image.size(), out); });
  std::vector<std::byte> again(want.size());
  ASSERT_EQ(octavo_packed_weight_serialize(read.get(), again.data(), again.size()), OCTAVO_OK);
  EXPECT_EQ(again, want);

  octavo_packed_weight* out = nullptr;
  image.back() ^= std::byte{1};
  expect_refusal(octavo_packed_weight_deserialize(image.data(), image.size(), &out),
                 OCTAVO_INVALID_PROBLEM, "image", "damaged");
  EXPECT_EQ(out, nullptr);
}

}  // namespace
}  // namespace octavo::testing
