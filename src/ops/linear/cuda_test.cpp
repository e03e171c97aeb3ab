// What is particular to linear layers on a CUDA device: every kernel at a size that chooses it,
// values that only the device sees, and packed weights that move. All else is one more place of the
// other tests.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "numerics/narrow_f64.hpp"
#include "ops/linear/testing.hpp"
#include "ops/linear/testing_targets.hpp"
#include "tests/cuda/driver/control.hpp"

namespace octavo::testing {
namespace {

class LinearCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_cuda()) GTEST_SKIP() << "there is no CUDA device";
  }
  static const Stream& stream() { return shared_cuda_stream(); }
  static void expect_oracle(const LinearCase& c) {
    const LinearData d = make_linear(c);
    EXPECT_EQ(compare(stream(), d, expected(d)), "");
  }
};

// ---- Each way of multiplying --------------------------------------------------------------------

struct Sizes {
  std::int64_t m, n, k;
};

TEST_F(LinearCuda, OneRow) {
  for (const DType weight : {DType::s8, DType::u8, DType::s4, DType::u4})
    for (const auto& [m, n, k] : {Sizes{1, 33, 4}, {1, 64, 256}, {1, 32, 8192}, {1, 100, 1057}}) {
      LinearCase c{.m = m, .n = n, .k = k, .activation = DType::u8, .weight = weight};
      c.packed = true;
      c.activation_zero_points = c.weight_zero_points = true;
      c.seed = static_cast<std::uint64_t>(k);
      expect_oracle(c);
      c.activation = DType::s8;
      c.output = DType::s8;
      expect_oracle(c);
    }
}

TEST_F(LinearCuda, TilesOfEveryHeight) {
  for (const DType weight : {DType::s8, DType::u8, DType::u4})
    for (const auto& [m, n, k] : {Sizes{17, 130, 96},
                                  {32, 40, 2048},
                                  {33, 129, 160},
                                  {64, 256, 64},
                                  {65, 31, 72},
                                  {130, 257, 1024},
                                  {1030, 2048, 32}}) {
      LinearCase c{.m = m, .n = n, .k = k, .weight = weight};
      c.packed = m % 2 == 0;
      c.epilogue = Epilogue::bias | Epilogue::relu;
      c.weight_zero_points = n % 2 == 1;
      c.output = m > 1000 ? DType::s8 : DType::f16;
      c.seed = static_cast<std::uint64_t>(m);
      if (m > 1000 && weight == DType::u8) continue;  // (as s8)
      expect_oracle(c);
      if (m > 1000) continue;
      c.activation = DType::u8;
      c.activation_zero_points = true;
      c.output = DType::s32;
      c.epilogue = Epilogue::none;
      expect_oracle(c);
      c.output = DType::f64;
      expect_oracle(c);
      c.kind = LinearKind::dynamic;
      c.activation = DType::f32;
      c.activation_zero_points = false;
      c.quantized = DType::s16;
      c.output = DType::bf16;
      expect_oracle(c);
    }
}

TEST_F(LinearCuda, TilesOfGroups) {
  for (const DType weight : {DType::s8, DType::u8, DType::s4, DType::u4})
    for (const auto& [sizes, group] : {std::pair{Sizes{20, 130, 64}, 32},
                                       {Sizes{64, 33, 1280}, 64},
                                       {Sizes{70, 40, 4096}, 128},
                                       {Sizes{18, 40, 4096}, 2048},
                                       {Sizes{17, 40, 1152}, 96},
                                       {Sizes{514, 2048, 64}, 32},
                                       {Sizes{514, 2048, 1024}, 512}}) {
      if (sizes.m > 500 && (weight != DType::s4 || sizes.k > 64)) continue;
      LinearCase c{.m = sizes.m, .n = sizes.n, .k = sizes.k, .weight = weight};
      c.group = group;
      c.packed = true;
      c.weight_zero_points = sizes.n % 2 == 0;
      c.parameter = DType::bf16;
      c.seed = static_cast<std::uint64_t>(sizes.m);
      expect_oracle(c);
      if (sizes.m > 500) continue;
      c.kind = LinearKind::dynamic;
      c.activation = DType::f16;
      c.mode = RangeMode::asymmetric;
      c.parameter = DType::f64;
      expect_oracle(c);
      c.mode = RangeMode::symmetric;
      c.quantized = DType::s16;
      expect_oracle(c);
    }
}

// Many groups in each of eight segments, where blocks of threads take two of them.
TEST_F(LinearCuda, TwoSegmentsInATile) {
  LinearCase c{.m = 520, .n = 1920, .k = 1024, .weight = DType::u4};
  c.group = 512;
  c.packed = true;
  const LinearData d = make_linear(c);
  const auto plan = QuantizedMatmulPlan::select(stream(), matmul_descriptor(c));
  ASSERT_TRUE(plan);
  const auto packed = packed_there(stream(), d);
  ASSERT_TRUE(packed);
  Matrix out = blank_output(c);
  const Status s =
      run_anywhere(stream(), *plan, linear_args<QuantizedMatmulPlan::Args>(d, *packed, out));
  ASSERT_TRUE(s) << s.error().message();
  // (A CPU answers sooner than the oracle.)
  Matrix answer;
  ASSERT_EQ(run(Stream::cpu(), d, answer), "");
  EXPECT_EQ(out.bytes, answer.bytes);
}

TEST_F(LinearCuda, FloatsOfFewTilesAndOfMany) {
  for (const auto& [m, n, k] :
       {Sizes{1, 70, 4097}, {5, 65, 1500}, {66, 70, 2048}, {130, 4100, 17}}) {
    LinearCase c{.kind = LinearKind::floats, .m = m, .n = n, .k = k, .activation = DType::bf16};
    c.weight = DType::f16;
    c.packed = m > 60;
    c.epilogue = Epilogue::bias | Epilogue::residual;
    expect_oracle(c);
  }
}

// What the stand-in driver counts. (Of a real one nothing is known.)
class LinearCudaCounts : public LinearCuda {
 protected:
  void SetUp() override {
    LinearCuda::SetUp();
    if (IsSkipped()) return;
    (void)stream();
    control_ = standin::Control::find();
    if (control_ == nullptr) GTEST_SKIP() << "this driver does not count";
    control_->set_counting(true);
    control_->reset_counters();
  }
  void TearDown() override {
    if (control_ != nullptr) control_->set_counting(false);
  }
  [[nodiscard]] standin::KernelCounters counted(const std::string& kernel) const {
    standin::KernelCounters c{};
    for (std::uint64_t i = 0; control_->counters(i, &c); ++i)
      if (kernel == c.name) return c;
    return {};
  }
  const standin::Control* control_ = nullptr;
};

TEST_F(LinearCudaCounts, EachKernelIsChosenAndNoLanesMeetInABank) {
  struct Choice {
    const char* kernel;
    Sizes sizes;
    DType weight;
    std::int64_t group;
    DType output;
  };
  for (const Choice& choice : {
           Choice{"linear_bytes_by_one_row", {1, 64, 512}, DType::s8, 0, DType::f32},
           {"linear_nibbles_by_one_row", {1, 64, 512}, DType::u4, 0, DType::f32},
           {"linear_bytes", {16, 64, 512}, DType::s8, 0, DType::f32},
           {"linear_nibbles", {16, 64, 512}, DType::u4, 0, DType::f32},
           {"linear_byte_groups", {16, 64, 512}, DType::s8, 128, DType::f32},
           {"linear_nibble_groups", {16, 64, 512}, DType::u4, 128, DType::f32},
           {"linear_tiles_32_bytes", {32, 256, 512}, DType::s8, 0, DType::f32},
           {"linear_tiles_64_bytes", {64, 256, 512}, DType::s8, 0, DType::f32},
           {"linear_tiles_128_bytes", {1024, 2048, 64}, DType::s8, 0, DType::f32},
           {"linear_tiles_64_nibbles", {64, 256, 512}, DType::u4, 0, DType::f32},
           {"linear_tiles_128_nibbles", {1024, 2048, 64}, DType::u4, 0, DType::f32},
           {"linear_tiles_byte_groups", {64, 256, 512}, DType::s8, 128, DType::f32},
           {"linear_tiles_nibble_groups", {64, 256, 512}, DType::u4, 128, DType::f32},
           {"linear_any_byte_groups_f32", {4, 64, 128}, DType::s8, 4, DType::f32},
           {"linear_any_nibble_groups_f64", {4, 64, 128}, DType::u4, 32, DType::f64},
       }) {
    LinearCase c{.m = choice.sizes.m, .n = choice.sizes.n, .k = choice.sizes.k};
    c.weight = choice.weight;
    c.group = choice.group;
    c.output = choice.output;
    c.packed = true;
    control_->reset_counters();
    const LinearData d = make_linear(c);
    Matrix out;
    Matrix answer;
    ASSERT_EQ(run(stream(), d, out), "");
    ASSERT_EQ(run(Stream::cpu(), d, answer), "");
    EXPECT_EQ(out.bytes, answer.bytes) << choice.kernel;
    const standin::KernelCounters found = counted(choice.kernel);
    EXPECT_EQ(found.launches, 1U) << choice.kernel;
    EXPECT_EQ(found.shared_conflicts, 0U) << choice.kernel;
  }
}

// ---- Values -------------------------------------------------------------------------------------

// The first refusal of the CPU; the same of the device, when it is waited for.
void expect_same_refusal(const LinearData& d, const std::string& argument) {
  const auto refusal_on = [&](const Stream& s, Matrix& out) {
    const auto plan = QuantizedMatmulPlan::select(s, matmul_descriptor(d.c));
    EXPECT_TRUE(plan);
    PackedWeight packed;
    if (d.c.packed) packed = *packed_there(s, d);
    out = blank_output(d.c);
    return run_anywhere(s, *plan, linear_args<QuantizedMatmulPlan::Args>(d, packed, out));
  };
  Matrix out;
  const Status host = refusal_on(Stream::cpu(), out);
  const Status device = refusal_on(shared_cuda_stream(), out);
  ASSERT_FALSE(host);
  ASSERT_FALSE(device);
  EXPECT_EQ(host.error().argument(), argument);
  EXPECT_EQ(device.error().argument(), argument);
  EXPECT_EQ(device.error().code(), host.error().code());
  EXPECT_EQ(device.error().message(), host.error().message());
  EXPECT_EQ(out.bytes, blank_output(d.c).bytes) << "a byte of output was written";
}

TEST_F(LinearCuda, RefusesValuesInTheWordsOfTheCpu) {
  for (const DType parameter : all_floats)
    for (const bool wide : {false, true}) {
      LinearCase c{.m = 20, .n = 70, .k = 64, .output = wide ? DType::f64 : DType::f32};
      c.parameter = parameter;
      c.activation_zero_points = c.weight_zero_points = true;
      const auto encoded = [&](double value) { return encode(parameter, value); };
      {
        LinearData d = make_linear(c);
        d.weight_scales.set(0, 41, encoded(std::numeric_limits<double>::infinity()));
        d.weight_scales.set(0, 60, encoded(std::nan("")));
        d.activation_zero_points[3] = 1000;
        expect_same_refusal(d, "weight_scales");
      }
      {
        LinearData d = make_linear(c);
        d.weight_zero_points[69] = 128;
        d.activation_scales.set(0, 0, encoded(std::nan("")));
        expect_same_refusal(d, "weight_zero_points");
      }
      {
        LinearData d = make_linear(c);
        d.activation_scales.set(0, 19, encoded(-std::numeric_limits<double>::infinity()));
        d.activation_zero_points[0] = -129;
        expect_same_refusal(d, "activation_scales");
      }
      LinearData d = make_linear(c);
      d.activation_zero_points[7] = -129;
      expect_same_refusal(d, "activation_zero_points");
      c.group = 32;
      d = make_linear(c);
      d.weight_scales.set(0, 99, encoded(std::nan("")));
      expect_same_refusal(d, "weight_scales");
      // And then the stream is good again.
      EXPECT_EQ(compare(stream(), make_linear(c), expected(make_linear(c))), "");
    }
}

TEST_F(LinearCuda, RefusesWhatIsPacked) {
  LinearCase c{.m = 2, .n = 40, .k = 64, .weight = DType::s4};
  c.group = 32;
  c.packed = true;
  c.weight_zero_points = true;
  const auto refusal_on = [&](const Stream& s, const LinearData& d) {
    const auto packed = packed_there(s, d);
    EXPECT_FALSE(packed);
    return packed ? std::string() : packed.error().argument() + packed.error().message();
  };
  LinearData d = make_linear(c);
  d.weight_scales.set(0, 79, encode(DType::f32, std::nan("")));
  d.weight_zero_points[5] = 8;
  EXPECT_EQ(refusal_on(stream(), d), refusal_on(Stream::cpu(), d));
  d = make_linear(c);
  d.weight_zero_points[5] = 8;
  EXPECT_EQ(refusal_on(stream(), d), refusal_on(Stream::cpu(), d));
}

TEST_F(LinearCuda, RefusesMemoryOfTheHost) {
  const LinearCase c{.m = 2, .n = 3, .k = 4};
  const LinearData d = make_linear(c);
  const auto plan = QuantizedMatmulPlan::select(stream(), matmul_descriptor(c));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->sku().backend, Backend::cuda);
  EXPECT_EQ(plan->sku().target, Target::sm80);
  Matrix out = blank_output(c);
  const auto args = linear_args<QuantizedMatmulPlan::Args>(d, {}, out);
  EXPECT_EQ(plan->can_implement(args).error().argument(), "input");
  const WorkspaceBuffer workspace(stream(), plan->workspace_size());
  EXPECT_EQ(plan->run(stream(), workspace, args).error().argument(), "input");
}

// ---- Packed weights -----------------------------------------------------------------------------

LinearCase packed_case(DType weight, std::int64_t n, std::int64_t k, std::int64_t group) {
  LinearCase c{.m = 3, .n = n, .k = k, .weight = weight};
  if (is_float(weight)) {
    c.kind = LinearKind::floats;
    c.activation = DType::f32;
  }
  c.group = group;
  c.weight_zero_points = group != 0 && n % 2 == 0;
  c.packed = true;
  c.parameter = DType::f16;
  return c;
}

TEST_F(LinearCuda, PackedWeightsMoveThereAndBack) {
  for (const DType weight :
       {DType::s8, DType::u8, DType::s4, DType::u4, DType::f32, DType::f16, DType::bf16})
    for (const auto& [n, k, group] : {std::array<std::int64_t, 3>{1, 1, 0},
                                      {33, 70, 0},
                                      {70, 96, 32},
                                      {31, 20, 4},
                                      {0, 8, 0},
                                      {5, 0, 0}}) {
      if (is_float(weight) && group != 0) continue;
      const LinearCase c = packed_case(weight, n, k, group);
      const LinearData d = make_linear(c);
      const auto host = packed_weight(Stream::cpu(), d);
      ASSERT_TRUE(host) << host.error().message();
      const auto there = host->to(stream());
      ASSERT_TRUE(there) << there.error().message();
      EXPECT_NE(there->format(), host->format());
      EXPECT_EQ(there->format().code, weight);
      EXPECT_TRUE(there->serialize().empty());
      const auto again = there->to(stream());
      ASSERT_TRUE(again);
      EXPECT_EQ(again->impl(), there->impl());
      const auto back = there->to(Stream::cpu());
      ASSERT_TRUE(back) << back.error().message();
      EXPECT_EQ(back->serialize(), host->serialize()) << c.text();
      // It multiplies as one that was packed there.
      Matrix out = blank_output(c);
      const auto run_with = [&]<class Plan>(const typename Plan::Descriptor& descriptor) {
        const auto plan = Plan::select(stream(), descriptor);
        ASSERT_TRUE(plan);
        const Status s =
            run_anywhere(stream(), *plan, linear_args<typename Plan::Args>(d, *there, out));
        ASSERT_TRUE(s) << s.error().message();
      };
      if (is_float(weight)) {
        run_with.operator()<FloatLinearPlan>(float_descriptor(c));
      } else {
        run_with.operator()<QuantizedMatmulPlan>(matmul_descriptor(c));
      }
      EXPECT_EQ(out.bytes, expected(d).bytes) << c.text();
    }
}

TEST_F(LinearCuda, PackedWeightsOfTheHostAreRefusedByName) {
  const LinearCase c = packed_case(DType::s8, 4, 8, 0);
  const LinearData d = make_linear(c);
  const auto host = packed_weight(Stream::cpu(), d);
  ASSERT_TRUE(host);
  const auto plan = QuantizedMatmulPlan::select(stream(), matmul_descriptor(c));
  ASSERT_TRUE(plan);
  Matrix out = blank_output(c);
  const Status s = plan->can_implement(linear_args<QuantizedMatmulPlan::Args>(d, *host, out));
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().argument(), "weight");
  EXPECT_FALSE(PackedWeight().to(stream()));
}

// What is queued reads it still.
TEST_F(LinearCuda, APackedWeightMayGoBeforeItsWork) {
  const LinearCase c = packed_case(DType::s4, 70, 96, 32);
  const LinearData d = make_linear(c);
  const auto plan = QuantizedMatmulPlan::select(stream(), matmul_descriptor(c));
  ASSERT_TRUE(plan);
  Matrix out = blank_output(c);
  Mirror mirror(stream());
  {
    const auto packed = packed_there(stream(), d);
    ASSERT_TRUE(packed);
    const auto args = linear_args<QuantizedMatmulPlan::Args>(d, *packed, out);
    add_tensors(args, mirror);
    mirror.upload();
    const WorkspaceBuffer workspace(stream(), plan->workspace_size());
    ASSERT_TRUE(plan->run(stream(), workspace, moved(args, mirror)));
  }
  ASSERT_TRUE(stream().synchronize());
  ASSERT_TRUE(mirror.download());
  EXPECT_EQ(out.bytes, expected(d).bytes);
}

TEST_F(LinearCuda, TwoStreamsAtOnce) {
  const auto other = cuda_stream();
  ASSERT_TRUE(other);
  LinearCase c{.kind = LinearKind::dynamic, .m = 40, .n = 70, .k = 300, .activation = DType::f32};
  c.epilogue = Epilogue::residual;
  const LinearData d = make_linear(c);
  const Matrix answer = expected(d);
  const auto plan = QuantizedLinearPlan::select(stream(), dynamic_descriptor(c));
  ASSERT_TRUE(plan);
  struct Call {
    explicit Call(const Stream& s) : mirror(s) {}
    Matrix out;
    Mirror mirror;
  };
  std::vector<std::unique_ptr<Call>> calls;
  std::vector<WorkspaceBuffer> workspaces;
  for (int i = 0; i < 6; ++i) {
    const Stream& on = i % 2 == 0 ? stream() : *other;
    Call& call = *calls.emplace_back(std::make_unique<Call>(on));
    call.out = blank_output(c);
    const auto args = linear_args<QuantizedLinearPlan::Args>(d, {}, call.out);
    add_tensors(args, call.mirror);
    call.mirror.upload();
    workspaces.emplace_back(on, plan->workspace_size());
    ASSERT_TRUE(plan->run(on, workspaces.back(), moved(args, call.mirror)));
  }
  ASSERT_TRUE(stream().synchronize());
  ASSERT_TRUE(other->synchronize());
  for (const auto& call : calls) {
    ASSERT_TRUE(call->mirror.download());
    EXPECT_EQ(call->out.bytes, answer.bytes);
  }
}

TEST_F(LinearCuda, WhatIsMadeIsZero) {
  for (const std::int64_t group : {0, 32}) {
    const auto plan = PackWeightPlan::select(
        stream(), {.n = 5, .k = 64, .weight = DType::s8, .group_size = group});
    ASSERT_TRUE(plan);
    const auto made = plan->make_packed();
    ASSERT_TRUE(made);
    std::vector<std::int8_t> rows(std::size_t{5} * 64, 1);
    ASSERT_TRUE(made->unpack(TensorMut(rows.data(), {5, 64})));
    EXPECT_EQ(rows, std::vector<std::int8_t>(rows.size(), 0));
  }
}

// ---- Arithmetic without f64 instructions --------------------------------------------------------

TEST(NarrowF64, IsWhatConversionGives) {
  Random random(3);
  const auto check = [](std::uint64_t bits) {
    const auto value = std::bit_cast<double>(bits);
    const float narrow = octavo::numerics::narrow_f64(bits);
    if (std::isnan(value)) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(narrow), octavo::numerics::canonical_nan);
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(narrow),
                std::bit_cast<std::uint32_t>(static_cast<float>(value)))
          << bits;
    }
  };
  // Around every float's exponent, and halfway between floats.
  for (std::uint64_t exponent = 0; exponent < 2048; ++exponent)
    for (int i = 0; i < 200; ++i) {
      std::uint64_t fraction = random.below(std::uint64_t{1} << 52U);
      const auto cut = random.below(54);
      if (i % 4 != 0) fraction = fraction >> cut << cut;
      if (i % 4 == 2 && fraction > 0) --fraction;
      if (i % 4 == 3) fraction |= 1U;
      const std::uint64_t bits = exponent << 52U | (fraction & 0xFFFFFFFFFFFFFU);
      check(bits);
      check(bits | 0x8000000000000000U);
    }
}

}  // namespace
}  // namespace octavo::testing
