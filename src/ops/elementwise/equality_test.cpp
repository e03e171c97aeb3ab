// Every kernel against the oracle, bit for bit: all operations, granularities, types, profiles,
// targets and thread counts.
#include <gtest/gtest.h>

#include "ops/elementwise/testing_checks.hpp"

namespace octavo::testing {
namespace {

class Equality : public ::testing::TestWithParam<TargetAndOp> {
 protected:
  [[nodiscard]] static Target target() { return std::get<0>(GetParam()); }
  [[nodiscard]] static Op op() { return std::get<1>(GetParam()); }
  [[nodiscard]] const Streams& streams() const { return streams_; }
  bool check(const Problem& p, const Parameters& parameters) {
    return testing::check(streams_, make_operands(p, parameters, ++seed_));
  }
  void check_slice_shapes();

 private:
  Streams streams_{target()};
  std::uint64_t seed_ = 0;
};
INSTANTIATE_TEST_SUITE_P(All, Equality, ::testing::ValuesIn(tested([](Op) { return true; })),
                         test_name);

/// Operations that a half goes into, and that an integer goes into.
class HalfEquality : public Equality {};
INSTANTIATE_TEST_SUITE_P(All, HalfEquality, ::testing::ValuesIn(tested(has_range)), test_name);
class IntegerEquality : public Equality {};
INSTANTIATE_TEST_SUITE_P(All, IntegerEquality,
                         ::testing::ValuesIn(tested([](Op op) { return op == Op::dequantize; })),
                         test_name);

// ---- parameters --------------------------------------------------------------------------------

const std::vector<double> ordinary_scales{0.1, 0.05, 1, 3, 0x1p-7, 0.0009765625, 255.5, 1e-5, 1e4};
const std::vector<std::int32_t> ordinary_zero_points{0,   3,   -5,   127,  -128, 255,
                                                     128, -77, 1000, -999, 7};
const std::vector<std::int32_t> extreme_zero_points{
    INT32_MIN,      INT32_MAX,       (1 << 24) - 1,    1 << 24,       (1 << 24) + 1,
    -(1 << 24) + 1, -(1 << 24),      -(1 << 24) - 1,   (1 << 23) + 1, -(1 << 23) - 1,
    INT32_MIN + 1,  INT32_MAX - 1,   1 << 30,          -(1 << 30),    (1 << 22) + 1,
    -(1 << 22) - 1, (1 << 24) - 127, -(1 << 24) + 255, (1 << 25) + 1, 65536};
/// The most that the vectors of s16 do, and beyond it; those of 8 bits end at 2^13.
const std::vector<std::int32_t> wide_zero_points{1 << 16, -(1 << 16), INT16_MAX,  INT16_MIN,
                                                 40000,   1 << 13,    -(1 << 13), (1 << 13) + 1};
const std::vector<std::int32_t> wider_zero_points{(1 << 16) + 1, -(1 << 16) - 1};

/// The ends of what a compute type allows, the edges of where a reciprocal is safe, and between.
/// A dequantize takes zero and negative scales, and subnormal ones of any size, too.
std::vector<double> extreme_scales(DType element, Op op) {
  const bool wide = compute_type(element) == DType::f64;
  // The smallest scale whose reciprocal does not overflow, just above 2^-128 or 2^-1024.
  std::vector<double> scales =
      wide ? std::vector<double>{0x1.0000000000004p-1024,
                                 0x1.8p-1023,
                                 0x1p-1022,
                                 0x1p-900,
                                 0x1.5p-600,
                                 0x1.5p600,
                                 0x1p900,
                                 0x1.fffffffffffffp1023}
           : std::vector<double>{0x1.000008p-128, 0x1.8p-127, 0x1p-126,  0x1.4p-126,    0x1p-100,
                                 0x1.3p-65,       0x1p-64,    0x1.7p-64, 0x1.7p63,      0x1p64,
                                 0x1.3p64,        0x1p100,    0x1p126,   0x1.fffffep127};
  scales.insert(scales.end(), {1e-30, 1e30, 0x1p-24, 0x1p24, 1.0});
  if (!has_range(op))
    scales.insert(scales.end(), {0.0, -0.0, -1.0, -0.05, wide ? 0x1p-1074 : 0x1p-149, -0x1p100,
                                 wide ? -0x1p-1030 : -0x1p-130});
  return scales;
}

/// Ranges to quantize to; none is the whole of the storage type.
std::vector<std::optional<IntRange>> ranges_of(const Kind& kind) {
  if (!has_range(kind.op)) return {std::nullopt};
  if (has_integer(kind.op)) {
    const IntRange all = storage_range(kind.integer);
    std::vector<std::optional<IntRange>> ranges{std::nullopt, IntRange{all.min + 1, all.max},
                                                IntRange{all.min + 3, all.min + 6},
                                                IntRange{all.max, all.max}};
    // Of s16: where the exact quotient is taken, and beyond +-2^14.
    if (kind.integer == DType::s16)
      ranges.insert(ranges.end(), {IntRange{-127, 127}, IntRange{-1000, 1000},
                                   IntRange{-20000, 20001}, IntRange{-32639, 32639}});
    return ranges;
  }
  return {IntRange{-128, 127},
          IntRange{0, 255},
          IntRange{0, 15},
          IntRange{-32768, 32767},
          IntRange{0, 65535},
          IntRange{7, 7},
          IntRange{-(1 << 22), 1 << 22},
          IntRange{-(1 << 24) + 1, 1 << 24},
          IntRange{-(1 << 24) - 3, (1 << 24) + 5},
          IntRange{-(1 << 30), INT32_MAX},
          IntRange{INT32_MIN, INT32_MAX},
          IntRange{INT32_MAX, INT32_MAX},
          IntRange{INT32_MIN, INT32_MIN + 255}};
}

void set_range(Problem& p, const std::optional<IntRange>& range) {
  if (!range) return;
  p.q_min = range->min;
  p.q_max = range->max;
}

struct ParameterSet {
  std::vector<double> scales;
  std::vector<std::int32_t> zero_points;
};
/// Apart, since one extreme parameter may send a whole call down another path than the others'.
std::vector<ParameterSet> parameter_sets(DType element, Op op) {
  return {{ordinary_scales, ordinary_zero_points},
          {extreme_scales(element, op), ordinary_zero_points},
          {ordinary_scales, {5}},
          {ordinary_scales, {0}},
          {ordinary_scales, wide_zero_points},
          {ordinary_scales, wider_zero_points},
          {ordinary_scales, extreme_zero_points},
          {extreme_scales(element, op), extreme_zero_points}};
}

// ---- per tensor --------------------------------------------------------------------------------

TEST_P(Equality, TensorSizes) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t n = 0; n <= 130; n += slow_machine() && n > 20 ? 7 : 1) sizes.push_back(n);
  sizes.insert(sizes.end(), {255, 256, 257, 1000, 4099});
  for (const Kind& kind : kinds_of(op(), Layout::per_tensor)) {
    std::size_t turn = 0;
    for (const std::int64_t n : sizes) {
      const Parameters parameters{{ordinary_scales[turn % ordinary_scales.size()]},
                                  {ordinary_zero_points[turn % ordinary_zero_points.size()]}};
      streams().take_trace();
      ASSERT_TRUE(check(problem_of(kind, {n}), parameters));
      if (n > 0) {
        EXPECT_EQ(streams().take_trace(), 1U << static_cast<int>(target())) << digest_name(kind);
      }
      ++turn;
    }
  }
}

TEST_P(Equality, TensorParameters) {
  const std::int64_t n = slow_machine() ? 67 : 211;
  for (const Kind& kind : kinds_of(op(), Layout::per_tensor)) {
    const auto ranges = ranges_of(kind);
    std::size_t turn = 0;
    for (const ParameterSet& set : parameter_sets(kind.element, kind.op))
      for (const double scale : set.scales)
        for (const std::int32_t zero_point : set.zero_points) {
          const std::size_t at = turn++;
          if (slow_machine() && at % 11 != 0) continue;
          Problem p = problem_of(kind, {n});
          set_range(p, ranges[at % ranges.size()]);
          ASSERT_TRUE(check(p, {{scale}, {zero_point}}));
        }
    for (const auto& range : ranges)
      for (const std::int32_t zero_point : {0, 3, -(1 << 24) - 1, INT32_MAX, INT32_MIN}) {
        Problem p = problem_of(kind, {n});
        set_range(p, range);
        ASSERT_TRUE(check(p, {{0.05}, {zero_point}}));
      }
  }
}

// Quotients so close to a tie that a correction of 1 / s which is not rounded correctly is too
// coarse.
TEST_P(Equality, HardQuotients) {
  if (!has_range(op())) GTEST_SKIP() << "divides nothing";
  struct Hard {
    float x, scale;
  };
  constexpr std::array<Hard, 3> hard{
      {{0x1p0F, 0x1.fffffep0F}, {0x1.5d991ep10F, 0x1.dcfffcp0F}, {0x1.6a3c7ep9F, 0x1.e9fffcp0F}}};
  // Beyond 1024 no correction is good enough: these are to be divided.
  constexpr std::array<Hard, 5> beyond{{{0x1.18d4ep13F, 0x1.dc0ffep0F},
                                        {0x1.064fc8p14F, 0x1.89e7fep0F},
                                        {0x1.173f7p15F, 0x1.f3f3fep0F},
                                        {0x1.858838p15F, 0x1.8e23fep0F},
                                        {0x1.b737eap15F, 0x1.b773fep0F}}};
  const auto check = [&](const Hard& h, DType integer, IntRange range) {
    const Kind kind{op(), Layout::per_tensor, DType::f32, integer, Profile::onnx};
    Problem p = problem_of(kind, {1000});
    if (!has_integer(op())) set_range(p, range);
    Operands o = make_operands(p, {{h.scale}, {0}}, 1);
    for (std::int64_t i = 0; i < 1000; ++i)
      store_bits(o.input.data(), 4, i, std::bit_cast<std::uint32_t>(i % 2 == 0 ? h.x : -h.x));
    return testing::check(streams(), o);
  };
  for (const Hard& h : hard) {
    ASSERT_TRUE(check(h, DType::s8, {-999, 999}));
    ASSERT_TRUE(check(h, DType::s16, {-999, 999}));
  }
  for (const Hard& h : beyond) ASSERT_TRUE(check(h, DType::s16, {-32768, 32767}));
}

// ---- the other granularities -------------------------------------------------------------------

struct ShapeCase {
  Layout layout;
  Shape shape;
  int axis = 0;
  std::int64_t group_size = 0;
};

std::vector<ShapeCase> shape_cases() {
  std::vector<ShapeCase> cases;
  std::vector<std::int64_t> sizes{1, 2, 3, 15, 16, 17, 33, 64, 67, 130, 257};
  if (slow_machine()) sizes = {1, 17, 67};
  for (const std::int64_t n : sizes) {
    cases.push_back({Layout::per_channel, {n}});
    cases.push_back({Layout::per_channel, {3, n}, 1});
    cases.push_back({Layout::per_channel, {n, 3}, 1});
    cases.push_back({Layout::per_channel, {9, n}, 1});
    cases.push_back({Layout::per_channel, {3, n}, 0});
    cases.push_back({Layout::per_channel, {n, 3}, 0});
    cases.push_back({Layout::per_channel, {2, n, 5}, -2});
    cases.push_back({Layout::per_channel, {2, 3, n}, 1});
    cases.push_back({Layout::per_channel, {2, n, 1}, 1});
    cases.push_back({Layout::per_token, {3, n}});
    cases.push_back({Layout::per_token, {n, 3}});
    cases.push_back({Layout::per_token, {n, 1}});
    cases.push_back({Layout::per_group, {2, 3 * n}, 0, n});
    cases.push_back({Layout::per_group, {3, n}, 0, n});
    cases.push_back({Layout::per_group, {3, n}, 0, 1});
    cases.push_back({Layout::per_group, {2, 3 * n}, 0, 3});
  }
  for (int axis = 0; axis < max_rank; ++axis)
    cases.push_back({Layout::per_channel, {1, 2, 3, 1, 2, 4, 1, 5}, axis});
  cases.push_back({Layout::per_group, {3, 256}, 0, 32});
  cases.push_back({Layout::per_group, {2, 384}, 0, 128});
  cases.push_back({Layout::per_channel, {7, 4, 33, 3}, 2});
  cases.push_back({Layout::per_channel, {0, 5}, 1});
  cases.push_back({Layout::per_channel, {5, 0}, 1});
  cases.push_back({Layout::per_channel, {5, 0, 3}, 0});
  cases.push_back({Layout::per_token, {0, 5}});
  cases.push_back({Layout::per_token, {5, 0}});
  cases.push_back({Layout::per_group, {0, 8}, 0, 4});
  cases.push_back({Layout::per_group, {8, 0}, 0, 4});
  return cases;
}

void Equality::check_slice_shapes() {
  std::size_t turn = 0;
  for (const ShapeCase& c : shape_cases())
    for (const Kind& kind : kinds_of(op(), c.layout)) {
      const auto ranges = ranges_of(kind);
      for (const ParameterSet& set : parameter_sets(kind.element, kind.op)) {
        const std::size_t at = turn++;
        if (slow_machine() && at % 5 != 0) continue;
        Problem p = problem_of(kind, c.shape, c.axis, c.group_size);
        set_range(p, ranges[at % ranges.size()]);
        // From another scale on each time: short shapes see all of them in the end.
        Parameters parameters{set.scales, set.zero_points};
        const auto rotate = [&](auto& list) {
          std::rotate(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(at % list.size()),
                      list.end());
        };
        rotate(parameters.scales);
        rotate(parameters.zero_points);
        ASSERT_TRUE(check(p, parameters));
      }
    }
}

TEST_P(Equality, SliceShapes) { check_slice_shapes(); }

// Rows with a zero point of 0, others, and all of them: each may have code of its own.
TEST_P(Equality, ZeroPointsOfRows) {
  for (const Kind& kind : kinds_of(op(), Layout::per_token))
    for (const std::vector<std::int32_t>& zero_points :
         {std::vector<std::int32_t>{0}, {0, 5}, {0, INT16_MAX, INT16_MIN, 0, 0, -20000}})
      for (const ShapeCase& c :
           {ShapeCase{Layout::per_token, {7, 150}}, ShapeCase{Layout::per_channel, {5, 150}, 1}}) {
        Kind laid_out = kind;
        laid_out.layout = c.layout;
        ASSERT_TRUE(check(problem_of(laid_out, c.shape, c.axis), {ordinary_scales, zero_points}));
      }
}

// Short rows too may be part of a tensor that does not fit the caches.
TEST_P(Equality, SliceShapesStreamed) {
  if (target() == Target::sm80) GTEST_SKIP() << "no such code";
  const StreamedStores streamed;
  check_slice_shapes();
}

TEST_P(Equality, ScaleTypes) {
  const std::array<ShapeCase, 3> cases{{{Layout::per_channel, {3, 70}, 1},
                                        {Layout::per_token, {9, 21}},
                                        {Layout::per_group, {3, 24}, 0, 8}}};
  for (const ShapeCase& c : cases)
    for (const Kind& kind : kinds_of(op(), c.layout))
      for (const DType type : all_floats) {
        Problem p = problem_of(kind, c.shape, c.axis, c.group_size);
        p.scale_type = type;
        ASSERT_TRUE(check(p, {{0.1, 0.05, 3, 1, 1.0 / 3, 0x1p-10}, ordinary_zero_points}));
      }
}

// ---- enough elements for every thread ----------------------------------------------------------

TEST_P(Equality, Large) {
  const std::int64_t rows = slow_machine() ? 137 : 1031;
  const std::array<ShapeCase, 7> cases{{{Layout::per_tensor, {rows * 1025}},
                                        {Layout::per_channel, {rows, 1025}, 0},
                                        {Layout::per_channel, {rows * 250, 4}, 1},
                                        {Layout::per_channel, {rows / 10, 10249}, 1},
                                        {Layout::per_channel, {5, rows, 205}, 1},
                                        {Layout::per_token, {rows, 1025}},
                                        {Layout::per_group, {rows, 1025}, 0, 41}}};
  std::size_t turn = 0;
  for (const ShapeCase& c : cases)
    for (int i = 0; i < 2; ++i, ++turn) {
      const auto& [element, integer] = mixed_types[turn % mixed_types.size()];
      const Kind kind{op(), c.layout, element, integer, all_profiles[turn / 2 % 2]};
      const Problem p = problem_of(kind, c.shape, c.axis, c.group_size);
      ASSERT_TRUE(check(p, {ordinary_scales, ordinary_zero_points}));
    }
  // Zero points that are beyond vectors.
  for (const std::int32_t zero_point : {INT32_MIN, (1 << 24) + 1})
    ASSERT_TRUE(
        check(problem_of({op(), Layout::per_tensor}, {rows * 1025}), {{0.05}, {zero_point}}));
}

TEST_P(Equality, LargerThanCaches) {
  if (slow_machine()) GTEST_SKIP() << "too slow here";
  if (target() == Target::scalar || target() == Target::sm80) GTEST_SKIP() << "no such code";
  for (const Kind& kind : large_kinds(op()))
    for (const ShapeCase& c : {ShapeCase{Layout::per_tensor, {std::int64_t{40} * 1025}},
                               ShapeCase{Layout::per_channel, {4, 10249}, 1},
                               ShapeCase{Layout::per_channel, {5, 10240}, 1},
                               ShapeCase{Layout::per_channel, {7000, 6}, 1}}) {
      Kind laid_out = kind;
      laid_out.layout = c.layout;
      const Operands o = make_operands(problem_of(laid_out, c.shape, c.axis),
                                       {ordinary_scales, ordinary_zero_points}, 1);
      const std::int64_t times = large_bytes / output_bytes(o.problem) + 1;
      ASSERT_TRUE(testing::check(streams(), repeated(o, times), repeated(expected(o), times)));
    }
}

// ---- all values --------------------------------------------------------------------------------

TEST_P(HalfEquality, AllValues) {
  constexpr std::int64_t count = 65536;
  const std::array<std::pair<double, std::int32_t>, 8> parameters{{{1, 0},
                                                                   {0.1, 0},
                                                                   {0.05, 3},
                                                                   {0x1p-10, -128},
                                                                   {1e-7, 127},
                                                                   {1e4, 255},
                                                                   {0x1p-126, 5},
                                                                   {3, (1 << 24) + 1}}};
  for (const DType element : {DType::f16, DType::bf16})
    for (const Kind& kind : kinds_of(op(), Layout::per_tensor)) {
      if (kind.element != element) continue;
      for (const auto& [scale, zero_point] : parameters) {
        if (slow_machine() && zero_point % 3 != 0) continue;
        Operands o = make_operands(problem_of(kind, {count}), {{scale}, {zero_point}}, 1);
        for (std::int64_t i = 0; i < count; ++i)
          store_bits(o.input.data(), 2, i, static_cast<std::uint64_t>(i));
        ASSERT_TRUE(testing::check(streams(), o));
      }
    }
}

TEST_P(IntegerEquality, AllValues) {
  std::size_t turn = 0;
  for (const Kind& kind : kinds_of(op(), Layout::per_tensor))
    for (const ParameterSet& set : parameter_sets(kind.element, kind.op))
      for (const double scale : set.scales)
        for (const std::int32_t zero_point : set.zero_points) {
          if (slow_machine() && zero_point % 5 != 0) continue;
          const bool wide = kind.integer == DType::s16;
          if (wide && turn++ % 37 != 0) continue;
          const std::int64_t values = wide ? 65536 : 256;  // every byte, or two
          const std::int64_t count = is_packed(kind.integer) ? 2 * values : values;
          Operands o = make_operands(problem_of(kind, {count}), {{scale}, {zero_point}}, 1);
          for (std::int64_t i = 0; i < values; ++i)
            store_bits(o.input.data(), wide ? 2 : 1, i, static_cast<std::uint64_t>(i));
          ASSERT_TRUE(testing::check(streams(), o));
        }
}

}  // namespace
}  // namespace octavo::testing
