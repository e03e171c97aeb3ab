// Strided tensors: the result does not depend on how the inputs lie, and nothing but the elements
// of the output is written.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/elementwise/testing_placed.hpp"

namespace octavo::testing {
namespace {

constexpr std::int64_t rows = 3, middle = 5;

struct Strides {
  const char* what;
  Shape plain;
  Shape packed;  // empty: not possible
};

/// For a tensor of [3, 5, cols].
std::vector<Strides> input_strides(std::int64_t cols) {
  const std::int64_t even = cols + cols % 2;
  return {
      {"contiguous", {middle * cols, cols, 1}, {middle * even, even, 1}},
      {"columns first", {1, rows, rows * middle}, {}},
      {"planes swapped", {cols, rows * cols, 1}, {even, rows * even, 1}},
      {"rows apart", {(cols + 3) * 7, cols + 3, 1}, {(even + 4) * 7, even + 4, 1}},
      {"every second element", {middle * cols * 2, cols * 2, 2}, {}},
      {"planes backwards", {-middle * cols, cols, 1}, {-middle * even, even, 1}},
      {"rows backwards", {middle * cols, -cols, 1}, {middle * even, -even, 1}},
      {"elements backwards", {middle * cols, cols, -1}, {}},
      {"all backwards", {-middle * cols, -cols, -1}, {}},
      {"one plane for all", {0, cols, 1}, {0, even, 1}},
      {"one row for all", {cols, 0, 1}, {even, 0, 1}},
      {"one element for each row", {middle, 1, 0}, {}},
      {"one element for all", {0, 0, 0}, {}},
  };
}

/// The same, for what is written: rows stay rows, and nothing is written twice.
std::vector<Strides> output_strides(std::int64_t cols) {
  std::vector<Strides> strides;
  for (const Strides& s : input_strides(cols))
    if (s.packed.rank() != 0 && s.packed[0] != 0 && s.packed[1] != 0) strides.push_back(s);
  return strides;
}

const Shape& strides_for(const Strides& s, DType type) {
  return is_packed(type) ? s.packed : s.plain;
}

/// Runs with these strides and compares all of the output's memory.
void check(const Stream& stream, const Problem& p, const Shape& shape, const Shape& input_strides,
           const Shape& grad_strides, const Shape& output_strides) {
  Operands o = make_operands(p, ordinary, 7);
  Placed input(input_type(p), shape, input_strides);
  Placed grad(p.element, shape, grad_strides);
  Placed output(output_type(p), shape, output_strides);
  if (has_input(p.op)) place(o.input, Elements(input_type(p), p.shape), input);
  if (has_grad(p.op)) place(o.grad, Elements(p.element, p.shape), grad);
  const Bytes want = expected_memory(o, output);
  Call call = call_of(o, nullptr);
  call.input = input.ref();
  call.grad = grad.ref();
  call.output = output.mut();
  const Status status = run_call(stream, p, call);
  ASSERT_TRUE(status) << status.error().message();
  ASSERT_TRUE(output.memory == want);
}

/// All layouts and axes on [3, 5, cols].
template <class Fn>
void for_each_problem(std::int64_t cols, Fn fn) {
  const Shape shape{rows, middle, cols};
  for_each_kind([&](const Kind& kind) {
    for (int axis = 0; axis < (kind.layout == Layout::per_channel ? 3 : 1); ++axis) {
      const Problem p = problem_on(kind, shape, axis);
      SCOPED_TRACE(title(p) + " axis " + std::to_string(axis));
      fn(p, shape);
    }
  });
}

void check_inputs(const Stream& stream, std::int64_t cols) {
  const std::vector<Strides> all = input_strides(cols);
  for_each_problem(cols, [&](const Problem& p, const Shape& shape) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(all[i].what);
      const Shape& strides = strides_for(all[i], input_type(p));
      if (strides.rank() == 0) continue;
      // The gradient lies in another way than the input.
      const Strides& other = all[(i + 4) % all.size()];
      ASSERT_NO_FATAL_FAILURE(
          check(stream, p, shape, strides, other.plain, contiguous_strides(shape, output_type(p))));
    }
  });
}

void check_outputs(const Stream& stream, std::int64_t cols) {
  const std::vector<Strides> all = output_strides(cols);
  for_each_problem(cols, [&](const Problem& p, const Shape& shape) {
    const Shape input = contiguous_strides(shape, input_type(p));
    const Shape grad = contiguous_strides(shape, p.element);
    for (const Strides& strides : all) {
      SCOPED_TRACE(strides.what);
      ASSERT_NO_FATAL_FAILURE(
          check(stream, p, shape, input, grad, strides_for(strides, output_type(p))));
    }
  });
}

class StridesEverywhere : public OnBackend {};
INSTANTIATE_TEST_SUITE_P(All, StridesEverywhere, ::testing::ValuesIn(tested_backends()),
                         backend_name);

// On every kernel: each has its own way to find an element.
TEST(Strides, OfInputs) {
  for (const Target target : available_targets())
    for (const std::int64_t cols : {1, 2, 9, 12})
      check_inputs(Stream::cpu({.threads = 1, .cap = target}), cols);
}

TEST(Strides, OfOutputs) {
  for (const Target target : available_targets())
    for (const std::int64_t cols : {1, 2, 9, 12})
      check_outputs(Stream::cpu({.threads = 1, .cap = target}), cols);
}

/// Every `step`-th problem, each with the next ways to lie: all of them are met.
void check_some(const Stream& stream, std::int64_t cols, std::size_t step) {
  const std::vector<Strides> inputs = input_strides(cols);
  const std::vector<Strides> outputs = output_strides(cols);
  std::size_t turn = 0;
  const auto next = [&](const std::vector<Strides>& from, DType type) {
    while (strides_for(from[turn % from.size()], type).rank() == 0) ++turn;
    return strides_for(from[turn++ % from.size()], type);
  };
  std::size_t problem = 0;
  for_each_problem(cols, [&](const Problem& p, const Shape& shape) {
    if (++problem % step != 0) return;
    const Shape input = next(inputs, input_type(p));
    const Shape grad = next(inputs, p.element);
    const Shape output = next(outputs, output_type(p));
    ASSERT_NO_FATAL_FAILURE(check(stream, p, shape, input, grad, output));
  });
}

// Rows longer than any buffer that a driver may gather them in.
TEST_P(StridesEverywhere, OfLongRows) {
  check_some(stream(), 2109, slow_machine() || is_cuda() ? 5 : 1);
}

TEST(Strides, OnCuda) {
  const auto stream = cuda_stream();
  if (!stream) GTEST_SKIP() << "there is no CUDA device";
  for (const std::int64_t cols : {1, 9, 12, 16}) check_inputs(*stream, cols);
  for (const std::int64_t cols : {2, 9, 16}) check_outputs(*stream, cols);
}

// Enough elements for three threads, which part in the middle of rows and of planes.
TEST(Strides, OnThreads) {
  check_some(Stream::cpu({.threads = 3}), 14001, slow_machine() ? 17 : 3);
}

// A row, a column and a block in the middle of a bigger tensor.
TEST_P(StridesEverywhere, OfSubRanges) {
  for_each_kind([&](const Kind& kind) {
    for (const Shape& shape : {Shape{1, 37}, Shape{11, 1}, Shape{4, 6}, Shape{5, 33}}) {
      const Problem p = problem_on(kind, shape, 1);
      SCOPED_TRACE(title(p));
      const Shape wide{64, 1};
      ASSERT_NO_FATAL_FAILURE(check(stream(), p, shape, wide, wide, wide));
    }
  });
}

}  // namespace
}  // namespace octavo::testing
