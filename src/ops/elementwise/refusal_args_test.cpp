// What `can_implement` and `run` refuse of tensors: types, shapes, strides, memory, overlap.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ops/elementwise/testing_refusals.hpp"

namespace octavo::testing {
namespace {

const std::byte* bytes(const TensorRef& t) { return static_cast<const std::byte*>(t.data); }

Refusal invalid(const Problem& p, Operand operand, std::vector<std::string> mentions = {}) {
  return {ErrorCode::invalid_problem, {argument_name(operand, p.op)}, std::move(mentions)};
}

/// fn(attempt, operand) with a fresh call for every operand of every plan and a few pairs of types.
void for_each_operand(const std::function<std::vector<Operand>(const Problem&)>& operands,
                      const std::function<void(Attempt&, Operand)>& fn) {
  const std::pair<DType, DType> types[] = {{DType::f32, DType::s8},
                                           {DType::f64, DType::u8},
                                           {DType::bf16, DType::s4},
                                           {DType::f16, DType::u4},
                                           {DType::f32, DType::s16}};
  for (const auto& [element, integer] : types)
    for_each_plan(
        [&](const Problem& p) {
          for (const Operand operand : operands(p)) {
            SCOPED_TRACE(argument_name(operand, p.op));
            Attempt attempt(p);
            fn(attempt, operand);
          }
        },
        element, integer);
}
void for_each_tensor(const std::function<void(Attempt&, Operand)>& fn) {
  for_each_operand(tensors_of, fn);
}
void for_each_parameter(const std::function<void(Attempt&, Operand)>& fn) {
  for_each_operand(parameters_of, fn);
}
/// Per-tensor plans on vectors of 24 elements, which go a shorter way.
void for_each_vector(const std::function<void(Attempt&, Operand)>& fn) {
  for_each_tensor([&](Attempt& attempt, Operand operand) {
    if (attempt.problem.layout != Layout::per_tensor) return;
    for (const Operand each : tensors_of(attempt.problem))
      attempt.at(each) = TensorRef(attempt.region(each), attempt.at(each).dtype, {24});
    fn(attempt, operand);
  });
}
void for_each_of_both(const std::function<void(Attempt&, Operand)>& fn) {
  for_each_tensor(fn);
  for_each_parameter(fn);
}

TEST(Refuses, TypesOtherThanThePlans) {
  for_each_of_both([](Attempt& attempt, Operand operand) {
    const DType right = attempt.at(operand).dtype;
    for (int i = 0; i <= dtype_count; ++i) {
      const auto wrong = i < dtype_count ? static_cast<DType>(i) : static_cast<DType>(250);
      if (wrong == right) continue;
      attempt.at(operand).dtype = wrong;
      attempt.expect_refused({ErrorCode::unsupported,
                              {argument_name(operand, attempt.problem.op)},
                              {std::string(name(right)), std::string(name(wrong))}});
    }
  });
}

TEST(Refuses, ShapesOtherThanThePlans) {
  const struct {
    const char* what;
    Shape shape;
  } table[] = {
      {"a column less", {4, 5}},
      {"a column more", {4, 7}},
      {"a row less", {3, 6}},
      {"a row more", {5, 6}},
      {"one element", {}},
      {"none", {0, 6}},
      {"two negative sizes", {-4, -6}},
      {"a negative size", {4, -6}},
      {"a negative size and none", {-1, 0}},
      {"a product that wraps to 24", {5, 3689348814741910328}},
      {"a product that wraps to 0", {std::int64_t{1} << 32, std::int64_t{1} << 32}},
      {"rank 9", {1, 1, 1, 1, 1, 1, 1, 4, 6}},
      {"rank 12", {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 6}},
      {"the transpose", {6, 4}},
  };
  for (const auto& row : table) {
    SCOPED_TRACE(row.what);
    for_each_tensor([&](Attempt& attempt, Operand operand) {
      TensorRef& tensor = attempt.at(operand);
      tensor = TensorRef(tensor.data, tensor.dtype, row.shape);
      // Where tensors differ from each other, whichever is second may be blamed.
      Refusal expected = invalid(attempt.problem, operand);
      for (const Operand other : tensors_of(attempt.problem))
        expected.arguments.push_back(argument_name(other, attempt.problem.op));
      attempt.expect_refused(expected);
    });
  }
}

// All tensors alike, but not what the plan was made for.
TEST(Refuses, ShapesThatAgreeButAreNotThePlans) {
  const Shape table[] = {{4, 5}, {5, 6}, {6, 4}, {24, 1}, {1, 24}, {24}, {-4, -6}};
  for_each_plan([&](const Problem& p) {
    for (const Shape& shape : table) {
      const bool any_shape = p.layout == Layout::per_tensor && shape[0] > 0;
      const std::int64_t elements = shape.rank() == 1 ? shape[0] : shape[0] * shape[1];
      Attempt attempt(p);
      Refusal expected{ErrorCode::invalid_problem, {}, {}};
      for (const Operand operand : tensors_of(p)) {
        TensorRef& tensor = attempt.at(operand);
        tensor = TensorRef(tensor.data, tensor.dtype, shape);
        expected.arguments.push_back(argument_name(operand, p.op));
      }
      if (any_shape && elements == 24) {
        attempt.expect_accepted();
      } else {
        attempt.expect_refused(expected);
      }
    }
  });
}

TEST(Refuses, StridesOfAnotherRank) {
  for_each_of_both([](Attempt& attempt, Operand operand) {
    for (const Shape& strides : {Shape{}, Shape{24, 6, 1}}) {
      attempt.at(operand).strides = strides;
      attempt.expect_refused(invalid(attempt.problem, operand));
    }
  });
}

TEST(Refuses, StridesThatAnOutputCannotHave) {
  const struct {
    const char* what;
    Shape strides;
  } table[] = {
      {"a gap between elements", {12, 2}},
      {"transposed", {1, 4}},
      {"elements on one place", {6, 0}},
      {"rows on one place", {0, 1}},
      {"rows that overlap", {4, 1}},
      {"backwards", {6, -1}},
      {"rows beyond all memory", {std::int64_t{1} << 62, 1}},
  };
  for (const auto& row : table) {
    SCOPED_TRACE(row.what);
    for_each_plan([&](const Problem& p) {
      Attempt attempt(p);
      attempt.at(Operand::output).strides = row.strides;
      attempt.expect_refused(invalid(p, Operand::output));
    });
  }
}

TEST(Refuses, StridesThatPackedTensorsCannotHave) {
  for (const DType integer : {DType::s4, DType::u4})
    for (const Op op : {Op::quantize, Op::dequantize})
      for (const Layout layout : all_layouts)
        for (const Shape& strides : {Shape{12, 2}, Shape{7, 1}, Shape{9, 1}, Shape{6, 0},
                                     Shape{1, 4}, Shape{6, -1}, Shape{-7, 1}}) {
          SCOPED_TRACE(strides[0]);
          Attempt attempt(small_problem(op, layout, DType::f32, integer));
          const Operand packed = op == Op::quantize ? Operand::output : Operand::input;
          attempt.at(packed).strides = strides;
          attempt.expect_refused(invalid(attempt.problem, packed));
        }
}

// Without gaps, but for that.
TEST(Refuses, PackedRowsThatBeginWithinAByte) {
  for (const DType integer : {DType::s4, DType::u4})
    for (const Op op : {Op::quantize, Op::dequantize}) {
      Attempt attempt(small_problem(op, Layout::per_tensor, DType::f32, integer));
      for (const Operand operand : tensors_of(attempt.problem)) {
        TensorRef& tensor = attempt.at(operand);
        tensor = TensorRef(attempt.region(operand), tensor.dtype, {8, 3}, {3, 1});
      }
      const Operand packed = op == Op::quantize ? Operand::output : Operand::input;
      attempt.expect_refused(invalid(attempt.problem, packed, {"even"}));
    }
}

TEST(Refuses, StridesBeyondAllMemory) {
  for_each_tensor([](Attempt& attempt, Operand operand) {
    for (const std::int64_t stride : {INT64_MAX - 1, INT64_MIN, std::int64_t{1} << 62}) {
      attempt.at(operand).strides = {stride, 1};
      attempt.expect_refused(invalid(attempt.problem, operand));
    }
  });
}

TEST(Refuses, MemoryThatIsNotThere) {
  const auto check = [](Attempt& attempt, Operand operand) {
    if (operand == Operand::zero_points) return;  // left out: all 0
    attempt.at(operand).data = nullptr;
    attempt.expect_refused(invalid(attempt.problem, operand));
  };
  for_each_of_both(check);
  for_each_vector(check);
}

TEST(Refuses, MisalignedMemory) {
  const auto check = [](Attempt& attempt, Operand operand) {
    TensorRef& tensor = attempt.at(operand);
    const int size = bits(tensor.dtype) / 8;
    const std::byte* aligned = bytes(tensor);
    for (int offset = 1; offset < size; ++offset) {
      tensor.data = aligned + offset;
      attempt.expect_refused({ErrorCode::misaligned_operand,
                              {argument_name(operand, attempt.problem.op)},
                              {std::to_string(size)}});
    }
    tensor.data = aligned + std::max(size, 1);
    attempt.expect_accepted();
  };
  for_each_of_both(check);
  for_each_vector(check);
}

TEST(Refuses, BuffersThatAreTooSmall) {
  const auto check = [](Attempt& attempt, Operand operand) {
    TensorRef& tensor = attempt.at(operand);
    const bool vector = tensor.shape.rank() == 1;
    const std::int64_t row = vector ? tensor.shape[0] : 6;
    for (const std::int64_t stride : {6, 8}) {
      if (vector && stride != 6) continue;
      if (!vector) tensor.strides = {stride, 1};
      const std::int64_t needed = bytes_for(tensor.dtype, (vector ? 0 : 3 * stride) + row);
      tensor.buffer_bytes = needed;
      attempt.expect_accepted();
      for (const std::int64_t got : {needed - 1, std::int64_t{0}}) {
        tensor.buffer_bytes = got;
        attempt.expect_refused({ErrorCode::buffer_too_small,
                                {argument_name(operand, attempt.problem.op)},
                                {std::to_string(needed), std::to_string(got)},
                                needed,
                                got});
      }
    }
  };
  for_each_of_both(check);
  for_each_vector(check);
}

// ---- overlap -----------------------------------------------------------------------------------

TEST(Refuses, OutputThatPartlyOverlapsAnInput) {
  const auto check = [](Attempt& attempt, Operand operand) {
    if (operand == Operand::output) return;
    const TensorRef other = attempt.at(operand);
    TensorRef& output = attempt.at(Operand::output);
    const std::int64_t element = std::max(1, bits(output.dtype) / 8);
    const std::int64_t whole = bytes_for(other.dtype, 24);
    const std::int64_t own = bytes_for(output.dtype, 24);
    // In the middle of its region, so that the output may begin before it.
    attempt.at(operand).data = bytes(other) + 256;
    const Refusal overlap = [&] {
      Refusal r =
          invalid(attempt.problem, Operand::output, {argument_name(operand, attempt.problem.op)});
      r.arguments.push_back(argument_name(operand, attempt.problem.op));
      return r;
    }();
    std::vector<std::int64_t> offsets{element, element - own, whole - element};
    if (bits(output.dtype) != bits(other.dtype)) offsets.push_back(0);  // not in place: other sizes
    for (const std::int64_t offset : offsets) {
      SCOPED_TRACE(offset);
      output.data = bytes(attempt.at(operand)) + offset;
      attempt.expect_refused(overlap);
    }
    for (const std::int64_t offset : {-own, whole}) {
      SCOPED_TRACE(offset);
      output.data = bytes(attempt.at(operand)) + offset;
      attempt.expect_accepted();
    }
  };
  for_each_tensor(check);
  for_each_vector(check);
}

TEST(Refuses, OutputInPlaceOfAnInputInAnotherOrder) {
  for_each_tensor([](Attempt& attempt, Operand operand) {
    if (operand == Operand::output || is_packed(attempt.at(operand).dtype)) return;
    attempt.at(Operand::output).data = attempt.at(operand).data;
    for (const Shape& strides : {Shape{1, 4}, Shape{0, 1}, Shape{8, 1}, Shape{6, 0}}) {
      attempt.at(operand).strides = strides;
      Refusal overlap = invalid(attempt.problem, Operand::output);
      overlap.arguments.push_back(argument_name(operand, attempt.problem.op));
      attempt.expect_refused(overlap);
    }
  });
}

TEST(Refuses, OutputOverParameters) {
  for_each_parameter([](Attempt& attempt, Operand operand) {
    const TensorRef& other = attempt.at(operand);
    TensorRef& output = attempt.at(Operand::output);
    const std::int64_t element = std::max(1, bits(output.dtype) / 8);
    const std::int64_t last = bytes_for(other.dtype, other.shape[0]) - element;
    for (const std::int64_t offset : {std::int64_t{0}, element, last}) {
      output.data = bytes(other) + offset;
      Refusal overlap = invalid(attempt.problem, Operand::output);
      overlap.arguments.push_back(argument_name(operand, attempt.problem.op));
      attempt.expect_refused(overlap);
    }
  });
}

}  // namespace
}  // namespace octavo::testing
