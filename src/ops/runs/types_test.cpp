// Every family takes the types that it lists, and refuses all others: also those to come.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "numerics/types.hpp"
#include "octavo/octavo.hpp"

namespace octavo {
namespace {

using Types = std::set<DType>;
const Types floats{DType::f32, DType::f64, DType::f16, DType::bf16};
const Types integers{DType::s8, DType::u8, DType::s4, DType::u4, DType::s16};
const Types symmetric{DType::s8, DType::s4, DType::s16};
const Types calibrated{DType::s8, DType::u8, DType::s4, DType::u4};

/// `select(type)` succeeds for `listed`, and for the rest (one that nobody knows yet among them) it
/// is refused as unsupported, by that argument and in words that name all that are.
template <class Select>
void expect_listed(const char* argument, const Types& listed, Select select) {
  for (int i = 0; i <= dtype_count; ++i) {
    const auto type = static_cast<DType>(i);
    const auto plan = select(type);
    SCOPED_TRACE(std::string(argument) + " " + std::string(name(type)));
    if (listed.contains(type)) {
      EXPECT_TRUE(plan) << plan.error().message();
      continue;
    }
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code(), ErrorCode::unsupported);
    EXPECT_EQ(plan.error().argument(), argument);
    for (const DType wanted : listed)
      EXPECT_NE(plan.error().message().find(name(wanted)), std::string::npos)
          << plan.error().message();
  }
}

TEST(Types, AreThoseThatAreListed) {
  const Stream s = Stream::cpu({.threads = 1});
  expect_listed("input", floats, [&](DType t) {
    return QuantizePerTensorPlan::select(s, {.numel = 4, .input = t});
  });
  expect_listed("output", integers, [&](DType t) {
    return QuantizePerTensorPlan::select(s, {.numel = 4, .output = t});
  });
  expect_listed("scale_type", floats, [&](DType t) {
    return QuantizePerTokenPlan::select(s, {.tokens = 1, .hidden = 4, .scale_type = t});
  });
  expect_listed("input", integers, [&](DType t) {
    return DequantizePerTensorPlan::select(s, {.numel = 4, .input = t});
  });
  expect_listed("output", floats, [&](DType t) {
    return DequantizePerTensorPlan::select(s, {.numel = 4, .output = t});
  });
  expect_listed("element", floats,
                [&](DType t) { return FakeQuantizePlan::select(s, {.numel = 4, .element = t}); });
  expect_listed("input", floats, [&](DType t) {
    return DynamicRangeQuantizePlan::select(s, {.shape = {4}, .input = t});
  });
  expect_listed("output", integers, [&](DType t) {
    return DynamicRangeQuantizePlan::select(
        s, {.shape = {4}, .mode = RangeMode::asymmetric, .output = t});
  });
  expect_listed("output", symmetric, [&](DType t) {
    return DynamicRangeQuantizePlan::select(s, {.shape = {4}, .output = t});
  });
  expect_listed("input", floats, [&](DType t) { return MinMaxObserver::select(s, {.input = t}); });
  const MinMaxState seen = MinMaxObserver::select(s, {})->make_state();
  expect_listed("output", calibrated, [&](DType t) {
    return seen.parameters({.mode = RangeMode::asymmetric, .output = t});
  });
  expect_listed("output", {DType::s8, DType::s4},
                [&](DType t) { return seen.parameters({.output = t}); });
  const auto linear =
      QuantizedLinearPlan::select(s, {.m = 1, .n = 1, .k = 4, .weight = DType::s16});
  ASSERT_FALSE(linear);
  EXPECT_EQ(linear.error().argument(), "weight");
}

TEST(Types, ListsSayWhatTheyHave) {
  EXPECT_EQ(numerics::FloatTypes::words(), "f32, f64, f16 or bf16");
  EXPECT_EQ(numerics::ByteTypes::words(), "s8 or u8");
  EXPECT_EQ(numerics::TypeList<DType::s4>::words(), "s4");
  EXPECT_TRUE(numerics::IntegerTypes::has(DType::u4));
  EXPECT_FALSE(numerics::IntegerTypes::has(DType::s32));
}

TEST(Types, AreFoundByTheirValue) {
  for (int i = 0; i <= dtype_count; ++i) {
    const auto type = static_cast<DType>(i);
    const auto found = numerics::find_type(numerics::IntegerTypes(), type,
                                           []<DType t>() { return static_cast<int>(t) + 1; });
    EXPECT_EQ(found, integers.contains(type) ? i + 1 : 0);
  }
  int called = 0;
  numerics::with_type(numerics::FloatTypes(), DType::bf16,
                      [&]<DType t>() { called = static_cast<int>(t); });
  EXPECT_EQ(called, static_cast<int>(DType::bf16));
}

TEST(TypesDeathTest, OneThatWasNotCheckedEndsTheProgram) {
  EXPECT_DEATH(numerics::with_type(numerics::FloatTypes(), DType::s8, []<DType t>() {}),
               "a type \\(4\\) that was not checked");
}

}  // namespace
}  // namespace octavo
