// What is refused of scales, zero points and workspaces.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/elementwise/testing_refusals.hpp"
#include "ops/runs/cpu/call.hpp"

namespace octavo::testing {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// Whether a scale is fine once it is rounded to f32 or f64: to divide by, or only to multiply by.
struct ScaleCase {
  double value;
  bool f32_divides, f32_multiplies, f64_divides, f64_multiplies;
  [[nodiscard]] bool fine(const Problem& p) const {
    if (p.element == DType::f64) return has_range(p.op) ? f64_divides : f64_multiplies;
    return has_range(p.op) ? f32_divides : f32_multiplies;
  }
};

const ScaleCase scale_cases[] = {
    {1.0, true, true, true, true},
    {0.0, false, true, false, true},
    {-0.0, false, true, false, true},
    {-1.0, false, true, false, true},
    {nan, false, false, false, false},
    {-nan, false, false, false, false},
    {inf, false, false, false, false},
    {-inf, false, false, false, false},
    {0x1p-149, false, true, true, true},             // the least f32
    {0x1p-128, false, true, true, true},             // 1/s is the first infinite one of f32
    {0x1p-128 + 0x1p-149, true, true, true, true},   // the next above it
    {0x1p-128 + 0x1p-151, false, true, true, true},  // rounded to f32 first, then looked at
    {-0x1p-128 - 0x1p-149, false, true, false, true},
    {0x1p-126, true, true, true, true},
    {FLT_MAX, true, true, true, true},
    {0x1.fffffefffffffp127, true, true, true, true},  // rounds to the greatest f32
    {0x1.ffffffp127, false, false, true, true},       // a tie: rounds to infinity
    {1e39, false, false, true, true},
    {-1e39, false, false, false, true},
    {1e-50, false, true, true, true},       // rounds to 0 in f32
    {0x1p-1024, false, true, false, true},  // as 2^-128, in f64
    {0x1p-1024 + 0x1p-1074, false, true, true, true},
    {0x1p-1074, false, true, false, true},
    {DBL_MAX, false, false, true, true},
};

TEST(ScaleRefusals, OfOneScale) {
  for (const DType element : all_floats)
    for (const ScaleCase& scale : scale_cases) {
      SCOPED_TRACE(scale.value);
      for (const Op op : all_ops) {
        Attempt attempt(small_problem(op, Layout::per_tensor, element));
        attempt.scale = scale.value;
        if (scale.fine(attempt.problem)) {
          attempt.expect_accepted();
        } else {
          attempt.expect_refused({ErrorCode::invalid_problem, {"scale"}, {}});
        }
      }
    }
}

// One bad scale among good ones: its index is named. The scales lie there as f64, so that they are
// rounded by the plan, and in the compute type.
TEST(ScaleRefusals, OfManyScales) {
  for (const DType element : all_floats)
    for (const DType type : {DType::f64, compute_type(element)})
      for (const ScaleCase& scale : scale_cases) {
        // Given as f32 it must be one.
        const bool exact =
            std::isnan(scale.value) || decode(type, encode(type, scale.value)) == scale.value;
        if (!exact) continue;
        SCOPED_TRACE(scale.value);
        for_each_plan(
            [&](Problem p) {
              if (p.layout == Layout::per_tensor) return;
              p.scale_type = type;
              const std::int64_t count = slice_count(p);
              for (const std::int64_t index : {std::int64_t{0}, std::int64_t{1}, count - 1}) {
                Attempt attempt(p);
                attempt.set_scale(index, scale.value);
                if (scale.fine(p)) {
                  attempt.expect_accepted();
                } else {
                  attempt.expect_refused(
                      {ErrorCode::invalid_problem, {"scales"}, {"index " + std::to_string(index)}});
                }
              }
            },
            element);
      }
}

TEST(ScaleRefusals, OfScalesInHalfPrecision) {
  for (const DType type : {DType::f16, DType::bf16})
    for (const double value : {0.0, -2.0, nan, inf, -inf})
      for_each_plan([&](Problem p) {
        if (p.layout == Layout::per_tensor) return;
        p.scale_type = type;
        Attempt attempt(p);
        attempt.set_scale(2, value);
        if (!has_range(p.op) && std::isfinite(value)) {
          attempt.expect_accepted();
        } else {
          attempt.expect_refused({ErrorCode::invalid_problem, {"scales"}, {"index 2"}});
        }
      });
}

TEST(ScaleRefusals, TheFirstOfSeveralIsNamed) {
  for_each_plan([](const Problem& p) {
    if (p.layout == Layout::per_tensor) return;
    Attempt attempt(p);
    attempt.set_scale(1, nan);
    attempt.set_scale(3, inf);
    attempt.expect_refused({ErrorCode::invalid_problem, {"scales"}, {"index 1"}});
  });
}

// Between two good ones in every order that scales may be compared in: as integers, -1 is below
// both, and 1 above.
TEST(ScaleRefusals, NotANumberBetweenNegativeAndPositiveOnes) {
  for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for_each_plan([&](Problem p) {
      if (p.layout == Layout::per_tensor || has_range(p.op)) return;
      p.scale_type = type;
      for (const double value : {nan, inf}) {
        Attempt attempt(p);
        attempt.set_scale(0, -1);
        attempt.set_scale(2, 1);
        const int size = bits(type) / 8;
        const std::uint64_t sign = std::uint64_t{1} << (bits(type) - 1);
        store_bits(attempt.region(Operand::scales), size, 1, encode(type, value) | sign);
        attempt.expect_refused({ErrorCode::invalid_problem, {"scales"}, {"index 1"}});
      }
    });
}

template <Target... targets>
octavo::detail::ScanFunction scan_on(Target target,
                                     octavo::detail::TargetList<targets...> /*all*/) {
  octavo::detail::ScanFunction scan = nullptr;
  ((scan = target == targets ? octavo::detail::scan<targets> : scan), ...);
  return scan;
}

// What finds them: the least and the most of any number of scales, wherever they are.
TEST(ScaleRefusals, ScansOfEveryTargetLookAtAll) {
  for (const Target target : available_targets()) {
    const octavo::detail::ScanFunction scan = scan_on(target, octavo::detail::VectorTargets());
    if (scan == nullptr) continue;
    for (std::size_t n = 1; n <= 70; ++n)
      for (std::size_t at = 0; at < n; ++at) {
        std::vector<std::int32_t> values(n, 5);
        values[at] = -7;
        octavo::detail::Extremes found = scan(values.data(), std::ssize(values), -1);
        ASSERT_EQ(found.least, -7) << name(target) << ' ' << n << ' ' << at;
        ASSERT_EQ(found.most, n == 1 ? -7 : 5);
        values[at] = 9;
        found = scan(values.data(), std::ssize(values), -1);
        ASSERT_EQ(found.most, 9) << name(target) << ' ' << n << ' ' << at;
        ASSERT_EQ(scan(values.data(), std::ssize(values), 8).most, 8);  // after the mask
      }
  }
}

TEST(ScaleRefusals, AnotherNumberOfThem) {
  for_each_plan([](const Problem& p) {
    for (const Operand operand : parameters_of(p)) {
      Attempt attempt(p);
      const std::int64_t count = slice_count(p);
      for (const std::int64_t wrong : {count - 1, count + 1, std::int64_t{0}, -count, 2 * count}) {
        attempt.at(operand).shape = {wrong};
        attempt.expect_refused(
            {ErrorCode::invalid_problem, {argument_name(operand, p.op)}, {std::to_string(count)}});
      }
      // A negative size times a negative size is not a count.
      attempt.at(operand).shape = {-1, -count};
      attempt.at(operand).strides = {count, 1};
      attempt.expect_refused({ErrorCode::invalid_problem, {argument_name(operand, p.op)}, {}});
    }
  });
}

// Left out means no shape either; a null pointer with one is a mistake.
TEST(ScaleRefusals, ZeroPointsThatAreNotThere) {
  for_each_plan([](const Problem& p) {
    if (p.layout == Layout::per_tensor || !has_input(p.op)) return;
    Attempt attempt(p);
    attempt.at(Operand::zero_points).data = nullptr;
    attempt.expect_refused({ErrorCode::invalid_problem, {"zero_points"}, {}});
    attempt.at(Operand::zero_points) = {};
    attempt.expect_accepted();
  });
}

TEST(ScaleRefusals, ParametersThatAreNotContiguous) {
  for_each_plan([](const Problem& p) {
    for (const Operand operand : parameters_of(p))
      for (const std::int64_t stride : {0, 2, -1}) {
        Attempt attempt(p);
        attempt.at(operand).strides = {stride};
        attempt.expect_refused({ErrorCode::invalid_problem, {argument_name(operand, p.op)}, {}});
      }
  });
}

TEST(WorkspaceRefusals, TooSmallOrMisaligned) {
  for_each_plan([](Problem p) {
    if (p.layout == Layout::per_tensor) return;
    p.scale_type = DType::f64;
    Attempt attempt(p);
    attempt.expect_accepted();
    const auto plan = attempt.select();
    ASSERT_TRUE(plan);
    const std::size_t needed = (*plan)->workspace_size();
    ASSERT_GT(needed, 0U);
    const Workspace whole = attempt.workspace;

    attempt.workspace.bytes = needed;
    attempt.expect_accepted();
    for (const std::size_t got : {needed - 1, std::size_t{0}}) {
      attempt.workspace.bytes = got;
      attempt.expect_run_refused({ErrorCode::workspace_too_small,
                                  {"workspace"},
                                  {std::to_string(needed), std::to_string(got)},
                                  static_cast<std::int64_t>(needed),
                                  static_cast<std::int64_t>(got)});
    }
    attempt.workspace = {};
    attempt.expect_run_refused(
        {ErrorCode::workspace_too_small, {"workspace"}, {}, static_cast<std::int64_t>(needed), 0});
    attempt.workspace = {nullptr, needed};
    attempt.expect_run_refused(
        {ErrorCode::workspace_too_small, {"workspace"}, {}, static_cast<std::int64_t>(needed), 0});
    for (const std::size_t offset : {1, 8, 32}) {
      attempt.workspace = {static_cast<std::byte*>(whole.data) + offset, needed};
      attempt.expect_run_refused(
          {ErrorCode::misaligned_operand, {"workspace"}, {std::to_string(workspace_alignment)}});
    }
  });
}

// It is written before the output is: it must not be an argument.
TEST(WorkspaceRefusals, OverArguments) {
  for_each_plan([](Problem p) {
    if (p.layout == Layout::per_tensor) return;
    p.scale_type = DType::f64;
    std::vector<Operand> operands = tensors_of(p);
    for (const Operand operand : parameters_of(p)) operands.push_back(operand);
    for (const Operand operand : operands) {
      SCOPED_TRACE(argument_name(operand, p.op));
      Attempt attempt(p);
      attempt.workspace = {attempt.region(operand), 1024};
      attempt.expect_run_refused({ErrorCode::invalid_problem, {"workspace"}, {}});
    }
  });
}

// A plan that needs no workspace does not look at it.
TEST(WorkspaceRefusals, NoneWhereNoneIsNeeded) {
  for_each_plan([](const Problem& p) {
    Attempt attempt(p);
    const auto plan = attempt.select();
    ASSERT_TRUE(plan);
    EXPECT_EQ((*plan)->workspace_size(), 0U);
    attempt.workspace = {};
    attempt.expect_accepted();
  });
}

TEST(WorkspaceRefusals, ScaleTypesThatNeedOne) {
  for (const DType element : all_floats)
    for (const DType type : all_floats)
      for_each_plan(
          [&](Problem p) {
            if (p.layout == Layout::per_tensor) return;
            p.scale_type = type;
            const auto plan = Attempt(p).select();
            ASSERT_TRUE(plan);
            EXPECT_EQ((*plan)->workspace_size() == 0, type == compute_type(element));
          },
          element);
}

}  // namespace
}  // namespace octavo::testing
