// Dynamic ranges give the oracle's bits on every target, thread count and layout.
#include <gtest/gtest.h>

#include <thread>

#include "ops/dynamic_range/testing.hpp"
#include "ops/elementwise/testing_checks.hpp"
#include "testing/environment.hpp"

namespace octavo::testing {
namespace {

struct ShapeCase {
  Layout layout;
  Shape shape;
  int axis = 0;
  std::int64_t group_size = 0;
};

class DynamicRange : public ::testing::TestWithParam<std::tuple<Target, RangeMode>> {
 public:
  [[nodiscard]] static RangeMode mode() { return std::get<1>(GetParam()); }
  [[nodiscard]] const Streams& streams() const { return streams_; }
  void check_shapes() const;

  /// Whether all streams give what is wanted.
  [[nodiscard]] bool check(const DynamicCall& c, const TensorRef* input = nullptr) const {
    const DynamicResult want = expected(c);
    for (const Stream& stream : streams_) {
      const std::string wrong = difference(stream, c, want, input);
      EXPECT_EQ(wrong, "");
      if (!wrong.empty()) return false;
    }
    return true;
  }

 private:
  Streams streams_{std::get<0>(GetParam())};
};

[[nodiscard]] std::vector<std::tuple<Target, RangeMode>> targets_and_modes() {
  std::vector<std::tuple<Target, RangeMode>> list;
  for (const Target target : tested_places())
    for (const RangeMode mode : all_modes) list.emplace_back(target, mode);
  return list;
}
INSTANTIATE_TEST_SUITE_P(All, DynamicRange, ::testing::ValuesIn(targets_and_modes()),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) + "_" +
                                  std::string(name(std::get<1>(info.param)));
                         });

template <class F>
void for_each_offered(RangeMode mode, Layout layout, F&& fn) {
  for (const Kind& kind : kinds_of(Op::quantize, layout))
    if (is_offered(mode, kind.integer)) fn(kind);
}

void DynamicRange::check_shapes() const {
  std::vector<std::int64_t> sizes{0, 1, 2, 3, 7, 16, 17, 31, 33, 64, 65, 127, 130, 257};
  if (slow_machine()) sizes = {0, 1, 17, 67};
  std::uint64_t seed = 0;
  for (const std::int64_t n : sizes) {
    std::vector<ShapeCase> cases{
        {Layout::per_tensor, {n}},          {Layout::per_tensor, {3, n}},
        {Layout::per_token, {n}},           {Layout::per_token, {5, n}},
        {Layout::per_token, {n, 1}},        {Layout::per_token, {2, n, 3}},
        {Layout::per_channel, {n}},         {Layout::per_channel, {n, 3}, 0},
        {Layout::per_channel, {5, n}, 1},   {Layout::per_channel, {2, n, 5}, -2},
        {Layout::per_channel, {2, 3, n}, 1}};
    if (n > 0) {
      cases.push_back({Layout::per_group, {2, 3 * n}, 0, n});
      cases.push_back({Layout::per_group, {3, n}, 0, 1});
      cases.push_back({Layout::per_group, {3, n}, 0, n});
    }
    for (const ShapeCase& c : cases) {
      bool good = true;
      for_each_offered(mode(), c.layout, [&](const Kind& kind) {
        // Two leading dimensions are one for the oracle.
        Problem p = problem_of(kind, c.shape, c.axis, c.group_size);
        if (c.layout == Layout::per_tensor) p.shape = {numel(c.shape)};
        if (c.layout == Layout::per_token)
          p.shape = {product(c.shape, 0, c.shape.rank() - 1), c.shape[c.shape.rank() - 1]};
        if (good) good = check(make_dynamic(p, mode(), seed++));
      });
      ASSERT_TRUE(good);
    }
  }
}

TEST_P(DynamicRange, Shapes) { check_shapes(); }

TEST_P(DynamicRange, ShapesStreamed) {
  if (streams().target() == Target::sm80) GTEST_SKIP() << "stores of the CPU";
  const StreamedStores streamed;
  check_shapes();
}

TEST_P(DynamicRange, Ranges) {
  struct Bounds {
    DType integer;
    std::int32_t min, max;
  };
  for (const Bounds& b :
       {Bounds{DType::s8, -127, 127}, Bounds{DType::s8, -128, 1}, Bounds{DType::s8, -3, 7},
        Bounds{DType::s8, 0, 127}, Bounds{DType::u8, 0, 127}, Bounds{DType::u8, 1, 2},
        Bounds{DType::s4, -7, 7}, Bounds{DType::u4, 3, 14}, Bounds{DType::s16, -32768, 32767},
        Bounds{DType::s16, -500, 499}, Bounds{DType::s16, 0, 1000}, Bounds{DType::s16, -1000, 1001},
        Bounds{DType::s16, 20000, 32767}, Bounds{DType::s16, -32768, 3}})
    for (const DType element : all_floats)
      for (const Profile profile : all_profiles) {
        if (!is_offered(mode(), b.integer)) continue;
        Problem p =
            problem_of({Op::quantize, Layout::per_token, element, b.integer, profile}, {64, 37});
        p.q_min = b.min;
        p.q_max = b.max;
        ASSERT_TRUE(check(make_dynamic(p, mode(), 7)));
      }
}

// Quotients that only a division gets right, and scales of which they are made: max |x| / 32639.
TEST_P(DynamicRange, HardQuotients) {
  if (mode() == RangeMode::asymmetric) GTEST_SKIP() << "the scale is another";
  struct Hard {
    float x, most;
  };
  constexpr std::array<Hard, 5> hard{{{0x1.064fc8p14F, 0x1.885b02p15F},
                                      {0x1.0df32ap15F, 0x1.9f2fe8p15F},
                                      {0x1.11b216p15F, 0x1.61fdd4p15F},
                                      {0x1.18d4ep13F, 0x1.da3036p15F},
                                      {0x1.173f7p15F, 0x1.f1fc22p15F}}};
  for (const Layout layout : all_layouts)
    for (const auto& [x, most] : hard) {
      const Kind kind{Op::quantize, layout, DType::f32, DType::s16, Profile::onnx};
      const Shape shape = layout == Layout::per_tensor ? Shape{400} : Shape{4, 100};
      DynamicCall c = make_dynamic(problem_of(kind, shape, 1, 50), mode(), 1);
      for (std::int64_t i = 0; i < 400; ++i) {
        const bool is_most = layout == Layout::per_channel ? i < 100 : i % 50 == 0;
        store_bits(c.input.data(), 4, i,
                   std::bit_cast<std::uint32_t>(is_most      ? most
                                                : i % 2 == 0 ? x
                                                             : -x));
      }
      ASSERT_TRUE(check(c));
    }
}

// Enough for every thread; rows too long for the caches; more lanes than threads keep apart.
TEST_P(DynamicRange, Large) {
  const std::int64_t n = slow_machine() ? 40000 : 400000;
  const std::array<ShapeCase, 11> cases{{{Layout::per_tensor, {n}},
                                         {Layout::per_token, {n / 1000, 1000}},
                                         {Layout::per_token, {2, n / 2}},
                                         {Layout::per_token, {1, 2 * n}},
                                         {Layout::per_group, {n / 4096, 4096}, 0, 128},
                                         {Layout::per_channel, {2, n / 2}, 0},
                                         {Layout::per_channel, {n / 100, 100}, 1},
                                         {Layout::per_channel, {n / 3, 3}, 1},
                                         {Layout::per_channel, {2, 17000, 2}, 1},
                                         {Layout::per_channel, {4, n / 4}, 1},
                                         {Layout::per_channel, {3, n / 60, 20}, 1}}};
  std::uint64_t seed = 0;
  for (const ShapeCase& c : cases)
    for (const auto& [element, integer] : mixed_types) {
      const Kind kind{Op::quantize, c.layout, element,
                      is_offered(mode(), integer) ? integer : DType::s8, all_profiles[seed % 2]};
      ASSERT_TRUE(
          check(make_dynamic(problem_of(kind, c.shape, c.axis, c.group_size), mode(), seed++)));
    }
}

// Outputs that are written past the caches, and long rows of few channels.
TEST_P(DynamicRange, LargerThanCaches) {
  if (slow_machine()) GTEST_SKIP() << "too slow here";
  for (const ShapeCase& c : {ShapeCase{Layout::per_token, {28000, 1000}},
                             ShapeCase{Layout::per_channel, {3, 9000000}, 0}}) {
    const Kind kind{Op::quantize, c.layout, DType::bf16, DType::s8, Profile::onnx};
    ASSERT_TRUE(check(make_dynamic(problem_of(kind, c.shape, c.axis), mode(), 3)));
  }
}

// Rows apart from each other, and elements too: columns of a matrix as rows.
TEST_P(DynamicRange, Strides) {
  constexpr std::int64_t rows = 35;
  constexpr std::int64_t cols = 1100;
  for (const Layout layout : all_layouts)
    for (const DType element : {DType::f32, DType::f64, DType::bf16})
      for (const bool transposed : {false, true})
        for (const Profile profile : all_profiles) {
          const DType integer = mode() == RangeMode::symmetric ? DType::s4 : DType::u4;
          const Kind kind{Op::quantize, layout, element, integer, profile};
          const Shape shape = layout == Layout::per_tensor ? Shape{rows * cols} : Shape{rows, cols};
          const DynamicCall c = make_dynamic(problem_of(kind, shape, 1, 55), mode(), 11);
          const Shape strides = transposed ? Shape{1, rows + 2} : Shape{cols + 3, 1};
          const int bytes = bits(element) / 8;
          Bytes spread(static_cast<std::size_t>(bytes * (rows + 3) * (cols + 3)));
          for (std::int64_t i = 0; i < rows * cols; ++i)
            store_bits(spread.data(), bytes, i / cols * strides[0] + i % cols * strides[1],
                       load_bits(c.input.data(), bytes, i));
          const TensorRef input(spread.data(), element, {rows, cols}, strides);
          if (layout == Layout::per_tensor) {
            // The same elements, in a shape of two dimensions.
            DynamicCall two = c;
            two.problem.shape = {rows, cols};
            two.problem.layout = Layout::per_tensor;
            ASSERT_TRUE(check(two, &input));
          } else {
            ASSERT_TRUE(check(c, &input));
          }
        }
}

// Floats of 16 bits make room for integers of 16 bits.
TEST_P(DynamicRange, InPlace) {
  for (const Layout layout : all_layouts)
    for (const DType element : {DType::f16, DType::bf16}) {
      const Kind kind{Op::quantize, layout, element, DType::s16, Profile::torch};
      const Shape shape = layout == Layout::per_tensor ? Shape{9000} : Shape{30, 300};
      const DynamicCall c = make_dynamic(problem_of(kind, shape, 1, 25), mode(), 5);
      for (const Stream& stream : streams()) {
        const auto plan = DynamicRangeQuantizePlan::select(stream, descriptor_of(c));
        ASSERT_TRUE(plan);
        const WorkspaceBuffer workspace(stream, plan->workspace_size());
        Bytes memory = c.input;
        std::vector<float> scales(static_cast<std::size_t>(plan->slices()));
        std::vector<std::int32_t> zero_points(scales.size());
        Lent lent(stream);
        std::byte* at = lent.lend(memory);
        ASSERT_TRUE(plan->run(stream, workspace,
                              {.input = {at, element, shape},
                               .output = {at, DType::s16, shape},
                               .scales = {lent.lend(scales), {plan->slices()}},
                               .zero_points = {lent.lend(zero_points), {plan->slices()}}}));
        ASSERT_TRUE(lent.fetch());
        ASSERT_TRUE(memory == expected(c).output);
      }
    }
}

// Row m of a batch equals the same row alone.
TEST_P(DynamicRange, RowsDoNotDependOnTheirBatch) {
  const Kind kind{Op::quantize, Layout::per_token, DType::f32, DType::s8, Profile::torch};
  const DynamicCall batch = make_dynamic(problem_of(kind, {64, 333}), mode(), 5);
  const Stream stream = *std::prev(streams().end());
  DynamicResult all;
  ASSERT_EQ(run(stream, batch, all), "");
  for (std::size_t row = 0; row < 64; ++row) {
    DynamicCall one{problem_of(kind, {1, 333}), mode(), {}};
    const auto* from = batch.input.data() + row * 333 * 4;
    one.input.assign(from, from + std::ptrdiff_t{333} * 4);
    DynamicResult alone;
    ASSERT_EQ(run(stream, one, alone), "");
    EXPECT_TRUE(std::equal(alone.output.begin(), alone.output.end(),
                           all.output.begin() + static_cast<std::ptrdiff_t>(row * 333)));
    EXPECT_TRUE(std::equal(alone.scales.begin(), alone.scales.end(),
                           all.scales.begin() + static_cast<std::ptrdiff_t>(row * 4)));
    EXPECT_EQ(alone.zero_points[0], all.zero_points[row]);
  }
}

TEST_P(DynamicRange, RunsOnTheTargetItNames) {
  const Kind kind{Op::quantize, Layout::per_token, DType::f32, DType::s8, Profile::torch};
  const DynamicCall c = make_dynamic(problem_of(kind, {4, 100}), mode(), 5);
  streams().take_trace();
  for (const Stream& stream : streams()) {
    const auto plan = DynamicRangeQuantizePlan::select(stream, descriptor_of(c));
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->sku().target, streams().target());
    EXPECT_EQ(plan->sku().category, Category::dynamic_range);
    DynamicResult got;
    EXPECT_EQ(run(stream, c, got), "");
    EXPECT_EQ(streams().take_trace(), 1U << static_cast<unsigned>(streams().target()));
  }
}

// ---- callers ------------------------------------------------------------------------------------

/// A scope of each path: fused, fused after a gather, and two passes.
std::vector<DynamicCall> some_calls() {
  std::vector<DynamicCall> calls;
  for (const RangeMode mode : all_modes)
    for (const Layout layout : all_layouts)
      for (const DType element : {DType::f32, DType::f64}) {
        const Kind kind{Op::quantize, layout, element, DType::s8, Profile::onnx};
        const Shape shape = layout == Layout::per_tensor ? Shape{3000} : Shape{30, 100};
        calls.push_back(make_dynamic(problem_of(kind, shape, 1, 25), mode, calls.size()));
      }
  return calls;
}

TEST(DynamicRangeCallers, FloatEnvironmentNeitherMattersNorChanges) {
  const Environment usual = environment();
  const Stream stream = Stream::cpu({.threads = 2});
  for (const DynamicCall& c : some_calls()) {
    const DynamicResult want = expected(c);
    for (const Environment& e : environments()) {
      DynamicResult got;
      set(e);
      const std::string wrong = run(stream, c, got);
      const Environment after = environment();
      set(usual);
      ASSERT_EQ(wrong, "");
      ASSERT_EQ(after.control, e.control);
      ASSERT_EQ(after.status, e.status);
      ASSERT_EQ(got, want);
    }
  }
}

// A plan may run on another stream than the one it was selected on, and the output's rows may be
// apart.
TEST(DynamicRangeCallers, AnotherStreamAndRowsApart) {
  constexpr std::int64_t rows = 300;
  constexpr std::int64_t cols = 1000;
  const Shape shape{rows, cols};
  const Kind kind{Op::quantize, Layout::per_channel, DType::f32, DType::s8, Profile::torch};
  const DynamicCall c = make_dynamic(problem_of(kind, shape, 1), RangeMode::asymmetric, 9);
  const DynamicResult want = expected(c);
  for (const auto& [selected, ran] : {std::pair(1, 7), std::pair(7, 1)}) {
    const auto plan =
        DynamicRangeQuantizePlan::select(Stream::cpu({.threads = selected}), descriptor_of(c));
    ASSERT_TRUE(plan);
    const WorkspaceBuffer workspace(plan->workspace_size());
    Bytes output(static_cast<std::size_t>(rows * (cols + 24)), std::byte{0xCD});
    std::vector<float> scales(static_cast<std::size_t>(cols));
    std::vector<std::int32_t> zero_points(scales.size());
    ASSERT_TRUE(plan->run(Stream::cpu({.threads = ran}), workspace,
                          {.input = {c.input.data(), DType::f32, shape},
                           .output = {output.data(), DType::s8, shape, {cols + 24, 1}},
                           .scales = scales,
                           .zero_points = zero_points}));
    EXPECT_EQ(zero_points, want.zero_points);
    for (std::int64_t i = 0; i < rows * (cols + 24); ++i) {
      const std::int64_t column = i % (cols + 24);
      const std::byte expected_byte =
          column < cols ? want.output[static_cast<std::size_t>(i / (cols + 24) * cols + column)]
                        : std::byte{0xCD};
      ASSERT_EQ(output[static_cast<std::size_t>(i)], expected_byte);
    }
  }
}

// Rows that are few and long are shared by threads, but only in a workspace that was asked for.
TEST(DynamicRangeCallers, FewLongRowsOnMoreThreadsThanThePlans) {
  const Shape shape{2, (std::int64_t{1} << 18) + 8};
  const Kind kind{Op::quantize, Layout::per_token, DType::f32, DType::s8, Profile::torch};
  const DynamicCall c = make_dynamic(problem_of(kind, shape), RangeMode::symmetric, 9);
  const auto plan = DynamicRangeQuantizePlan::select(Stream::cpu({.threads = 1}), descriptor_of(c));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->workspace_size(), 0U);
  Bytes output(c.input.size() / 4);
  std::vector<float> scales(2);
  ASSERT_TRUE(plan->run(Stream::cpu({.threads = 3}), {},
                        {.input = {c.input.data(), DType::f32, shape},
                         .output = {output.data(), DType::s8, shape},
                         .scales = scales}));
  EXPECT_TRUE(output == expected(c).output);
}

TEST(DynamicRangeCallers, ManyAtOnce) {
  const Stream stream = Stream::cpu({.threads = 3});
  for (const DynamicCall& c : some_calls()) {
    const DynamicResult want = expected(c);
    std::vector<int> wrong(6);
    std::vector<std::thread> threads;
    threads.reserve(wrong.size());
    for (int& failures : wrong)
      threads.emplace_back([&] {
        for (int i = 0; i < 3; ++i) {
          DynamicResult got;
          if (!run(stream, c, got).empty() || !(got == want)) ++failures;
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(6));
  }
}

}  // namespace
}  // namespace octavo::testing
