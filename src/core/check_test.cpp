// The checks that all plans share, at the very numbers where their answer changes. (That plans make
// them is seen in the tests of what plans refuse.)
#include "core/check.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace octavo::detail {
namespace {

/// Memory that is never touched; only its address counts.
alignas(64) std::array<std::byte, 4096> memory;

TensorMut tensor(DType type, const Shape& shape, const Shape& strides, std::int64_t bytes = -1) {
  return {memory.data(), type, shape, strides, bytes};
}
Status as_input(const TensorRef& t) {
  const auto checked = check_input("input", t, t.dtype);
  return checked ? Status() : checked.error();
}
Status as_output(const TensorMut& t) {
  const auto checked = check_output("output", t, t.dtype);
  return checked ? Status() : checked.error();
}
Status as_array(const TensorRef& t, std::int64_t count) {
  const auto checked = check_array("scales", t, t.dtype, count);
  return checked ? Status() : checked.error();
}

void expect_fine(const Status& s) { EXPECT_TRUE(s) << s.error().message(); }
void expect_refused(const Status& s, ErrorCode code, const std::string& words) {
  ASSERT_FALSE(s) << words;
  EXPECT_EQ(s.error().code(), code) << s.error().message();
  EXPECT_NE(s.error().message().find(words), std::string::npos) << s.error().message();
}

TEST(CheckStrides, ReachLessThanTwoToThe59Elements) {
  constexpr std::int64_t most = std::int64_t{1} << 59;
  for (const std::int64_t sign : {1, -1})
    for (const DType type : {DType::f64, DType::s8}) {
      expect_fine(as_input(tensor(type, {2}, {sign * (most - 1)})));
      expect_refused(as_input(tensor(type, {2}, {sign * most})), ErrorCode::invalid_problem,
                     "address space");
      expect_refused(as_input(tensor(type, {2}, {sign * most * 4})), ErrorCode::invalid_problem,
                     "address space");
      // Together, too: the sum of all that dimensions reach.
      expect_fine(as_input(tensor(type, {2, 2}, {sign * (most / 2), sign * (most / 2 - 1)})));
      expect_refused(as_input(tensor(type, {2, 2}, {sign * (most / 2), sign * (most / 2)})),
                     ErrorCode::invalid_problem, "address space");
      // Forwards and backwards do not cancel.
      expect_refused(as_input(tensor(type, {2, 2}, {sign * most, -sign * most})),
                     ErrorCode::invalid_problem, "address space");
    }
}

// Sums and products that wrap to something small are still beyond the address space.
TEST(CheckStrides, DoNotWrap) {
  constexpr std::int64_t quarter = std::int64_t{1} << 62;
  for (const std::int64_t far : {quarter, -quarter})
    for (const auto& [shape, strides] :
         {std::pair(Shape{2, 2}, Shape{far, far}), std::pair(Shape{2, 2, 2}, Shape{far, far, far}),
          std::pair(Shape{2, 2, 2, 2}, Shape{far, far, far, far})})
      expect_refused(as_input(tensor(DType::s8, shape, strides)), ErrorCode::invalid_problem,
                     "address space");
  expect_refused(as_input(tensor(DType::s8, {5}, {quarter})), ErrorCode::invalid_problem,
                 "address space");
  expect_refused(as_input(tensor(DType::s8, {2}, {INT64_MIN})), ErrorCode::invalid_problem,
                 "address space");
}

TEST(CheckStrides, OfOneElementAreNotLookedAt) {
  constexpr std::int64_t odd = 77;
  expect_fine(as_input(tensor(DType::f32, {1, 3}, {INT64_MAX, 1})));
  expect_fine(as_output(tensor(DType::f32, {3, 1}, {1, odd})));
  expect_fine(as_output(tensor(DType::f32, {1, 3}, {0, 1})));
  expect_fine(as_input(tensor(DType::s4, {1, 3}, {odd, 1})));
  expect_fine(as_input(tensor(DType::s4, {3, 1}, {2, odd})));
  expect_fine(as_array(tensor(DType::f32, {1, 3, 1}, {odd, 1, odd}), 3));
  EXPECT_TRUE(same_strides(tensor(DType::f32, {4, 1, 3}, {3, odd, 1}),
                           tensor(DType::f32, {4, 1, 3}, {3, 3, 1})));
  EXPECT_FALSE(same_strides(tensor(DType::f32, {4, 2, 3}, {6, 3, 1}),
                            tensor(DType::f32, {4, 2, 3}, {6, 4, 1})));
}

TEST(CheckBuffers, HoldTheLastByteOfAnOddPackedRow) {
  const struct {
    Shape shape, strides;
    std::int64_t bytes;
  } rows[] = {{{1}, {1}, 1},
              {{4}, {1}, 2},
              {{5}, {1}, 3},
              {{2, 5}, {6, 1}, 6},
              {{2, 4}, {6, 1}, 5},
              {{3, 1}, {2, 1}, 3},
              {{2, 2, 3}, {8, 4, 1}, 8}};
  for (const auto& row : rows) {
    expect_fine(as_input(tensor(DType::u4, row.shape, row.strides, row.bytes)));
    expect_refused(as_input(tensor(DType::u4, row.shape, row.strides, row.bytes - 1)),
                   ErrorCode::buffer_too_small, "bytes 0 to " + std::to_string(row.bytes));
  }
}

// A buffer begins where the tensor's pointer points: nothing of it lies before.
TEST(CheckBuffers, HaveNothingBeforeTheirBeginning) {
  const TensorMut backwards = tensor(DType::f32, {4, 6}, {-6, 1}, 4096);
  const auto checked = check_input("input", backwards, DType::f32);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code(), ErrorCode::buffer_too_small);
  EXPECT_EQ(checked.error().needed(), 4 * 4 * 6);
  EXPECT_EQ(checked.error().got(), 4096);
  expect_refused(as_input(tensor(DType::s4, {4, 6}, {-6, 1}, 4096)), ErrorCode::buffer_too_small,
                 "bytes -9 to 3");
  expect_fine(as_input(tensor(DType::f32, {4, 6}, {-6, 1})));
}

TEST(CheckExtents, GoFromTheFirstByteToTheLast) {
  const auto extent = [](DType type, const Shape& shape, const Shape& strides) {
    const auto checked = check_input("input", tensor(type, shape, strides), type);
    const auto base = reinterpret_cast<std::uintptr_t>(memory.data());
    return std::pair(static_cast<std::int64_t>(checked->extent.begin - base),
                     static_cast<std::int64_t>(checked->extent.end - base));
  };
  using Bytes = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(extent(DType::f32, {4, 6}, {8, 1}), (Bytes{0, 4 * (3 * 8 + 6)}));
  EXPECT_EQ(extent(DType::f64, {4, 6}, {-8, 1}), (Bytes{-8 * 24, 8 * 6}));
  EXPECT_EQ(extent(DType::bf16, {4, 6}, {1, -4}), (Bytes{-2 * 20, 2 * 4}));
  EXPECT_EQ(extent(DType::s4, {4, 5}, {6, 1}), (Bytes{0, 12}));
  EXPECT_EQ(extent(DType::s4, {4, 5}, {-6, 1}), (Bytes{-9, 3}));
  EXPECT_EQ(extent(DType::f32, {0, 6}, {8, 1}).first, extent(DType::f32, {0, 6}, {8, 1}).second);

  const Extent middle{100, 200};
  EXPECT_FALSE(middle.overlaps({50, 100}));
  EXPECT_TRUE(middle.overlaps({50, 101}));
  EXPECT_TRUE(middle.overlaps({120, 130}));
  EXPECT_TRUE(middle.overlaps({199, 300}));
  EXPECT_FALSE(middle.overlaps({200, 300}));
}

TEST(CheckOutputs, KeepTheirElementsApart) {
  const struct {
    Shape shape, strides;
    bool apart;
  } rows[] = {
      {{3, 4}, {4, 1}, true},
      {{3, 4}, {3, 1}, false},
      {{3, 4}, {-4, 1}, true},
      {{3, 4}, {-3, 1}, false},
      {{3, 4}, {0, 1}, false},
      {{2, 3, 4}, {4, 8, 1}, true},
      {{3, 3, 4}, {4, 8, 1}, false},
      {{2, 3, 4}, {12, 4, 1}, true},
      {{2, 3, 4}, {11, 4, 1}, false},
      {{2, 3, 4}, {4, -8, 1}, true},
      {{2, 3, 4}, {4, 4, 1}, false},
      {{3, 1}, {0, 1}, false},
      {{2, 2, 1, 2}, {2, 4, 9, 1}, true},
  };
  for (const auto& row : rows) {
    const Status s = as_output(tensor(DType::f32, row.shape, row.strides));
    EXPECT_EQ(s.has_value(), row.apart) << to_string(row.shape) << ' ' << to_string(row.strides);
    expect_fine(as_input(tensor(DType::f32, row.shape, row.strides)));
  }
}

TEST(CheckElements, AreCountedUpToAnEighthOfAnInt64) {
  constexpr std::int64_t most = INT64_MAX / 8;
  const auto count = [](const Shape& shape) { return count_elements("shape", shape).value_or(-1); };
  EXPECT_EQ(count({}), 1);
  EXPECT_EQ(count({most}), most);
  EXPECT_EQ(count({most + 1}), -1);
  EXPECT_EQ(count({std::int64_t{1} << 32, std::int64_t{1} << 32}), -1);
  EXPECT_EQ(count({most, 4, 0}), 0);  // no element, whatever the other sizes
  EXPECT_EQ(count({0, -1}), -1);
  EXPECT_EQ(count({1, 1, 1, 1, 1, 1, 1, 2}), 2);
  EXPECT_EQ(count({1, 1, 1, 1, 1, 1, 1, 1, 2}), -1);
}

TEST(CheckElements, ArePrintedAsTheyCome) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{4, -6}), "[4, -6]");
  EXPECT_EQ(to_string(Shape{1, 2, 3, 4, 5, 6, 7, 8}), "[1, 2, 3, 4, 5, 6, 7, 8]");
  EXPECT_EQ(to_string(Shape{1, 2, 3, 4, 5, 6, 7, 8, 9}), "[1, 2, 3, 4, 5, 6, 7, 8, ...]");
}

TEST(CheckWorkspaces, LieApartFromEveryArgument) {
  const std::size_t needed = 128;
  const Workspace workspace{memory.data() + 1024, needed + 64};
  const auto with = [&](std::int64_t at, std::int64_t bytes) {
    const TensorRef argument(memory.data() + at, DType::s8, {bytes});
    return check_workspace(workspace, needed, {nullptr, &argument});
  };
  expect_fine(with(960, 64));
  expect_refused(with(960, 65), ErrorCode::invalid_problem, "overlap");
  expect_refused(with(1024 + 127, 1), ErrorCode::invalid_problem, "overlap");
  expect_fine(with(1024 + 128, 1));  // what is lent but not needed is not written
  expect_fine(with(1024, 0));
}

}  // namespace
}  // namespace octavo::detail
