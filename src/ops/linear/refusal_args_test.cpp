// What `can_implement` and `run` of the linear plans refuse, and scales that they must not refuse.
#include <gtest/gtest.h>

#include <limits>

#include "ops/linear/testing_refusals.hpp"

namespace octavo::testing {
namespace {

using enum LinearKind;
using Attempt = LinearAttempt;
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::string name_of(Part part) {
  constexpr const char* names[] = {"input",  "activation_scales", "activation_zero_points",
                                   "weight", "weight_scales",     "weight_zero_points",
                                   "bias",   "residual"};
  return names[static_cast<std::size_t>(part)];
}
/// What a plan of this kind reads.
std::vector<Part> parts_of(LinearKind kind) {
  if (kind == matmul)
    return {Part::input,  Part::activation_scales, Part::activation_zero_points,
            Part::weight, Part::weight_scales,     Part::weight_zero_points,
            Part::bias,   Part::residual};
  return {Part::input, Part::weight,  Part::weight_scales, Part::weight_zero_points,
          Part::bias,  Part::residual};
}
template <class F>
void for_each_part(F&& f) {
  for (const LinearKind kind : linear_kinds)
    for (const Part part : parts_of(kind)) f(kind, part);
}
std::int64_t bytes_of(const TensorRef& t) { return bytes_for(t.dtype, numel(t.shape)); }

// ---- every tensor ------------------------------------------------------------------------------

TEST(LinearRefuses, NothingThatIsFine) {
  for (const LinearKind kind : linear_kinds) {
    Attempt(kind).expect_oracle();
    LinearCase c = full_case(kind);
    c.padding = 3;
    Attempt(c).expect_oracle();
  }
}

TEST(LinearRefuses, AnotherType) {
  for_each_part([](LinearKind kind, Part part) {
    const bool any_float =
        part == Part::activation_scales || part == Part::weight_scales || part == Part::bias;
    for (const DType wrong : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::s8, DType::u8,
                              DType::s4, DType::s32, static_cast<DType>(99)}) {
      Attempt attempt(kind);
      TensorRef& tensor = attempt.ref(part);
      if (wrong == tensor.dtype || (any_float && is_float(wrong))) continue;
      const std::string expected = any_float ? "bf16" : std::string(name(tensor.dtype));
      tensor.dtype = wrong;
      attempt.expect_refused(unsupported(name_of(part), {expected, std::string(name(wrong))}));
    }
  });
  for (const DType wrong : {DType::f64, DType::s8, DType::s32})
    refuse(unsupported("output", {"f32", std::string(name(wrong))}),
           [&](Attempt& a) { a.args.output.dtype = wrong; });
}

TEST(LinearRefuses, NoMemory) {
  for_each_part([](LinearKind kind, Part part) {
    Attempt attempt(kind);
    attempt.ref(part).data = nullptr;
    attempt.expect_refused(invalid(name_of(part), {"null"}));
  });
  refuse(invalid("output", {"null", "24"}), [](Attempt& a) { a.args.output.data = nullptr; });
}

TEST(LinearRefuses, MisalignedMemory) {
  for_each_part([](LinearKind kind, Part part) {
    Attempt attempt(kind);
    TensorRef& tensor = attempt.ref(part);
    const auto element = static_cast<std::int64_t>(bytes_for(tensor.dtype, 1));
    if (element == 1) return;
    for (std::int64_t i = 1; i < element; ++i) {
      tensor.data = attempt.at(part) + i;
      attempt.expect_refused({ErrorCode::misaligned_operand,
                              {name_of(part)},
                              {std::to_string(element), std::to_string(i)}});
    }
  });
  refuse({ErrorCode::misaligned_operand, {"output"}, {"4 bytes", "2 past"}},
         [](Attempt& a) { a.args.output.data = a.at(Part::output) + 2; });
}

TEST(LinearRefuses, BuffersThatAreTooSmall) {
  for_each_part([](LinearKind kind, Part part) {
    Attempt attempt(kind);
    TensorRef& tensor = attempt.ref(part);
    const std::int64_t needed = bytes_of(tensor);
    for (const std::int64_t got : {needed - 1, std::int64_t{0}}) {
      tensor.buffer_bytes = got;
      attempt.expect_refused(too_small(name_of(part), needed, got));
    }
    tensor.buffer_bytes = needed;
    attempt.expect_oracle();
  });
  refuse(too_small("output", 96, 95), [](Attempt& a) { a.args.output.buffer_bytes = 95; });
  // A row that lies apart counts.
  refuse(too_small("input", (3 * 100 + 8), 307),
         [](Attempt& a) {
           a.args.input = TensorRef(a.at(Part::input), DType::s8, {4, 8}, {100, 1}, 307);
         },
         {matmul, smoothquant});
}

TEST(LinearRefuses, ShapesOfMatrices) {
  struct Wrong {
    Part part;
    Shape shape;
    std::vector<std::string> mentions;
  };
  for (const Wrong& w : {Wrong{Part::input, {4, 7}, {"[rows, 8]", "[4, 7]"}},
                         Wrong{Part::input, {4, 9}, {"[rows, 8]", "[4, 9]"}},
                         Wrong{Part::input, {32}, {"[rows, 8]", "[32]"}},
                         Wrong{Part::input, Shape(), {"[rows, 8]", "[]"}},
                         Wrong{Part::input, {1, 4, 8}, {"[rows, 8]", "[1, 4, 8]"}},
                         Wrong{Part::input, {5, 8}, {"at most 4 rows", "5"}},
                         Wrong{Part::input, {-1, 8}, {"0 or more", "[-1, 8]"}},
                         Wrong{Part::input, {1, 1, 1, 1, 1, 1, 1, 4, 8}, {"8 dimensions", "9"}},
                         Wrong{Part::weight, {8, 6}, {"[6, 8]", "[8, 6]"}},
                         Wrong{Part::weight, {6, 7}, {"[6, 8]", "[6, 7]"}},
                         Wrong{Part::weight, {7, 8}, {"[6, 8]", "[7, 8]"}},
                         Wrong{Part::weight, {48}, {"[6, 8]", "[48]"}},
                         Wrong{Part::weight, {6, 8, 1}, {"[6, 8]", "[6, 8, 1]"}},
                         Wrong{Part::residual, {4, 5}, {"[4, 6]", "[4, 5]"}},
                         Wrong{Part::residual, {3, 6}, {"[4, 6]", "[3, 6]"}},
                         Wrong{Part::residual, {6}, {"[4, 6]", "[6]"}},
                         Wrong{Part::residual, {1, 6}, {"[4, 6]", "[1, 6]"}}})
    refuse(invalid(name_of(w.part), w.mentions), [&](Attempt& a) {
      TensorRef& t = a.ref(w.part);
      t = TensorRef(t.data, t.dtype, w.shape);
    });
  for (const Shape& wrong : {Shape{4, 5}, Shape{3, 6}, Shape{6, 4}, Shape{24}, Shape{1, 4, 6}})
    refuse(invalid("output", {"[4, 6]"}),
           [&](Attempt& a) { a.args.output = TensorMut(a.at(Part::output), DType::f32, wrong); });
}

TEST(LinearRefuses, StridesOfMatrices) {
  for (const Part part : {Part::input, Part::weight, Part::residual}) {
    const auto strided = [part](const Shape& strides) {
      return [=](Attempt& a) {
        a.ref(part).strides = strides;
        a.ref(part).buffer_bytes = -1;
      };
    };
    refuse(invalid(name_of(part), {"last stride 1", "[8, 2]"}), strided({8, 2}));
    refuse(invalid(name_of(part), {"last stride 1", "[1, 4]"}), strided({1, 4}));  // a transpose
    refuse(invalid(name_of(part), {"last stride 1"}), strided({8, -1}));
    refuse(invalid(name_of(part), {"last stride 1"}), strided({8, 0}));
    refuse(invalid(name_of(part), {"2", "1"}), strided({8}));
    refuse(invalid(name_of(part), {"address space"}), strided({INT64_MAX / 2, 1}));
  }
  const auto output = [](const Shape& strides) {
    return [=](Attempt& a) { a.args.output.strides = strides; };
  };
  refuse(invalid("output", {"last stride 1", "[12, 2]"}), output({12, 2}));
  refuse(invalid("output", {"apart", "[5, 1]"}), output({5, 1}));
  refuse(invalid("output", {"apart", "[0, 1]"}), output({0, 1}));
  refuse(invalid("output", {"1"}), output({6}));
}

// ---- arrays ------------------------------------------------------------------------------------

TEST(LinearRefuses, ArraysOfAnotherLength) {
  for_each_part([](LinearKind kind, Part part) {
    if (part == Part::input || part == Part::weight || part == Part::residual) return;
    const bool rows = part == Part::activation_scales || part == Part::activation_zero_points;
    const std::int64_t right = rows ? 4 : 6;
    for (const std::int64_t wrong : {right - 1, right + 1, std::int64_t{0}, std::int64_t{1}}) {
      if (wrong == 1 && part != Part::bias) continue;
      Attempt attempt(kind);
      TensorRef& t = attempt.ref(part);
      t = TensorRef(t.data, t.dtype, {wrong});
      attempt.expect_refused(
          invalid(name_of(part), {std::to_string(right), std::to_string(wrong)}));
    }
    // Any shape of as many will do, but not with gaps.
    Attempt attempt(kind);
    TensorRef& t = attempt.ref(part);
    t = TensorRef(t.data, t.dtype, {2, right / 2, 1});
    attempt.expect_oracle();
    t = TensorRef(t.data, t.dtype, {right}, {2});
    attempt.expect_refused(invalid(name_of(part), {"contiguous", "[2]"}));
    t = TensorRef(t.data, t.dtype, {2, right / 2}, {1, 2});
    attempt.expect_refused(invalid(name_of(part), {"contiguous", "[1, 2]"}));
    t = TensorRef(t.data, t.dtype, {-6});
    attempt.expect_refused(invalid(name_of(part), {"-6"}));
    t = TensorRef(t.data, t.dtype, {1, 1, 1, 1, 1, 1, 1, 1, right});
    attempt.expect_refused(invalid(name_of(part), {"9"}));
  });
}

TEST(LinearRefuses, ArgumentsThatAreMissing) {
  for_each_part([](LinearKind kind, Part part) {
    Attempt attempt(kind);
    attempt.ref(part) = {};
    // (An empty TensorRef is of f32; a weight of that is one of the wrong type.)
    const bool type = part == Part::weight || (part == Part::input && kind != dynamic);
    attempt.expect_refused(type ? unsupported(name_of(part)) : invalid(name_of(part)));
  });
  refuse(invalid("weight_scales", {"6", "none"}), [](Attempt& a) { a.args.weight_scales = {}; });
  refuse(invalid("weight_zero_points", {"6", "none"}),
         [](Attempt& a) { a.args.weight_zero_points = {}; });
  refuse(invalid("bias", {"6", "none"}), [](Attempt& a) { a.args.bias = {}; });
  // Whatever the output's type is.
  for (const LinearKind kind : linear_kinds)
    for (const DType output : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::s8}) {
      LinearCase c = full_case(kind);
      c.output = output;
      Attempt attempt(c);
      attempt.args.residual = {};
      attempt.expect_refused(invalid("residual", {"[4, 6]", "none"}));
    }
}

TEST(LinearRefuses, ArgumentsThatTheDescriptorDoesNotHave) {
  for (const LinearKind kind : linear_kinds) {
    LinearCase plain = full_case(kind);
    plain.activation_zero_points = plain.weight_zero_points = false;
    plain.epilogue = Epilogue::none;
    Attempt(plain).expect_oracle();
    const auto refused = [&](Part part, DType type, const Shape& shape,
                             std::vector<std::string> mentions) {
      Attempt attempt(plain);
      attempt.ref(part) = TensorRef(attempt.at(part), type, shape);
      mentions.emplace_back("none");
      attempt.expect_refused(invalid(name_of(part), std::move(mentions)));
    };
    refused(Part::bias, DType::f32, {6}, {"Epilogue::bias"});
    refused(Part::residual, DType::f32, {4, 6}, {"Epilogue::residual"});
    refused(Part::weight_zero_points, DType::s32, {6}, {"weight_zero_points"});
    if (kind == matmul)
      refused(Part::activation_zero_points, DType::s32, {4}, {"activation_zero_points"});
  }
  // Raw sums have no scales, no bias and no residual.
  for (const Part part : {Part::activation_scales, Part::weight_scales, Part::bias}) {
    Attempt attempt(raw_case());
    attempt.expect_oracle();
    attempt.ref(part) = TensorRef(attempt.at(part), DType::f32, {1});
    attempt.expect_refused(invalid(name_of(part), {"none"}));
  }
}

TEST(LinearRefuses, ScalesThatAreNotFinite) {
  for (const LinearKind kind : linear_kinds)
    for (const Part part : {Part::weight_scales, Part::activation_scales}) {
      if (part == Part::activation_scales && kind != matmul) continue;
      for (const DType output : {DType::f32, DType::f64, DType::s8})
        for (const DType type : all_floats) {
          LinearCase c = full_case(kind);
          c.output = output;
          c.parameter = type;
          const bool f64 = linear_compute(c) == DType::f64;
          const std::int64_t count = part == Part::weight_scales ? 6 : 4;
          for (std::int64_t i = 0; i < count; ++i)
            for (const double wrong : {inf, -inf, nan, 3.5e38, -1e300}) {
              if (std::isfinite(wrong) && (type != DType::f64 || f64)) continue;
              Attempt attempt(c);
              // A wrong one behind it is not the first.
              for (std::int64_t j = i; j < count; ++j)
                store_bits(attempt.at(part), bits(type) / 8, j, encode(type, wrong));
              attempt.expect_refused(
                  invalid(name_of(part), {"finite", std::isnan(wrong) ? "nan" : "inf",
                                          f64 ? "f64" : "f32", "index " + std::to_string(i)}));
            }
        }
    }
}

TEST(LinearRefuses, ZeroPointsOutsideTheStorageType) {
  for (const LinearKind kind : linear_kinds)
    for (const Part part : {Part::weight_zero_points, Part::activation_zero_points})
      for (const DType type : {DType::s8, DType::u8}) {
        const bool rows = part == Part::activation_zero_points;
        if (rows && kind != matmul) continue;
        LinearCase c = full_case(kind);
        (rows ? c.activation : c.weight) = type;
        const IntRange range = storage_range(type);
        for (const std::int32_t wrong : {range.min - 1, range.max + 1, INT32_MIN, INT32_MAX})
          for (std::int64_t i = 0; i < (rows ? 4 : 6); ++i) {
            Attempt attempt(c);
            store_bits(attempt.at(part), 4, i, static_cast<std::uint32_t>(wrong));
            attempt.expect_refused(invalid(
                name_of(part),
                {std::to_string(range.min), std::to_string(range.max), std::string(name(type)),
                 std::to_string(wrong), "index " + std::to_string(i)}));
          }
      }
}

// Of many, each is looked at: the last of a vector, of what is looked at at once, and of all.
TEST(LinearRefuses, AnyOneOfManyParameters) {
  constexpr std::int64_t n = 600;
  const Stream stream = Stream::cpu({.threads = 1});
  const std::vector<std::int8_t> w(n);
  const std::vector<std::int8_t> x(1);
  std::vector<float> y(n);
  const float one = 1;
  const auto plan =
      QuantizedMatmulPlan::select(stream, {.m = 1, .n = n, .k = 1, .weight_zero_points = true});
  ASSERT_TRUE(plan);
  for (const DType type : all_floats)
    for (const std::int64_t wrong : {0, 7, 8, 255, 256, 511, 512, 591, 592, 599}) {
      Matrix scales(type, 1, n, 0);
      for (std::int64_t i = 0; i < n; ++i) scales.set(0, i, encode(type, 0.5));
      std::vector<std::int32_t> zeros(n, 3);
      const auto refused = [&](const char* argument) {
        const Status status =
            plan->can_implement({.input = TensorRef(x, {1, 1}),
                                 .activation_scales = TensorRef(&one, {1}),
                                 .weight = TensorRef(w, {n, 1}),
                                 .weight_scales = TensorRef(scales.bytes.data(), type, {n}),
                                 .weight_zero_points = zeros,
                                 .output = TensorMut(y, {1, n})});
        ASSERT_FALSE(status);
        expect_error(status.error(), invalid(argument, {"index " + std::to_string(wrong)}));
      };
      zeros[static_cast<std::size_t>(wrong)] = -129;
      refused("weight_zero_points");
      scales.set(0, wrong, encode(type, -inf));
      refused("weight_scales");
    }
}

// ---- the weights -------------------------------------------------------------------------------

TEST(LinearRefuses, WeightsOfAnotherForm) {
  const Stream stream = Stream::cpu({.threads = 1});
  std::vector<std::int8_t> bytes(100);
  std::vector<std::uint8_t> other(100);
  const PackedWeight right = *octavo::pack(stream, TensorRef(bytes, {6, 8}));
  const PackedWeight empty;
  for (const LinearKind kind : linear_kinds) {
    Attempt rows(kind);
    rows.args.weight = right;
    rows.expect_refused(unsupported("weight", {"rows", "packed", "packed_weight"}));

    LinearCase c = full_case(kind);
    c.packed = true;
    const auto refused = [&](const WeightRef& weight, const Refusal& expected) {
      Attempt attempt(c);
      attempt.args.weight = weight;
      attempt.expect_refused(expected);
    };
    refused(TensorRef(bytes, {6, 8}), unsupported("weight", {"packed", "rows"}));
    refused({}, unsupported("weight", {"packed", "rows"}));
    refused(empty, unsupported("weight", {"packed", "empty"}));
    const PackedWeight u8 = *octavo::pack(stream, TensorRef(other, {6, 8}));
    refused(u8, unsupported("weight", {"s8", "u8"}));
    for (const Shape& shape : {Shape{7, 8}, Shape{5, 8}, Shape{6, 7}, Shape{6, 9}, Shape{8, 6},
                               Shape{0, 8}, Shape{6, 0}}) {
      const PackedWeight wrong = *octavo::pack(stream, TensorRef(bytes, shape));
      refused(wrong, invalid("weight", {"[6, 8]", "[" + std::to_string(shape[0]) + ", " +
                                                      std::to_string(shape[1]) + "]"}));
    }
  }
}

// ---- the output's scale ------------------------------------------------------------------------

TEST(LinearRefuses, OutputScales) {
  // Of a type that is not quantized there is none.
  for (const LinearKind kind : linear_kinds)
    for (const DType output : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::s32}) {
      if (output == DType::s32 && kind != matmul) continue;
      LinearCase c = output == DType::s32 ? raw_case() : full_case(kind);
      c.output = output;
      Attempt attempt(c);
      for (const double wrong : {0.5, 0.0, -1.0, nan, inf}) {
        attempt.args.output_scale = wrong;
        attempt.expect_refused(invalid("output_scale", {std::string(name(output)), "1"}));
      }
      attempt.args.output_scale = 1;
      attempt.args.output_zero_point = 3;
      attempt.expect_refused(invalid("output_zero_point", {std::string(name(output)), "3"}));
    }
  for (const LinearKind kind : linear_kinds)
    for (const DType output : {DType::s8, DType::u8})
      for (const Profile profile : all_profiles) {
        LinearCase c = full_case(kind);
        c.output = output;
        c.profile = profile;
        Attempt attempt(c);
        // Zero, negative, not finite, too large or too small for f32, of an infinite reciprocal.
        for (const double wrong : {0.0, -0.0, -1.0, inf, -inf, nan, 3.5e38, 1e-46, 0x1p-128}) {
          attempt.args.output_scale = wrong;
          attempt.expect_refused(invalid("output_scale", {"finite", "reciprocal"}));
        }
        for (const double right : {0x1.000008p-128, 0x1.FFFFFEp127, 1.0, 1e-30}) {
          attempt.args.output_scale = right;
          attempt.expect_accepted();
        }
        // Any zero point: nothing wraps.
        for (const std::int32_t zero_point : {INT32_MIN, -129, 256, INT32_MAX}) {
          attempt.args.output_scale = 1;
          attempt.args.output_zero_point = zero_point;
          attempt.expect_accepted();
          const IntRange range = storage_range(output);
          const auto want = static_cast<std::uint8_t>(zero_point < 0 ? range.min : range.max);
          if (zero_point == INT32_MIN || zero_point == INT32_MAX) {
            EXPECT_EQ(attempt.written(), Bytes(24, std::byte{want})) << zero_point;
          }
        }
      }
}

}  // namespace
}  // namespace octavo::testing
