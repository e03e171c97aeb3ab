// Memory that the linear plans refuse: overlaps, and workspaces. And scales that may look wrong but
// are not.
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "ops/linear/testing_refusals.hpp"

namespace octavo::testing {
namespace {

using enum LinearKind;
using Attempt = LinearAttempt;

struct Named {
  Part part;
  const char* name;
};
/// What a plan of this kind reads.
std::vector<Named> reads(const LinearCase& c) {
  std::vector<Named> parts{{Part::input, "input"},
                           {Part::weight_scales, "weight_scales"},
                           {Part::weight_zero_points, "weight_zero_points"},
                           {Part::bias, "bias"},
                           {Part::residual, "residual"}};
  if (!c.packed) parts.push_back({Part::weight, "weight"});
  if (c.kind == matmul) {
    parts.push_back({Part::activation_scales, "activation_scales"});
    parts.push_back({Part::activation_zero_points, "activation_zero_points"});
  }
  return parts;
}

TEST(LinearOverlaps, OfTheOutputWithAnythingThatIsRead) {
  for (const LinearKind kind : linear_kinds)
    for (const Named& read_part : reads(full_case(kind))) {
      const Part part = read_part.part;
      const char* argument = read_part.name;
      Attempt attempt(kind);
      const TensorRef& read = attempt.ref(part);
      const std::int64_t size = bytes_for(read.dtype, numel(read.shape));
      constexpr std::int64_t output_size = std::int64_t{4} * 6 * 4;
      const auto refused = [&](std::int64_t offset) {
        attempt.args.output.data = attempt.at(part) + offset;
        attempt.expect_refused(invalid("output", {"apart", argument, "overlap"}));
      };
      if (part != Part::residual) refused(0);
      refused(4 - output_size);     // its last element is the first that is read
      refused((size - 1) / 4 * 4);  // and the reverse
      refused(size > 8 ? 8 : 4 - output_size);
      for (const std::int64_t beside : {-output_size, (size + 3) / 4 * 4}) {
        Attempt other(kind);
        other.args.output.data = other.at(part) + beside;
        other.expect_accepted();
        EXPECT_EQ(std::memcmp(other.args.output.data, expected(other.data()).bytes.data(),
                              static_cast<std::size_t>(output_size)),
                  0)
            << argument;
      }
    }
}

TEST(LinearOverlaps, OfTheOutputWithGapsBetweenRows) {
  // The first and the last byte count, not what lies between: simple, and said so.
  Attempt attempt(smoothquant);
  attempt.args.input = TensorRef(attempt.at(Part::input), DType::s8, {4, 8}, {200, 1});
  attempt.args.output.data = attempt.at(Part::input) + 64;
  attempt.expect_refused(invalid("output", {"input"}));
}

TEST(LinearOverlaps, TheResidualMayBeTheOutput) {
  for (const LinearKind kind : linear_kinds)
    for (const DType output : all_floats)
      for (const std::int64_t padding : {0, 3}) {
        LinearCase c = full_case(kind);
        c.output = output;
        c.padding = padding;
        Attempt attempt(c);
        Matrix want = expected(attempt.data());
        // Both begin as the residual, with its gaps.
        const Bytes& residual = attempt.data().residual.bytes;
        std::copy(residual.begin(), residual.end(), attempt.at(Part::output));
        for (std::int64_t r = 0; r + 1 < c.m; ++r)
          for (std::int64_t i = c.n; i < c.n + padding; ++i)
            want.set(r, i, attempt.data().residual.get(r, i));
        attempt.args.residual = attempt.args.output;
        attempt.expect_accepted();
        EXPECT_TRUE(attempt.written() == want.bytes) << c.text();
      }
}

TEST(LinearOverlaps, TheResidualMayNotBePartOfTheOutput) {
  for (const LinearKind kind : linear_kinds) {
    const auto refused = [&](auto spoil) {
      Attempt attempt(kind);
      attempt.args.residual = attempt.args.output;
      spoil(attempt);
      attempt.expect_refused(invalid("output", {"residual", "overlap"}));
    };
    const auto shift = [](std::int64_t bytes) {
      return [=](Attempt& a) { a.args.residual.data = a.at(Part::output) + bytes; };
    };
    for (const std::int64_t bytes : {4, -4, 24, -24, 92, -92}) refused(shift(bytes));
    refused([](Attempt& a) { a.args.residual.strides = {7, 1}; });
    refused([](Attempt& a) { a.args.residual.strides = {0, 1}; });
    refused([](Attempt& a) { a.args.output.strides = {7, 1}; });
    // Quantized: the residual is of f32.
    LinearCase c = full_case(kind);
    c.output = DType::s8;
    Attempt quantized(c);
    quantized.args.residual.data = quantized.at(Part::output);
    quantized.expect_refused(invalid("output", {"residual", "overlap"}));
  }
}

// ---- workspaces --------------------------------------------------------------------------------

TEST(LinearWorkspaces, TooSmall) {
  for (const LinearKind kind : linear_kinds)
    for (const bool packed : {false, true}) {
      LinearCase c = full_case(kind);
      c.packed = packed;
      Attempt attempt(c);
      const auto needed = static_cast<std::int64_t>(attempt.workspace_size());
      ASSERT_GT(needed, 0);
      const auto refused = [&](void* data, std::int64_t lent, std::int64_t got) {
        attempt.lent = {data, static_cast<std::size_t>(lent)};
        attempt.expect_refused({ErrorCode::workspace_too_small,
                                {"workspace"},
                                {std::to_string(needed), std::to_string(got)},
                                needed,
                                got},
                               true);
      };
      void* data = attempt.lent.data;
      refused(data, needed - 1, needed - 1);
      refused(data, 0, 0);
      refused(nullptr, needed, 0);
      refused(nullptr, 0, 0);
      attempt.lent = {data, static_cast<std::size_t>(needed)};
      attempt.expect_oracle();
    }
}

TEST(LinearWorkspaces, Misaligned) {
  for (const LinearKind kind : linear_kinds)
    for (int i = 1; i < 64; ++i)
      refuse(
          {ErrorCode::misaligned_operand, {"workspace"}, {"64", std::to_string(i) + " past"}},
          [&](Attempt& a) { a.lent.data = static_cast<std::byte*>(a.lent.data) + i; }, {kind},
          true);
}

TEST(LinearWorkspaces, OverlappingAnArgument) {
  const Refusal overlap = invalid("workspace", {"apart", "overlap"});
  for (const LinearKind kind : linear_kinds) {
    LinearCase c = full_case(kind);
    c.packed = true;  // so that it is small, and touches one argument only
    std::vector<Named> all = reads(c);
    all.push_back({Part::output, "output"});
    for (const auto& [part, argument] : all) {
      SCOPED_TRACE(argument);
      Attempt attempt(c);
      attempt.options.cap = Target::scalar;
      const std::size_t needed = attempt.workspace_size();
      ASSERT_LE(needed, Attempt::part_bytes - 256);
      attempt.lent = {attempt.at(part) - needed + 64, needed};
      attempt.expect_refused(overlap, true);
      attempt.lent.data = attempt.at(part);
      attempt.expect_refused(overlap, true);
      attempt.lent.data = attempt.at(part) - needed;
      attempt.expect_oracle();
    }
    // Weights as they are; and what is lent but not needed may be anything.
    Attempt rows(kind);
    const std::size_t needed = rows.workspace_size();
    std::byte* behind = rows.at(Part::count);
    ASSERT_LE(needed + 1024, Attempt::front_bytes);
    std::memcpy(behind + needed, rows.args.weight.tensor.data, std::size_t{6} * 8);
    rows.args.weight.tensor.data = behind + needed;
    rows.lent = {behind + 64, needed};
    rows.expect_refused(overlap, true);
    rows.lent = {behind, needed + 64};
    rows.expect_oracle();
  }
}

// ---- scales that are fine ----------------------------------------------------------------------

/// Data with scales dealt out in turn: of activations from one list, of weights from another.
LinearData scaled(const LinearCase& c, const std::vector<double>& activations,
                  const std::vector<double>& weights, std::uint64_t turn) {
  LinearData d = make_linear(c);
  const auto deal = [&](Matrix& to, const std::vector<double>& from, std::uint64_t start) {
    for (std::int64_t i = 0; i < to.columns; ++i)
      to.set(0, i, encode(to.type, from[(start + static_cast<std::uint64_t>(i)) % from.size()]));
  };
  deal(d.activation_scales, activations, turn);
  deal(d.weight_scales, weights, 3 * turn);
  if (c.kind == smoothquant) d.act_scale = activations[turn % activations.size()];
  return d;
}

// Zero and negative scales are valid; so are those whose products overflow or vanish.
TEST(LinearAccepts, AnyFiniteScale) {
  const std::vector<double> ordinary{0.0, -0.0, 1.0, -1.0, -0.1, 0.37};
  const std::vector<double> extreme{0.0,     -0.0,     3e38,   -3e38,   0x1p-149, -0x1p-126,
                                    1.5e-39, -2.5e-20, 1e-300, -1e-310, 1e38,     -7};
  std::uint64_t turn = 0;
  for (const LinearKind kind : linear_kinds)
    for (const DType output :
         {DType::f32, DType::f64, DType::f16, DType::bf16, DType::s8, DType::u8})
      for (const DType parameter : {DType::f32, DType::f64, DType::bf16})
        for (int epilogue = 0; epilogue < 8; ++epilogue)
          for (const auto* scales : {&ordinary, &extreme}) {
            LinearCase c = full_case(kind);
            c.m = 9;
            c.n = 23;
            c.output = output;
            c.parameter = parameter;
            c.epilogue = static_cast<Epilogue>(epilogue);
            c.seed = ++turn;
            c.k = turn % 5 == 0 ? 0 : 8;  // sums of 0, too
            const LinearData d = scaled(c, *scales, *scales, turn);
            const Matrix answer = expected(d);
            for (const Target target : available_targets())
              ASSERT_EQ(compare(Stream::cpu({.threads = 1, .cap = target}), d, answer), "")
                  << name(target);
          }
}

// A workspace of no bytes may lie anywhere.
TEST(LinearAccepts, WorkspacesOfNoBytesWithinAnArgument) {
  const Stream stream = Stream::cpu({.threads = 1, .cap = Target::scalar});
  std::vector<std::int8_t> x(256, 3);
  const std::vector<std::int8_t> w(64, 2);
  const auto packed = pack(stream, TensorRef(w, {1, 64}));
  ASSERT_TRUE(packed);
  const auto plan = QuantizedMatmulPlan::select(
      stream, {.m = 4, .n = 1, .k = 64, .output = DType::s32, .packed_weight = true});
  ASSERT_TRUE(plan) << plan.error().message();
  ASSERT_EQ(plan->workspace_size(), 0U);
  std::vector<std::int32_t> y(4);
  const Status ran = plan->run(
      stream, {reinterpret_cast<std::byte*>(x.data()) + 64, 0},
      {.input = TensorRef(x, {4, 64}), .weight = *packed, .output = TensorMut(y, {4, 1})});
  ASSERT_TRUE(ran) << ran.error().message();
  EXPECT_EQ(y, std::vector<std::int32_t>(4, 3 * 2 * 64));
}

// As static scales they belong to the descriptor, whose short form defaults to s8 by s8 to f32.
TEST(LinearAccepts, StaticScalesOfEitherSign) {
  const Stream stream = Stream::cpu({.threads = 1});
  const std::vector<std::int8_t> x{3, -4};
  const std::vector<std::int8_t> w{5, 6, -7, 8};
  const std::vector<float> scales{2, 4};
  for (const double act_scale : {0.5, -0.5, 0.0, -0.0}) {
    const auto plan = SmoothQuantLinearPlan::select(stream, {1, 2, 2, act_scale});
    ASSERT_TRUE(plan) << plan.error().message();
    const WorkspaceBuffer workspace(plan->workspace_size());
    std::vector<float> y(2, 77);
    ASSERT_TRUE(plan->run(stream, workspace,
                          {.input = TensorRef(x, {1, 2}),
                           .weight = TensorRef(w, {2, 2}),
                           .weight_scales = scales,
                           .output = TensorMut(y, {1, 2})}));
    const auto s = static_cast<float>(act_scale);
    const std::vector<float> want{-9 * (s * 2), -53 * (s * 4)};
    for (std::size_t i = 0; i < want.size(); ++i)  // bits, for -0 is not +0
      EXPECT_EQ(std::bit_cast<std::uint32_t>(y[i]), std::bit_cast<std::uint32_t>(want[i]))
          << act_scale;
  }
}

}  // namespace
}  // namespace octavo::testing
